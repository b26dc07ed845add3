"""`fornada prune`."""

import os
from pathlib import Path
from typing import Any

import click

from fornada.cli.address import data_dirs
from fornada.cli.client import Node, NoNode, with_node
from fornada.cli.failures import CommandFailed
from fornada.cli.output import print_json
from fornada.cli.paths import unreachable


@click.command()
@click.option("--data-dir", type=click.Path(path_type=Path), metavar="DIR", help="Prune this data directory; no node may be running on it.")
@click.option("--json", "as_json", is_flag=True, help="Print what was freed as JSON.")
@with_node
def prune(node: Node, data_dir: Path | None, as_json: bool) -> None:
    """Delete environments, artifacts and bundles that no model uses any more.

    A running node does it itself; without one the data directory is pruned where it lies.

    \b
    Example:
      fornada prune
      fornada prune --data-dir /srv/models
    """
    from fornada.core.resources import format_size

    done = _offline(data_dir) if data_dir else _by_the_node(node)
    if as_json:
        print_json(done)
        return
    for kind, count in (done.get("removed") or {}).items():
        click.echo(f"removed {count} of {kind}")
    click.echo(f"freed {format_size(int(done.get('freed_bytes') or 0))}")


def _by_the_node(node: Node) -> dict[str, Any]:
    try:
        done: dict[str, Any] = node.post("/api/v1/prune")
    except NoNode:
        if node.chosen:
            raise
        from fornada.app.config import environment

        present = [folder for folder in data_dirs(environment()) if os.path.isdir(folder)]
        if not present:
            raise
        return _offline(present[0])
    return done


def _offline(folder: Path) -> dict[str, Any]:
    if not os.path.isdir(folder):
        raise CommandFailed(f"{folder}: {unreachable(folder) or 'not a folder'}; --data-dir names the data directory of a node")
    from fornada.app.prune import prune as prune_data_dir
    from fornada.core.errors import FornadaError

    try:
        return dict(prune_data_dir(folder))
    except (FornadaError, OSError) as error:
        raise CommandFailed(f"{folder} can't be pruned: {error}") from None
