"""docs/reference/commands.md from the command line itself."""

import inspect

import click

from docs.generate.markdown import code, table
from fornada.cli.main import COMMANDS, fornada

INTRODUCTION = """\
# Commands

Every command exits with 0 when it is done, 1 when it was refused or failed, 2 when the command line (or the configuration) is wrong, and 130
when it was interrupted. What went wrong is one line on stderr: what happened, whose fault it is, what to do. Data goes to stdout, progress and
complaints to stderr, so that `fornada … --json | jq` works.

The node is found by `--url`, else `FORNADA_URL`, else the `run/node.json` that the node of this machine wrote, else `http://127.0.0.1:8250`.
`FORNADA_TOKEN` and `FORNADA_ACCOUNT` do the same for `--token` and `--account`; see [settings](settings.md).

`fornada --debug COMMAND` shows the traceback of an error that nobody foresaw.

## Completion

TAB completes commands, options, files and the names of the node's models, once the shell has been told how:

| shell | file | line in it |
|---|---|---|
| bash 4.4 and newer | `~/.bashrc` | `eval "$(_FORNADA_COMPLETE=bash_source fornada)"` |
| zsh | `~/.zshrc`, after `compinit` | `eval "$(_FORNADA_COMPLETE=zsh_source fornada)"` |
| fish | `~/.config/fish/completions/fornada.fish` | `_FORNADA_COMPLETE=fish_source fornada \\| source` |

`fornada` must be on the `PATH` (in a clone: `.venv/bin`).
"""
SHARED = ("url", "token", "account")
"""Options of every command that talks to a node; told once, above."""


def page() -> str:
    parts = [INTRODUCTION]
    context = click.Context(fornada, info_name="fornada")
    for heading, names in COMMANDS.items():
        parts.append(f"## {heading}\n")
        for name in names:
            command = fornada.get_command(context, name)
            assert command is not None
            above = click.Context(command, info_name=name, parent=context)
            parts.append(_section(command, above))
            parts += [_section(below, click.Context(below, info_name=below.name, parent=above)) for below in _below(command)]
    return "\n".join(parts)


def _below(command: click.Command) -> list[click.Command]:
    return list(command.commands.values()) if isinstance(command, click.Group) else []


def _section(command: click.Command, context: click.Context) -> str:
    usage = " ".join(command.collect_usage_pieces(context))
    name = context.command_path.removeprefix("fornada ")
    text, example = _help(command)
    said = [
        f"### {name}\n",
        text + "\n",
        f"```sh\nfornada {name} {usage}\n```\n".replace("[OPTIONS] ", "").replace(" [OPTIONS]", ""),
    ]
    told = SHARED if any(option.name == "url" for option in command.params) else ()
    options = [option for option in command.params if isinstance(option, click.Option) and not option.hidden and option.name not in told]
    if options:
        said.append(table(["option", "meaning"], [_option(option, context) for option in options]))
    said.append(f"```sh\n{example}\n```\n")
    return "\n".join(said)


def _help(command: click.Command) -> tuple[str, str]:
    """(what it does, its example)"""
    text = inspect.cleandoc(command.help or "")
    text, _, example = text.partition("\b\nExample:\n")
    return text.strip(), inspect.cleandoc(example).strip()


def _option(option: click.Option, context: click.Context) -> tuple[str, str]:
    names = ", ".join(sorted(option.opts, key=len))
    takes = "" if option.is_flag else " " + option.make_metavar(context)
    record = option.help or ""
    if option.show_default and option.default is not None:
        record += f"  [default: {option.default}]"
    return code(names + takes), record
