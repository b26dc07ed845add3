"""`fornada logs`."""

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import click

from fornada.cli.client import Node, model_path, with_node
from fornada.cli.completion import model_names
from fornada.cli.failures import CommandFailed
from fornada.cli.output import print_json_line
from fornada.cli.printable import printable

ID_SHOWN = 8
"""Characters from the end: the node's own ids all begin alike."""


@click.command()
@click.argument("model", shell_complete=model_names)
@click.option("--follow", "-f", is_flag=True, help="Go on until interrupted.")
@click.option("--last", "-n", type=click.IntRange(min=0), metavar="N", help="Only the last N lines.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line: time, stream, line, instance, request_id.")
@with_node
def logs(node: Node, model: str, follow: bool, last: int | None, as_json: bool) -> None:
    """Show what a model wrote: stdout, stderr and context.log.

    \b
    Example:
      fornada logs @local/echo
      fornada logs @local/echo -f --json
    """
    show = shown_to_a_person if sys.stdout.isatty() else shown
    nothing = True
    query = {"follow": "true"} if follow else {}
    if last is not None:
        query["last"] = str(last)
    try:
        for line in _lines(node, model, query):
            print_json_line(line) if as_json else click.echo(show(line))
            nothing = False
    except KeyboardInterrupt:
        if not follow:
            raise
        return  # how following ends
    if follow:
        raise CommandFailed(f"the node ended the log of {model}: it was stopped or restarted, or the model removed; run it again to go on")
    if nothing and last != 0 and not as_json:
        click.echo(f"{model} has written nothing that is still kept", err=True)


def _lines(node: Node, model: str, query: dict[str, str]) -> Iterator[dict[str, Any]]:
    """A JSON object a line; events where the node is asked to follow."""
    with node.stream("GET", model_path(model, "logs"), model=model, query=query) as answer:
        texts = (data for _, data in answer.events()) if answer.type == "text/event-stream" else answer.lines()
        for text in texts:
            yield from _parsed(text)


def _parsed(text: str) -> Iterator[dict[str, Any]]:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return
    if isinstance(line, dict) and "line" in line:
        yield line


def shown(line: dict[str, Any]) -> str:
    """The time as the node wrote it, the end of the request's id, a mark, the line."""
    return f"{line.get('time', '')} {_request(line)} {_mark(line)} {printable(str(line.get('line', '')))}"


def shown_to_a_person(line: dict[str, Any]) -> str:
    """The same by the clock on the wall, with what isn't the model's own words in the background."""
    words = printable(str(line.get("line", "")))
    head = click.style(f"{_wall_clock(str(line.get('time', '')))} {_request(line)}", dim=True)
    mark = click.style(_mark(line), fg="red" if line.get("stream") == "stderr" else "cyan")
    return f"{head} {mark} {words}"


def _request(line: dict[str, Any]) -> str:
    return f"{printable(str(line.get('request_id') or ''))[-ID_SHOWN:]:<{ID_SHOWN}}"


def _mark(line: dict[str, Any]) -> str:
    return {"stderr": "!", "log": "·"}.get(str(line.get("stream")), " ")


def _wall_clock(time: str) -> str:
    """`14:03:05`, with the day in front where it wasn't today."""
    try:
        then = datetime.fromisoformat(time).astimezone()
    except (ValueError, OverflowError):
        return printable(time)
    today = then.date() == datetime.now(UTC).astimezone().date()
    return then.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S")
