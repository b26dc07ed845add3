"""`fornada logs`."""

import json
from collections.abc import Iterator
from typing import Any

import click

from fornada.cli.client import Node, model_path, with_node
from fornada.cli.failures import CommandFailed
from fornada.cli.output import print_json_line
from fornada.cli.printable import printable

ID_SHOWN = 8


@click.command()
@click.argument("model")
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
    query = {"follow": "true"} if follow else {}
    if last is not None:
        query["last"] = str(last)
    try:
        for line in _lines(node, model, query):
            print_json_line(line) if as_json else click.echo(_shown(line))
    except KeyboardInterrupt:
        if not follow:
            raise
        return  # how following ends
    if follow:
        raise CommandFailed(f"the node ended the log of {model}: it was stopped or restarted, or the model removed; run it again to go on")


def _lines(node: Node, model: str, query: dict[str, str]) -> Iterator[dict[str, Any]]:
    """A JSON object a line; events where the node is asked to follow."""
    with node.stream("GET", model_path(model, "logs"), model=model, query=query) as answer:
        texts = (data for _, data in answer.events()) if answer.type == "text/event-stream" else answer.lines()
        for text in texts:
            yield from _parsed(text)


def _parsed(text: str) -> Iterator[dict[str, Any]]:
    try:
        line = json.loads(text)
    except ValueError:
        return
    if isinstance(line, dict) and "line" in line:
        yield line


def _shown(line: dict[str, Any]) -> str:
    request = str(line.get("request_id") or "")
    mark = {"stderr": "!", "log": "·"}.get(str(line.get("stream")), " ")
    return f"{line.get('time', '')} {request[:ID_SHOWN]:<{ID_SHOWN}} {mark} {printable(str(line.get('line', '')))}"
