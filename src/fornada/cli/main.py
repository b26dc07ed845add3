"""The `fornada` command: finds the subcommand that was named, and turns whatever goes wrong into one line and an exit code.

    0    it is done            1    refused or failed
    2    the command line is wrong            130    interrupted

Subcommands are imported when they are called (or listed), and import what is slow when they run: `fornada --help` must not
wait for an HTTP client.
"""

import difflib
import errno
import importlib
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any, NoReturn

import click

from fornada import __version__
from fornada.cli.completion import register
from fornada.cli.failures import REPORT_TO, one_line

COMMANDS: dict[str, tuple[str, ...]] = {
    "Node": ("serve", "doctor", "nodes", "unfence", "prune", "backup", "restore", "simulate"),
    "Models": ("models", "run", "batch", "deploy", "versions", "rm"),
    "Life": ("load", "unload", "sleep", "pin", "reset"),
    "Watch": ("ps", "top", "logs", "why"),
    "Access": ("keys", "usage"),
}
"""Heading of the help -> names; each is found in fornada.cli.commands, in the module of its name or that of MODULES."""

MODULES = {"load": "life", "unload": "life", "sleep": "life", "pin": "life", "reset": "life"}
INTERRUPTED = 130
USED_UP = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.ENOMEM, errno.EMFILE, errno.ENFILE})


class Fornada(click.Group):
    """A group that imports a command when it is asked for, and says every error in one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for names in COMMANDS.values() for name in names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"fornada.cli.commands.{MODULES.get(cmd_name, cmd_name)}")
        command = getattr(module, cmd_name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None and not ctx.resilient_parsing:
            near = difflib.get_close_matches(name, self.list_commands(ctx), n=1)
            raise click.UsageError(f"no such command '{name}'" + (f"; did you mean '{near[0]}'?" if near else ""), ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, names in COMMANDS.items():
            with formatter.section(heading):
                formatter.write_dl([(name, self.get_command(ctx, name).get_short_help_str(90)) for name in names])  # type: ignore[union-attr]

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any) -> Any:  # type: ignore[override]
        """As click's, but an error is one line, and only that."""
        if not extra.pop("standalone_mode", True):
            return super().main(args, prog_name, standalone_mode=False, **extra)
        try:
            code = super().main(args, prog_name, standalone_mode=False, **extra)
        except click.exceptions.NoArgsIsHelpError as error:
            names = ", ".join(error.ctx.command.list_commands(error.ctx)) if isinstance(error.ctx.command, click.Group) else ""
            path = error.ctx.command_path
            click.echo(f"{path}: say what to do: {names}; see '{path} --help'", err=True)
            code = error.exit_code
        except click.UsageError as error:
            path = error.ctx.command_path if error.ctx else "fornada"
            click.echo(f"{path}: {one_line(error.format_message()).rstrip('.')}; see '{path} --help'", err=True)
            code = error.exit_code
        except click.ClickException as error:
            error.show()
            code = error.exit_code
        except click.Abort:
            click.echo("fornada: interrupted", err=True)
            code = INTERRUPTED
        sys.exit(code if isinstance(code, int) else 0)


@click.group(cls=Fornada, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}, no_args_is_help=False)
@click.version_option(__version__, message="fornada %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of an unexpected error.")
def fornada(debug: bool) -> None:
    """Serve many models on machines of your own, and talk to the node that does.

    \b
    Example:
      fornada serve
      fornada run MODEL -i key=value

    A node is found by --url behind the command, FORNADA_URL, or what the node of this machine wrote into its data directory.
    """
    if not debug:
        sys.excepthook = _one_line_for_the_unexpected


def main() -> NoReturn:
    """The entry point."""
    register()
    fornada.main(prog_name="fornada")
    raise AssertionError("click's main exits")


def _one_line_for_the_unexpected(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """sys.excepthook: what no command foresaw is a bug, and is called one, unless the machine has no more of something."""
    if isinstance(error, OSError) and error.errno in USED_UP:
        where = one_line(str(error.filename)) if error.filename else "what is printed"
        click.echo(f"fornada: can't write or open {where}: {error.strerror}; make room and try again", err=True)
        return
    what = one_line(f"{kind.__name__}: {error}")
    click.echo(
        f"fornada: unexpected {what}; this is a bug in Fornada: report it to {REPORT_TO} with the output of 'fornada --debug ...'", err=True
    )
