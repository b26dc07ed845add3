"""`fornada nodes`."""

from typing import Any

import click

from fornada.cli.client import Node, with_node
from fornada.cli.output import print_json, print_table


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print what the API answers.")
@with_node
def nodes(node: Node, as_json: bool) -> None:
    """Show the node: its address, its processes, how models are confined.

    \b
    Example:
      fornada nodes
    """
    answer = node.get("/api/v1/nodes")
    if as_json:
        print_json(answer)
        return
    columns = ["url", "version", "isolation", "account", "main pid", "keeper pid", "control pid"]
    print_table(
        columns, [[str(entry.get(column.replace(" ", "_"), "-")) for column in columns] for entry in listed(answer)], empty="no node"
    )


def listed(answer: Any) -> list[dict[str, Any]]:
    """The nodes of `GET /api/v1/nodes`."""
    found = answer.get("nodes") if isinstance(answer, dict) else None
    return [entry for entry in found or [] if isinstance(entry, dict)]
