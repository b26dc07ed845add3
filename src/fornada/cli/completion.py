"""What TAB offers: commands and options by click, names of models by the node, and bash's own idea of a word put right."""

from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class, split_arg_string

if TYPE_CHECKING:
    from collections.abc import Mapping

PATIENCE_S = 1.0
"""Who presses TAB doesn't wait for a node that is slow or isn't there."""

BASH = """\
%(complete_func)s() {
    local IFS=$'\\n' completion type value
    for completion in $(env COMP_WORDS="${COMP_LINE:0:COMP_POINT}" COMP_CWORD=-1 COMP_BREAKS="$COMP_WORDBREAKS" %(complete_var)s=bash_complete $1); do
        IFS=',' read -r type value <<< "$completion"
        case $type in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class Bash(BashComplete):
    """Reads the line itself: bash hands over `@cf/a:b` in pieces, because `@` and `:` end a word for it."""

    source_template = BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        line = _environ()["COMP_WORDS"]
        words = split_arg_string(line)
        incomplete = "" if not words or line[-1:].isspace() else words.pop()
        return words[1:], incomplete

    def format_completion(self, item: CompletionItem[Any]) -> str:
        # Readline replaces what follows the last break only. It keeps an `@` in front with its word, unlike the others.
        typed = self.get_completion_args()[1]
        breaks = [character for character in _environ().get("COMP_BREAKS", "") if character in ":="]
        kept = max((typed.rfind(character) for character in breaks), default=-1) + 1
        return f"{item.type},{item.value[kept:] if item.value.startswith(typed) else item.value}"


def register() -> None:
    """Makes bash's completion ours; zsh and fish keep click's, which split words as people do."""
    add_completion_class(Bash)


def model_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Names and aliases of the node's models; none where no node answers in time."""
    from fornada.cli.address import resolve
    from fornada.cli.client import Node
    from fornada.cli.failures import CommandFailed

    environ = _environ()
    given = {key: ctx.params.get(key) or environ.get(f"FORNADA_{key.upper()}") for key in ("url", "account", "token")}
    try:
        with Node(resolve(**given, environ=environ), patience_s=PATIENCE_S) as node:
            listed = node.get("/api/v1/models").get("models", [])
    except (CommandFailed, click.UsageError):
        return []
    names = sorted({name for found in listed for name in (found["name"], *(found.get("aliases") or []))})
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _environ() -> "Mapping[str, str]":
    from fornada.app.config import environment

    return environment()
