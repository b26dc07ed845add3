"""`fornada doctor`."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fornada.cli.client import Node, with_node
from fornada.cli.failures import CommandFailed, Refused
from fornada.cli.output import hanging, print_json

if TYPE_CHECKING:
    from fornada.app.isolation import Isolation
    from fornada.cli.checks.finding import Finding
    from fornada.cli.checks.machine import Machine

COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


@click.command()
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The data directory to look at.  [default: the running node's, else as for serve]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@with_node
def doctor(node: Node, data_dir: Path | None, as_json: bool) -> None:
    """Look at this machine and say what a node can and can't do on it.

    Works with and without a node. Exit code 1 where something won't work.

    \b
    Example:
      fornada doctor
      fornada doctor --json
    """
    from dataclasses import asdict

    from fornada.app.config import ISOLATION_LEVELS, default_data_dir, environment
    from fornada.app.isolation import describe
    from fornada.cli.address import live_nodes
    from fornada.cli.checks.machine import Machine
    from fornada.keeper.levels import AUTO
    from fornada.node.whole_path import whole_path

    environ = environment()
    running = next((folder for folder, _ in live_nodes(environ)), None)
    where = data_dir or running or Path(environ.get("FORNADA_DATA_DIR") or default_data_dir(environ))
    isolation = describe(wanted if (wanted := environ.get("FORNADA_ISOLATION", "")) in ISOLATION_LEVELS else AUTO)
    found = findings(Machine(environ=environ, data_dir=whole_path(where)), isolation, node)
    if as_json:
        print_json({"isolation": isolation.view(), "findings": [asdict(finding) for finding in found]})
    else:
        _show(found)
    failed = [finding.subject for finding in found if finding.level == "fail"]
    if failed:
        raise CommandFailed(f"this machine can't run a node as it is: {', '.join(failed)}; see above what to do")


def findings(machine: "Machine", isolation: "Isolation", node: Node | None) -> "list[Finding]":
    """Everything, in the order of the printed list."""
    from fornada.cli.checks import capacity, kernel, software, upkeep

    found = [
        *software.python(machine),
        *software.uv(machine),
        *kernel.isolation(isolation),
        *kernel.reach(machine, isolation),
        *kernel.release(machine),
        *kernel.features(isolation),
        *capacity.devices(machine),
        *capacity.disk(machine),
        *capacity.limits(machine),
        *capacity.clock(machine),
        *software.network(machine),
        *upkeep.keys(machine),
        *upkeep.backups(machine),
        *upkeep.certificate(machine),
    ]
    return found if node is None else [*found, *_node(node)]


def _node(node: Node) -> "Iterable[Finding]":
    from fornada.cli.checks.finding import ok, warn
    from fornada.cli.commands.nodes import listed
    from fornada.core.errors import Unauthorized

    try:
        nodes = listed(node.get("/api/v1/nodes"))
    except CommandFailed as failure:
        if isinstance(failure, Refused) and failure.code == Unauthorized.code:
            # It does what it should: only that this user's key is none of an administrator's, or isn't there.
            yield ok(
                "node", f"one answers at {node.url}, and tells of itself to administrators", "set FORNADA_TOKEN to such a key to see more"
            )
            return
        what, _, advice = failure.message.partition("; ")
        yield warn("node", what, advice)
        return
    for entry in nodes:
        yield ok("node", f"{entry.get('version', 'unknown version')} at {entry.get('url', node.url)}, isolation {entry.get('isolation')}")


def _show(found: "list[Finding]") -> None:
    width = max(len(finding.subject) for finding in found)
    for finding in found:
        level = click.style(f"{finding.level:<4}", fg=COLOURS[finding.level], bold=finding.level != "ok")
        click.echo(f"{level}  {finding.subject:<{width}}  {hanging(finding.seen, indent=width + 8)}")
        if finding.advice:
            click.echo(f"      {'':<{width}}  -> {hanging(finding.advice, indent=width + 11)}")
