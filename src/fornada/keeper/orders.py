"""What a control plane orders, read into frozen types at the border: behind here nothing is of unknown shape."""

import dataclasses
import re
from typing import Any

from fornada_sdk.wire.messages import encode

_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,200}\Z")
_SIGNAL_MOST = 64


class BadOrder(Exception):
    """An order that can't be carried out as it stands. The message is one line."""


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a child. 0 means no bound, except for `core_bytes`, where it means no core file."""

    memory_bytes: int = 0
    open_files: int = 1024
    processes: int = 0
    file_bytes: int = 0
    core_bytes: int = 0
    nice: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Command:
    """What is executed. `env` is the child's whole environment."""

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    limits: Limits


@dataclasses.dataclass(frozen=True, slots=True)
class Spawn:
    """Start a runner."""

    instance: str
    command: Command
    assignment: dict[str, Any]
    memo: dict[str, Any]
    host: str = ""
    """Name of the process that it shares; empty: it gets one of its own."""
    outbound: bool = False
    """It gets an outbound channel."""


@dataclasses.dataclass(frozen=True, slots=True)
class Build:
    """Start a build, or join the one of that name."""

    build: str
    command: Command
    log: str
    """File that stdout and stderr are appended to."""


@dataclasses.dataclass(frozen=True, slots=True)
class Signal:
    """Signal a child and its whole process group."""

    name: str
    number: int


@dataclasses.dataclass(frozen=True, slots=True)
class Forget:
    """The end of that child is known; one that still lives is ended."""

    name: str


def read_spawn(head: dict[str, Any]) -> Spawn:
    """Raises BadOrder."""
    assignment, memo = _table(head, "assignment"), _table(head, "memo")
    try:
        encode({"assignment": assignment, "memo": memo})  # both are sent on later, and must not fail there
    except (ValueError, RecursionError) as error:
        raise BadOrder(f"assignment or memo is no JSON that can be sent on: {error}") from None
    host = name_of(head, "host") if head.get("host") else ""
    outbound = head.get("outbound", False)
    if not isinstance(outbound, bool) or (outbound and host):
        raise BadOrder("outbound must be true or false, and a process that is shared has none")
    return Spawn(name_of(head, "instance"), _command(head), assignment, memo, host, outbound)


def read_build(head: dict[str, Any]) -> Build:
    """Raises BadOrder."""
    log = _text(head, "log")
    if not log.startswith("/"):
        raise BadOrder("log must be an absolute path")
    return Build(name_of(head, "build"), _command(head), log)


def read_signal(head: dict[str, Any]) -> Signal:
    """Raises BadOrder."""
    return Signal(_either(head), _whole(head, "signal", 0, least=1, most=_SIGNAL_MOST))


def read_forget(head: dict[str, Any]) -> Forget:
    """Raises BadOrder."""
    return Forget(_either(head))


def name_of(head: dict[str, Any], key: str) -> str:
    """The child's name as people may read it in a line. Raises BadOrder."""
    name = _text(head, key)
    if not _NAME.match(name):
        raise BadOrder(f"{key} must have 1 to 200 printable characters")
    return name


def _either(head: dict[str, Any]) -> str:
    return name_of(head, "instance" if "instance" in head else "build")


def _command(head: dict[str, Any]) -> Command:
    argv = head.get("argv")
    if not isinstance(argv, list) or not argv or not all(isinstance(word, str) and _sendable(word) for word in argv) or not argv[0]:
        raise BadOrder("argv must be a list of words")
    env = _table(head, "env")
    for variable, value in env.items():
        if not variable or "=" in variable or not isinstance(value, str) or not _sendable(variable) or not _sendable(value):
            raise BadOrder(f"env holds something that is no variable: {variable[:40]!r}")
    cwd = _text(head, "cwd")
    if not cwd.startswith("/"):
        raise BadOrder("cwd must be an absolute path")
    return Command(tuple(argv), env, cwd, _limits(_table(head, "limits")))


def _limits(table: dict[str, Any]) -> Limits:
    usual = Limits()
    return Limits(
        memory_bytes=_whole(table, "memory_bytes", usual.memory_bytes),
        open_files=_whole(table, "open_files", usual.open_files),
        processes=_whole(table, "processes", usual.processes),
        file_bytes=_whole(table, "file_bytes", usual.file_bytes),
        core_bytes=_whole(table, "core_bytes", usual.core_bytes),
        nice=_whole(table, "nice", usual.nice, least=-20, most=19),
    )


def _table(head: dict[str, Any], key: str) -> dict[str, Any]:
    value = head.get(key, {})
    if not isinstance(value, dict):
        raise BadOrder(f"{key} must be an object")
    return value


def _text(head: dict[str, Any], key: str) -> str:
    value = head.get(key)
    if not isinstance(value, str) or not _sendable(value):
        raise BadOrder(f"{key} must be a text without NUL")
    return value


def _whole(table: dict[str, Any], key: str, usual: int, *, least: int = 0, most: int = 2**62) -> int:
    value = table.get(key, usual)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise BadOrder(f"{key} must be a whole number from {least} to {most}")
    return value


def _sendable(text: str) -> bool:
    """Lone surrogates would fail when the text is sent on, a NUL when it is executed."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False
