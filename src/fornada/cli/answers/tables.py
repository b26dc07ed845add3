"""An answer on the terminal: finds as tables, vectors by their shape, text as text, everything else as JSON."""

import math
import sys
from collections.abc import Sequence
from typing import Any, assert_never

import click

from fornada.cli.answers import shapes
from fornada.cli.output import json_text, print_table
from fornada.cli.printable import printable

NUMBERS_SHOWN = 4
"""Of a vector."""
PASSAGE_SHOWN = 60
"""Characters of a passage beside its rank."""


def show(answer: shapes.Answer, *, asked: dict[str, Any] | None = None) -> None:
    """`asked` is the request where it was JSON: a ranking names its texts by number only."""
    match answer:
        case shapes.Labels(items=items):
            _labels(items)
        case shapes.Entities(items=items):
            rows = [[item.label, item.text, f"{item.start}-{item.end}"] for item in items]
            print_table(["label", "text", "characters"], rows, empty="nothing found")
        case shapes.Pose(keypoints=points):
            rows = [[p.name.replace("_", " "), f"{p.x:.0f}", f"{p.y:.0f}", _score(p.score), _sure(p.score)] for p in points]
            print_table(["point", "x", "y", "score", ""], rows, empty="no points")
        case shapes.ReadText(lines=lines):
            rows = [[str(number), line.text, _score(line.score), _corner(line)] for number, line in enumerate(lines, 1)]
            print_table(["#", "text", "score", "at"], rows, empty="no text found")
        case shapes.Segmentation():
            _segmentation(answer)
        case shapes.Ranking(response=ranked):
            _ranking(ranked, asked or {})
        case shapes.Vectors():
            _vectors(answer)
        case shapes.Speech(text=text) | shapes.Text(text=text):
            click.echo(shown(text))
        case shapes.Encoded(content=content, type=type):
            click.echo(f"{type}, {len(content)} bytes")
        case shapes.Other(value=value):
            click.echo(json_text(value, indent=2))
        case _:
            assert_never(answer)


def piece(item: Any) -> tuple[str, bool]:
    """An item of a stream: its text, and whether it continues the line (True) or is a line of its own."""
    if isinstance(item, dict):
        if isinstance(item.get("response"), str) and not item.get("tool_calls"):
            return item["response"], True
        choices = item.get("choices")
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            delta = choices[0].get("delta")
            if isinstance(delta, dict):
                return str(delta.get("content") or ""), True
    return json_text(item), False


def shown(text: str) -> str:
    """A model's text: as it is for a program, without control characters for a terminal."""
    return printable(text) if sys.stdout.isatty() else text


def _labels(items: Sequence[shapes.Label]) -> None:
    boxes = any(item.box for item in items)
    rows = []
    for item in items:
        row = [item.label, _score(item.score)]
        if boxes:
            row.append(
                " ".join(f"{edge:.0f}" for edge in (item.box.xmin, item.box.ymin, item.box.xmax, item.box.ymax)) if item.box else "-"
            )
        rows.append(row)
    print_table(["label", "score", "box"] if boxes else ["label", "score"], rows, empty="nothing found")


def _segmentation(answer: shapes.Segmentation) -> None:
    from fornada.cli.answers.masks import shares

    rows = [[label, f"{share:.1%}"] for label, share in shares(answer) if share > 0]
    print_table(["label", "share"], rows, empty="an empty mask")


def _ranking(ranked: Sequence[shapes.Ranked], asked: dict[str, Any]) -> None:
    contexts = asked.get("contexts")
    passages = contexts if isinstance(contexts, list) else []
    rows = []
    for place, item in enumerate(ranked, 1):
        passage = passages[item.id] if 0 <= item.id < len(passages) else None
        text = str(passage.get("text") or "") if isinstance(passage, dict) else ""
        rows.append([str(place), _score(item.score), str(item.id), _shortened(text)])
    print_table(["rank", "score", "id", "text"], rows, empty="nothing to rank")


def _vectors(answer: shapes.Vectors) -> None:
    pooling = f", pooling {answer.pooling}" if answer.pooling else ""
    click.echo(printable(f"{' x '.join(map(str, answer.shape))} numbers{pooling}"))
    for index, vector in enumerate(answer.data):
        numbers = [x for x in vector if x is not None]
        length = math.sqrt(sum(x * x for x in numbers))
        first = ", ".join(f"{x:.4f}" for x in numbers[:NUMBERS_SHOWN])
        click.echo(f"[{index}]  {first}{', …' if len(numbers) > NUMBERS_SHOWN else ''}  (length {length:.3f})")


def _score(score: float | None) -> str:
    return "-" if score is None else f"{score:.3f}"


def _sure(score: float) -> str:
    return "" if score >= shapes.SURE else "a guess"


def _corner(line: shapes.Line) -> str:
    return f"{line.box[0][0]:.0f} {line.box[0][1]:.0f}" if line.box else "-"


def _shortened(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= PASSAGE_SHOWN else words[: PASSAGE_SHOWN - 1] + "…"
