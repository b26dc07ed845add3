"""`fornada why`."""

from collections.abc import Iterator
from typing import Any

import click

from fornada.cli.client import Node, model_path, with_node
from fornada.cli.completion import model_names
from fornada.cli.output import bytes_text, hanging, print_json, version_digits
from fornada.cli.printable import printable


@click.command()
@click.argument("model", shell_complete=model_names)
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
    click.echo(
        hanging(printable(f"{found.get('model', model)} ({found.get('state')}): {found.get('summary') or 'no more is known'}"), indent=0)
    )
    for key, value in found.items():
        if key not in ("model", "state", "summary") and not _says_nothing(value):
            for line in _lines(key, value, 0):
                text = printable(line)
                indent = len(text) - len(text.lstrip(" -"))
                click.echo(text[:indent] + hanging(text[indent:], indent=indent))


def _lines(key: str, value: Any, depth: int) -> Iterator[str]:
    """Any JSON value as indented text."""
    indent, name = "  " * depth, _name(key)
    if isinstance(value, dict) and not any(isinstance(item, dict | list) for item in value.values()):
        yield f"{indent}{name}: {_told(value)}"
    elif isinstance(value, dict):
        yield f"{indent}{name}:"
        for inner, item in value.items():
            if not _says_nothing(item):
                yield from _lines(str(inner), item, depth + 1)
    elif isinstance(value, list):
        yield f"{indent}{name}:"
        for item in value:
            if isinstance(item, dict):
                yield f"{indent}  - {_told(item)}"
            else:
                yield f"{indent}  - {item}"
    else:
        yield f"{indent}{name}: {_text(key, value)}"


def _told(table: dict[str, Any]) -> str:
    """`state ok, total 22.8 GiB`: what has something to say, on one line."""
    told = {key: value for key, value in table.items() if not _says_nothing(value) and not (key.endswith("_bytes") and value == 0)}
    return ", ".join(f"{_name(key)} {_text(key, value)}" for key, value in told.items())


def _name(key: str) -> str:
    return key.removesuffix("_bytes").removesuffix("_s").replace("_", " ")


def _says_nothing(value: Any) -> bool:
    """Nothing, no, or a table of such."""
    if isinstance(value, dict):
        return all(_says_nothing(item) for item in value.values())
    return value is None or value is False or value in ("", [])


def _text(key: str, value: Any) -> str:
    if key == "version":
        return version_digits(str(value))
    if key.endswith("_s") and isinstance(value, int | float):
        return f"{value:.3g} s"
    return bytes_text(value) if key.endswith("_bytes") else str(value)
