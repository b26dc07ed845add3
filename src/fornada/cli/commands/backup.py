"""`fornada backup`."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from fornada.cli.commands.keys import data_dir_option, json_option, meant
from fornada.cli.failures import CommandFailed
from fornada.cli.output import print_json


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace FILE where there is one.")
@data_dir_option
@json_option
def backup(file: Path, force: bool, data_dir: Path | None, as_json: bool) -> None:
    """Write a copy of the node's store to FILE, while the node runs or not.

    It holds what the node can't get again: keys, which models are deployed and in which versions, jobs with their inputs and answers, files,
    usage. The folders of deployed models lie beside the store, in DATA_DIR/bundles: copy them too.

    \b
    Example:
      fornada backup /backups/fornada-$(date +%F).sqlite
    """
    from fornada.app.backup import backup as back_up
    from fornada.app.backup import outside
    from fornada.core.resources import format_size
    from fornada.store.backup import BackupRefused

    folder = data_dir or meant()
    try:
        with _bar(quiet=as_json) as told:
            contents = back_up(folder, file, replace=force, told=told)
    except BackupRefused as refusal:
        raise CommandFailed(str(refusal)) from None
    beside = [str(path) for path in outside(folder)]
    if as_json:
        print_json({"file": str(file), "bytes": contents.bytes, "schema": contents.schema, "keys": contents.keys, "beside": beside})
        return
    click.echo(f"wrote {file}: {format_size(contents.bytes)}, keys: {contents.keys}, jobs that aren't done: {contents.jobs}")
    if beside:
        click.echo(f"not in it: {', '.join(beside)}; copy them too", err=True)


@contextlib.contextmanager
def _bar(*, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    if quiet or not sys.stderr.isatty():
        yield lambda done, of: None
        return
    with click.progressbar(length=1, label="copying", file=sys.stderr) as bar:

        def told(done: int, of: int) -> None:
            bar.length = of
            bar.update(done - bar.pos)

        yield told
