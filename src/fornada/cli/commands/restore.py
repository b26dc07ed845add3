"""`fornada restore`."""

from pathlib import Path

import click

from fornada.cli.commands.keys import data_dir_option, json_option, meant
from fornada.cli.failures import CommandFailed
from fornada.cli.output import print_json

NAMED = 3
"""Missing folders that are told by name."""


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@data_dir_option
@json_option
def restore(file: Path, data_dir: Path | None, as_json: bool) -> None:
    """Make FILE, which 'fornada backup' wrote, the store of a data directory on which no node runs.

    FILE is looked through before anything is touched: a damaged one, and one of a newer release, is refused. The store that was there is
    kept beside it. What happened since the backup is as if it had not: keys that were revoked since are valid again.

    \b
    Example:
      fornada restore /backups/fornada-2027-01-31.sqlite --data-dir /var/lib/fornada
    """
    from fornada.app.backup import restore as put_back
    from fornada.core.resources import format_size
    from fornada.store.backup import BackupRefused

    folder = data_dir or meant()
    try:
        done = put_back(file, folder)
    except BackupRefused as refusal:
        raise CommandFailed(str(refusal)) from None
    contents = done.contents
    if as_json:
        print_json(
            {
                "data_dir": str(folder),
                "kept": str(done.kept) if done.kept else None,
                "keys": contents.keys,
                "jobs": contents.jobs,
                "missing": list(done.missing),
            }
        )
        return
    click.echo(f"restored {folder}: {format_size(contents.bytes)}, keys: {contents.keys}, jobs that aren't done: {contents.jobs}")
    if done.kept:
        click.echo(f"the store that was there is kept as {done.kept}")
    if not contents.keys:
        click.echo("no key is in it: see 'fornada keys list' before you start the node", err=True)
    if done.missing:
        names = ", ".join(done.missing[:NAMED]) + (f" and {len(done.missing) - NAMED} more" if len(done.missing) > NAMED else "")
        click.echo(f"missing in {folder}: {names}; copy them from where the backup was made, or deploy the models again", err=True)
