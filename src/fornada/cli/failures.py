"""What goes wrong, in one line: what happened, whose fault it is, what to do."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import click

from fornada.cli.printable import printable

REPORT_TO = "the issue tracker of Fornada"

CALLER = "the request's fault"
NODE = "the node's fault, for now"
FOLDER = "the model folder's fault"
AUTHOR = "the model's fault"
BUG = "a bug in Fornada"

ADVICE: dict[int, str] = {
    5006: "mend the input; 'fornada models MODEL' shows what the model takes",
    5007: "'fornada models' lists what there is",
    5010: "mend the folder and deploy again",
    5018: "set FORNADA_ACCOUNT to the account that owns it",
    3006: "send less, or raise the limit",
    3036: "wait for the next day (UTC), or ask the node's administrator for more",
    3040: "try again",
    3046: "try again with more time; 'fornada why MODEL' says what it waited for",
    3100: "try again",
    3101: "'fornada logs MODEL' shows what it said last",
    3102: "'fornada logs MODEL' and 'fornada why MODEL' show more; mend what they name, then 'fornada reset MODEL' tries at once",
    3103: "'fornada logs MODEL' has the traceback",
    3104: "ask for less memory in model.toml, or give the device more",
    3106: "try again",
    3105: "call the node by a loopback address, or add the origin to [auth] cors",
    3107: "'fornada prune' frees what nothing uses",
    3199: f"report it to {REPORT_TO} with the request id in the node's log",
    10000: "set FORNADA_TOKEN to a key that may do this, and FORNADA_ACCOUNT to its account",
}
"""API code -> what to do. What the codes mean stands in docs/reference/errors.md."""
REFUSED_BY_THE_MODEL_OR_ROUTE = frozenset({3030, 7003})
"""Codes of refusals that are no error of ours: the model's own, and an account without the route."""
PREFIXES = re.compile(r"^(AiError: )+(Bad input: Error: )?")
"""What clients of Workers AI expect in front of a message, and says nothing to a person."""


class CommandFailed(click.ClickException):
    """The command was understood and did not succeed: exit code 1 and one line on stderr."""

    exit_code = 1

    def show(self, file: Any = None) -> None:
        click.echo(f"fornada: {one_line(self.message)}", file=file, err=file is None)


class Refused(CommandFailed):
    """The node refused. `code` is the API's code, 0 where it gave none."""

    def __init__(self, message: str, *, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


def refusal(said: Mapping[str, Any], *, model: str = "", retry_after_s: str = "") -> Refused:
    """The line for an error of the API: {"code", "message"}. `retry_after_s` is the Retry-After header as it came."""
    code = int(said["code"]) if str(said.get("code")).isdigit() else 0
    message = str(said.get("message") or "refused without a reason")
    advice = ADVICE.get(code, "")
    if model:
        advice = advice.replace("MODEL", model)
    if retry_after_s:
        advice = (
            f"try again in {retry_after_s} s" if advice in ("", "try again") else f"a request after {retry_after_s} s tries again; {advice}"
        )
    text = one_line(PREFIXES.sub("", message)).rstrip(". ")
    owner = whose_fault(code)
    where = f" [{', '.join(filter(None, [str(code), owner]))}]" if code else ""
    return Refused(f"{text}{where}; {advice}" if advice else f"{text}{where}", code=code)


def whose_fault(code: int) -> str:
    """Read from the tree in core.errors, so that a new error needs no second entry here. "" for a code that isn't ours."""
    from fornada.core import errors

    owners: tuple[tuple[type[errors.FornadaError], str], ...] = (
        (errors.InvalidSpec, FOLDER),
        (errors.CallerFault, CALLER),
        (errors.NoCapacity, NODE),
        (errors.ModelFault, AUTHOR),
        (errors.InternalFault, BUG),
    )
    for fault, owner in owners:
        if any(error.__dict__.get("code") == code for error in _family(fault)):
            return owner
    return CALLER if code in REFUSED_BY_THE_MODEL_OR_ROUTE else ""


def one_line(text: str) -> str:
    """Safe to print, too: a model's last words may stand in it."""
    return printable(" ".join(text.split()))


def _family(error: type[Any]) -> Iterator[type[Any]]:
    yield error
    for child in error.__subclasses__():
        yield from _family(child)
