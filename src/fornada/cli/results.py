"""How an answer of a model is shown to a person."""

import math
import sys
from typing import Any

import click

from fornada.cli.output import json_text, print_table
from fornada.cli.printable import printable

SHOWN = 4
"""Numbers of a vector that are shown."""


def show(result: Any) -> None:
    """Labels as a table, vectors by their shape, text as text, everything else as JSON."""
    if _are_labels(result):
        _show_labels(result)
    elif _are_embeddings(result):
        _show_embeddings(result)
    elif isinstance(result, dict) and isinstance(result.get("response"), str) and not result.get("tool_calls"):
        click.echo(shown(result["response"]))
    elif isinstance(result, str):
        click.echo(shown(result))
    else:
        click.echo(json_text(result, indent=2))


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


def _are_labels(result: Any) -> bool:
    return (
        isinstance(result, list) and bool(result) and all(isinstance(item, dict) and {"label", "score"} <= item.keys() for item in result)
    )


def _show_labels(result: list[dict[str, Any]]) -> None:
    boxes = any(isinstance(item.get("box"), dict) for item in result)
    rows = []
    for item in result:
        score = item["score"]
        row = [str(item["label"]), f"{score:.3f}" if isinstance(score, int | float) else "-"]
        if boxes:
            box = item.get("box") or {}
            row.append(" ".join(f"{box[key]:.0f}" for key in ("xmin", "ymin", "xmax", "ymax") if isinstance(box.get(key), int | float)))
        rows.append(row)
    print_table(["label", "score", "box"] if boxes else ["label", "score"], rows, empty="no label")


def _are_embeddings(result: Any) -> bool:
    if not isinstance(result, dict) or not isinstance(result.get("data"), list) or not isinstance(result.get("shape"), list):
        return False
    return all(isinstance(vector, list) and all(isinstance(x, int | float | None) for x in vector) for vector in result["data"])


def _show_embeddings(result: dict[str, Any]) -> None:
    pooling = f", pooling {result['pooling']}" if result.get("pooling") else ""
    click.echo(printable(f"{' x '.join(map(str, result['shape']))} numbers{pooling}"))
    for index, vector in enumerate(result["data"]):
        numbers = [x for x in vector if x is not None]
        length = math.sqrt(sum(x * x for x in numbers))
        first = ", ".join(f"{x:.4f}" for x in numbers[:SHOWN])
        click.echo(f"[{index}]  {first}{', …' if len(numbers) > SHOWN else ''}  (length {length:.3f})")
