"""`fornada usage`."""

from typing import Any

import click

from fornada.cli.client import Node, with_node
from fornada.cli.output import print_json, print_table


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print what the API answers.")
@with_node
def usage(node: Node, as_json: bool) -> None:
    """Show what was used: requests, tokens, seconds and neurons by day, account, key and model.

    \b
    Example:
      fornada usage
    """
    answer = node.get("/api/v1/usage")
    if as_json:
        print_json(answer)
        return
    rows = [_row(entry) for entry in answer.get("usage") or []]
    columns = ["day", "account", "key", "model", "requests", "tokens in", "tokens out", "seconds", "neurons"]
    print_table(columns, rows, empty="nothing was used yet", spare=["key"])


def _row(entry: dict[str, Any]) -> list[str]:
    return [
        str(entry["day"]),
        str(entry["account"]),
        str(entry["key"] or "-"),
        str(entry["model"]),
        str(entry["requests"]),
        str(entry["input_tokens"]),
        str(entry["output_tokens"]),
        f"{entry['device_seconds']:.3f}",
        f"{entry['neurons']:.3f}",
    ]
