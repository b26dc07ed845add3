"""A stream on the terminal, item by item as it comes."""

import json
from typing import Any

import click

from fornada.cli.answers.tables import piece, shown
from fornada.cli.client import Stream
from fornada.cli.failures import CommandFailed, refusal
from fornada.cli.output import print_json_line


def show_stream(items: Stream, model: str, as_json: bool) -> None:
    """Texts continue their line, other items have one of their own; as JSON each is a line. Raises CommandFailed where it breaks."""
    line_open = complete = False
    for name, data in items.events():
        if data == "[DONE]":
            complete = True
            break
        item = _item(data)
        if name == "error" or (isinstance(item, dict) and set(item) & {"error", "errors"} and item.get("success") is False):
            if line_open:
                click.echo()
            raise _broken(item, model)
        if as_json:
            print_json_line(item)
            continue
        text, continues = piece(item)
        if line_open and not continues:
            click.echo()
        click.echo(shown(text), nl=not continues)
        line_open = continues
    if line_open:
        click.echo()
    if not complete:
        raise CommandFailed(
            f"the stream ended before the model had finished (the node's fault, or the network's); 'fornada logs {model}' may say more"
        )


def _item(data: str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return data


def _broken(item: Any, model: str) -> CommandFailed:
    if isinstance(item, dict):
        errors = item.get("errors")
        first = errors[0] if isinstance(errors, list) and errors else item.get("error", item)
        if isinstance(first, dict):
            return refusal(first, model=model)
    return CommandFailed(f"the stream broke: {item}; 'fornada logs {model}' may say more")
