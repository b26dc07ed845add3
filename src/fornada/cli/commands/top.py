"""`fornada top`."""

import sys
import time
from typing import Any

import click

from fornada.cli import rates, screen
from fornada.cli.client import Node, with_node
from fornada.cli.commands.ps import SAMPLE_S, add_rates, reading
from fornada.cli.keys import quit_within, unseen
from fornada.cli.numbers import Finite
from fornada.cli.output import print_json, terminal_width


@click.command()
@click.option("--once", is_flag=True, help="Print one look and end, as it does where stdout is no terminal.")
@click.option("--every", type=Finite(min=0.2), default=2.0, show_default=True, metavar="S", help="Seconds between two looks.")
@click.option("--json", "as_json", is_flag=True, help="Print one look as JSON.")
@with_node
def top(node: Node, once: bool, every: float, as_json: bool) -> None:
    """Show who holds memory and why, who waits for it, and who had to go; again and again, until q or Ctrl-C.

    A device's bar shows what models use of it, what they were promised beyond that, what others hold, and what is coming back from processes
    that are gone. Charged is what a model's place counts for, because that much was declared, learned by measuring, or is held live. Value is
    what its next step down would cost, in seconds of swapping a second: the lowest goes first. Kept ones never go.

    \b
    Example:
      fornada top
      fornada top --every 1
      fornada top --once
      fornada top --json
    """
    before = reading(node)
    if once or as_json or not sys.stdout.isatty():
        time.sleep(SAMPLE_S)  # requests per second need two readings
        found = _look(node)
        add_rates(found["instances"], before, reading(node))
        if as_json:
            print_json(found)
            return
        width = terminal_width() if sys.stdout.isatty() else None
        for line in screen.lines(found, title=_title(node), width=width, height=None):
            click.echo(screen.plain(line))
        return
    try:
        _show(node, every, before)
    except KeyboardInterrupt:
        return  # how top ends


def _show(node: Node, every: float, before: rates.Reading) -> None:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    console = Console(highlight=False)
    wait_s = SAMPLE_S
    with unseen(), Live(console=console, screen=True, auto_refresh=False) as live:
        while not quit_within(wait_s):
            found, after = _look(node), reading(node)
            add_rates(found["instances"], before, after)
            before, wait_s = after, every
            shown = screen.lines(found, title=f"{_title(node)}  q quits", width=console.width, height=console.height)
            live.update(Group(*(Text.assemble(*line, no_wrap=True) for line in shown)), refresh=True)


def _title(node: Node) -> str:
    return f"{node.url}  {time.strftime('%H:%M:%S')}"


def _look(node: Node) -> dict[str, Any]:
    """Never less than the keys that are shown, whatever the node leaves out."""
    empty: dict[str, Any] = {"instances": [], "waits": [], "evictions": [], "swap": {}}
    return {"devices": node.get("/api/v1/devices").get("devices", []), **empty, **node.get("/api/v1/residency")}
