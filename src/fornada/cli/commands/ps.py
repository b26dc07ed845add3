"""`fornada ps`."""

import time
from typing import Any

import click

from fornada.cli import rates
from fornada.cli.client import Node, with_node
from fornada.cli.output import bytes_text, print_json, print_table
from fornada.cli.screen import duration

SAMPLE_S = 0.5
COLUMNS = ("model", "pid", "state", "device", "declared", "measured", "in flight", "queued", "rps", "p50", "p99")
SPARE = ("declared", "device", "p50", "queued", "rps", "in flight")
"""Columns that a narrow terminal goes without, the first one first."""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the instances as JSON, with rps, p50_s and p99_s.")
@with_node
def ps(node: Node, as_json: bool) -> None:
    """Show the instances that run: their process, device, memory, queue and speed.

    Measured is the resident memory, with pages that several processes share. The times are of whole requests to the model, waiting
    and loading included: of those in the last half second, else of all since the node's control plane started, to the nearest
    bound of a histogram or two.

    \b
    Example:
      fornada ps
      fornada ps --json
    """
    before = reading(node)
    found = _instances(node)
    if any(instance["state"] == "ready" for instance in found):
        time.sleep(SAMPLE_S)  # requests per second need two readings
    add_rates(found, before, reading(node))
    if as_json:
        print_json({"instances": found})
    else:
        print_table(COLUMNS, [_row(instance) for instance in found], empty="nothing runs; 'fornada models' shows what could", spare=SPARE)


def _instances(node: Node) -> list[dict[str, Any]]:
    return [
        {"model": model["name"], "declared_bytes": model.get("declared_bytes"), **instance}
        for model in node.get("/api/v1/models").get("models", [])
        for instance in model.get("instances") or []
    ]


def reading(node: Node) -> rates.Reading:
    """Of the node's metrics, now."""
    return rates.read(node.text("/metrics"), now=time.monotonic())


def add_rates(found: list[dict[str, Any]], before: rates.Reading, after: rates.Reading) -> None:
    """To each instance what its model did between the two."""
    for instance in found:
        instance.update(rates.between(before, after, instance["model"])._asdict())


def _row(instance: dict[str, Any]) -> list[str]:
    rps = instance.get("rps")
    return [
        instance["model"],
        str(instance.get("pid") or "-"),
        f"{instance.get('state')}{', parked' if instance.get('parked') else ''}",
        str(instance.get("device") or "-"),
        bytes_text(instance.get("declared_bytes")),
        bytes_text(instance.get("resident_bytes")),
        str(instance.get("in_flight", "-")),
        str(instance.get("queued", "-")),
        "-" if rps is None else f"{rps:.1f}",
        duration(instance.get("p50_s")),
        duration(instance.get("p99_s")),
    ]
