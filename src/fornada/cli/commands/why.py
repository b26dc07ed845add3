"""`fornada why`."""

from collections.abc import Iterator
from typing import Any

import click

from fornada.cli.client import Node, model_path, with_node
from fornada.cli.output import bytes_text, print_json, version_digits
from fornada.cli.printable import printable


@click.command()
@click.argument("model")
@click.option("--json", "as_json", is_flag=True, help="Print what the API answers.")
@with_node
def why(node: Node, model: str, as_json: bool) -> None:
    """Say why a model is loaded or not: the memory, the queue, the last failure.

    \b
    Example:
      fornada why @local/echo
    """
    found = node.get(model_path(model, "why"))
    if as_json:
        print_json(found)
        return
    click.echo(printable(f"{found.get('model', model)} ({found.get('state')}): {found.get('summary') or 'no more is known'}"))
    for key, value in found.items():
        if key not in ("model", "state", "summary") and not _says_nothing(value):
            for line in _lines(key, value, 0):
                click.echo(printable(line))


def _lines(key: str, value: Any, depth: int) -> Iterator[str]:
    """Any JSON value as indented text."""
    indent, name = "  " * depth, key.replace("_", " ")
    if isinstance(value, dict):
        yield f"{indent}{name}:"
        for inner, item in value.items():
            if not _says_nothing(item):
                yield from _lines(str(inner), item, depth + 1)
    elif isinstance(value, list):
        yield f"{indent}{name}:"
        for item in value:
            if isinstance(item, dict):
                told = {inner: field for inner, field in item.items() if not _says_nothing(field)}
                yield f"{indent}  - " + ", ".join(f"{inner.replace('_', ' ')} {_text(inner, field)}" for inner, field in told.items())
            else:
                yield f"{indent}  - {item}"
    else:
        yield f"{indent}{name}: {_text(key, value)}"


def _says_nothing(value: Any) -> bool:
    """Nothing, no, or a table of such."""
    if isinstance(value, dict):
        return all(_says_nothing(item) for item in value.values())
    return value is None or value is False or value in ("", [])


def _text(key: str, value: Any) -> str:
    if key == "version":
        return version_digits(str(value))
    return bytes_text(value) if key.endswith("_bytes") else str(value)
