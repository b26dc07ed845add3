"""`fornada versions`."""

from typing import Any

import click

from fornada.cli.client import Node, with_node
from fornada.cli.completion import model_names
from fornada.cli.output import ago, print_json, print_table, version_digits


@click.command()
@click.argument("model", shell_complete=model_names)
@click.option("--json", "as_json", is_flag=True, help="Print the versions as the API describes them.")
@with_node
def versions(node: Node, model: str, as_json: bool) -> None:
    """List the versions of a model and what they are labelled.

    \b
    Example:
      fornada versions @local/echo
    """
    found = node.model(model)
    listed = [_version(entry) for entry in found.get("versions") or []]
    if as_json:
        print_json({"name": found["name"], "versions": listed})
        return
    rows = [
        [
            version_digits(entry.get("version")),
            _labels(entry),
            entry.get("state") or "-",
            ago(entry.get("created")) if entry.get("created") else "-",
        ]
        for entry in listed
    ]
    print_table(["version", "label", "state", "created"], rows, empty="no versions")


def _version(entry: Any) -> dict[str, Any]:
    return entry if isinstance(entry, dict) else {"version": str(entry)}


def _labels(entry: dict[str, Any]) -> str:
    return ", ".join(entry.get("labels") or []) or "-"
