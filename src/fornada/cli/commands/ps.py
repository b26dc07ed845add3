"""`fornada ps | top`."""

import time
from typing import Any

import click

from fornada.cli import rates
from fornada.cli.client import Node, with_node
from fornada.cli.output import bytes_text, print_json, print_table

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
    before = _reading(node)
    found = _instances(node)
    if any(instance["state"] == "ready" for instance in found):
        time.sleep(SAMPLE_S)  # requests per second need two readings
    _add_rates(found, before, _reading(node))
    if as_json:
        print_json({"instances": found})
    else:
        print_table(COLUMNS, [_row(instance) for instance in found], empty="nothing runs; 'fornada models' shows what could", spare=SPARE)


@click.command()
@click.option("--every", type=click.FloatRange(min=0.2), default=2.0, show_default=True, metavar="S", help="Seconds between two looks.")
@with_node
def top(node: Node, every: float) -> None:
    """Show what `ps` shows, again and again, until interrupted.

    \b
    Example:
      fornada top
      fornada top --every 1
    """
    before = _reading(node)
    try:
        while True:
            time.sleep(every)
            found, after = _instances(node), _reading(node)
            _add_rates(found, before, after)
            before = after
            click.clear()
            click.echo(f"{node.url}  {time.strftime('%H:%M:%S')}")
            print_table(COLUMNS, [_row(instance) for instance in found], empty="nothing runs", spare=SPARE)
    except KeyboardInterrupt:
        return  # how top ends


def _instances(node: Node) -> list[dict[str, Any]]:
    return [
        {"model": model["name"], "declared_bytes": model.get("declared_bytes"), **instance}
        for model in node.get("/api/v1/models").get("models", [])
        for instance in model.get("instances") or []
    ]


def _reading(node: Node) -> rates.Reading:
    return rates.read(node.text("/metrics"), now=time.monotonic())


def _add_rates(found: list[dict[str, Any]], before: rates.Reading, after: rates.Reading) -> None:
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
        _milliseconds(instance.get("p50_s")),
        _milliseconds(instance.get("p99_s")),
    ]


def _milliseconds(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1000:.3g} ms" if seconds < 0.9995 else f"{seconds:.3g} s"
