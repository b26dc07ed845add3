"""`fornada models`."""

from typing import Any
from urllib.parse import quote

import click

from fornada.cli.client import Node, with_node
from fornada.cli.completion import model_names
from fornada.cli.failures import CommandFailed
from fornada.cli.output import ago, bytes_text, key_values, print_json, print_table, shorten, version_digits

SPARE = ("version", "engine", "last used", "memory", "task")
"""Columns that a narrow terminal goes without, the first one first."""


@click.command()
@click.argument("model", required=False, shell_complete=model_names)
@click.option("--json", "as_json", is_flag=True, help="Print what the API answers.")
@with_node
def models(node: Node, model: str | None, as_json: bool) -> None:
    """List the models of the node, or show one.

    Memory is the most that was seen, or what the model declares (≤) where it has not run yet. A narrow terminal
    shows fewer columns; --json has everything.

    \b
    Example:
      fornada models
      fornada models @local/echo
    """
    if model:
        found = node.model(model)
        print_json(found) if as_json else _show(found, _input(node, model))
        return
    answer = node.get("/api/v1/models")
    if as_json:
        print_json(answer)
        return
    columns = ["name", "task", "engine", "version", "state", "memory", "last used"]
    print_table(
        columns, [_row(found) for found in answer.get("models", [])], empty="no models yet; 'fornada deploy DIR' adds one", spare=SPARE
    )


def memory(found: dict[str, Any]) -> str:
    """The most that was measured; where nothing was, the declared bound as `≤512 MiB`."""
    return bytes_text(found.get("peak_bytes")) if found.get("peak_bytes") else f"≤{bytes_text(found.get('declared_bytes'))}"


def _row(found: dict[str, Any]) -> list[str]:
    name = found["name"] + (" (pinned)" if found.get("pinned") else "")
    version = version_digits(found.get("version"))
    return [name, found["task"], found["engine"], version, found["state"], memory(found), ago(found.get("last_used"))]


def _input(node: Node, model: str) -> str:
    """What a request holds, from the model's JSON Schema."""
    try:
        answer = node.get(f"/client/v4/accounts/{quote(node.account, safe='')}/ai/models/schema", query={"model": model})
        schema = answer["result"]["input"]
        properties = schema.get("properties") or {}
    except (CommandFailed, KeyError, TypeError, AttributeError):
        return ""  # what was asked for is the model; this is a help beside it
    if not properties:
        return str(schema.get("description") or "")
    required = schema.get("required") or []
    return ", ".join(f"{name} (required)" if name in required else name for name in properties)


def _show(found: dict[str, Any], takes: str) -> None:
    key_values(
        {
            "name": found["name"],
            "aliases": ", ".join(found.get("aliases") or []),
            "description": found.get("description"),
            "task": found["task"],
            "input": takes,
            "engine": found["engine"],
            "version": found.get("version"),
            "versions": len(found.get("versions") or []),
            "account": found.get("account"),
            "visibility": found.get("visibility"),
            "state": found["state"] + (f" ({shorten(found['why'], 200)})" if found.get("why") else ""),
            "pinned": "yes" if found.get("pinned") else "",
            "memory": f"{bytes_text(found.get('declared_bytes'))} declared, {bytes_text(found.get('peak_bytes'))} at most seen",
            "last used": ago(found.get("last_used")),
            "instances": len(found.get("instances") or []),
        }
    )
