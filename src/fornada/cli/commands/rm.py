"""`fornada rm`."""

import sys

import click

from fornada.cli.client import Node, model_path, with_node
from fornada.cli.completion import model_names
from fornada.cli.failures import CommandFailed


@click.command()
@click.argument("model", metavar="MODEL[:VERSION]", shell_complete=model_names)
@click.option("--yes", "-y", is_flag=True, help="Don't ask. Without a terminal nobody is asked either.")
@with_node
def rm(node: Node, model: str, yes: bool) -> None:
    """Remove a model, or one version of it, with its processes.

    \b
    Example:
      fornada rm @local/echo
      fornada rm @local/echo:3f1c0a9b2d4e --yes
    """
    if not yes and sys.stdin.isatty():
        found = node.model(model)
        count = len(found.get("versions") or [])
        question = f"Remove {model} ({count} version{'' if count == 1 else 's'}, {found.get('state')})?"
        if not click.confirm(question, err=True):
            raise CommandFailed("nothing was removed")
    node.delete(model_path(model), model=model)
    click.echo(f"{model}: removed")
