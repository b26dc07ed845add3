"""What a control plane orders, read into frozen types at the border: behind here nothing is of unknown shape."""

import dataclasses
import enum
import re
from typing import Any

from fornada_sdk.sandbox.plan import Access, Grant, Limits
from fornada_sdk.wire.messages import encode

_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,200}\Z")
OPEN_FILES = 1024
"""Where an order doesn't say."""
_SIGNAL_MOST = 64
_SPARES_MOST = 32
_FILES_MOST = 200
"""One message to a zygote or a host carries as many descriptors, and some of our own."""
_CPUS_MOST = 4096


class BadOrder(Exception):
    """An order that can't be carried out as it stands. The message is one line."""


class Network(enum.Enum):
    """What a child reaches."""

    NONE = "none"
    LOOPBACK = "loopback"
    """Its own 127.0.0.1, and TCP sockets to use it with."""
    HOST = "host"
    """All that the machine reaches: for what we ship ourselves."""


@dataclasses.dataclass(frozen=True, slots=True)
class Sandbox:
    """What a child may see and use, whatever keeps it from the rest. An order that says nothing gets nothing."""

    files: tuple[Grant, ...] = ()
    """Folders, files and device nodes by their paths here."""
    in_memory: dict[str, int] = dataclasses.field(default_factory=dict)
    """Paths of `files`, to write -> bytes: an empty folder in memory takes its place, where there are mounts."""
    python: str = ""
    """An interpreter that is there with all that belongs to it."""
    network: Network = Network.NONE
    cpus: float = 0.0
    """CPU seconds per second; 0 is no bound."""
    temporary_bytes: int = 64 * 1024 * 1024
    """Of its own /tmp, and as many of /dev/shm."""
    own_uid: bool = True
    """It gets a uid that nothing else has, where we may give one; WRITE files become its own. False: ours, without our rights."""


@dataclasses.dataclass(frozen=True, slots=True)
class Command:
    """What is executed. `env` is the child's whole environment."""

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    limits: Limits
    sandbox: Sandbox = Sandbox()


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
    zygote: str = ""
    """Name of the zygote to fork it from, if that can; empty: it is executed."""

    def assigned(self, outer: int) -> dict[str, Any]:
        """The assignment of a process that doesn't know what it is called outside."""
        return {**self.assignment, "pid": outer}


@dataclasses.dataclass(frozen=True, slots=True)
class Zygote:
    """Have a zygote of that name, and so many spares; `command` starts it."""

    zygote: str
    command: Command
    spares: int


@dataclasses.dataclass(frozen=True, slots=True)
class Retire:
    """That zygote is to end with its last instance."""

    zygote: str


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
    zygote = name_of(head, "zygote") if head.get("zygote") else ""
    return Spawn(name_of(head, "instance"), _command(head), assignment, memo, host, outbound, zygote)


def read_zygote(head: dict[str, Any]) -> Zygote:
    """Raises BadOrder."""
    return Zygote(name_of(head, "zygote"), _command(head), _whole(head, "spares", 0, most=_SPARES_MOST))


def read_retire(head: dict[str, Any]) -> Retire:
    """Raises BadOrder."""
    return Retire(name_of(head, "zygote"))


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
    return Command(tuple(argv), env, cwd, _limits(_table(head, "limits")), _sandbox(_table(head, "sandbox")))


def _sandbox(table: dict[str, Any]) -> Sandbox:
    usual = Sandbox()
    files = table.get("files", [])
    if not isinstance(files, list) or len(files) > _FILES_MOST:
        raise BadOrder(f"sandbox.files must be a list of {_FILES_MOST} at most")
    cpus = table.get("cpus", usual.cpus)
    if not isinstance(cpus, int | float) or isinstance(cpus, bool) or not 0 <= cpus <= _CPUS_MOST:
        raise BadOrder(f"sandbox.cpus must be a number from 0 to {_CPUS_MOST}")
    own_uid = table.get("own_uid", usual.own_uid)
    if not isinstance(own_uid, bool):
        raise BadOrder("sandbox.own_uid must be true or false")
    try:
        network = Network(table.get("network", usual.network.value))
    except ValueError:
        raise BadOrder(f"sandbox.network must be one of {', '.join(kind.value for kind in Network)}") from None
    memory = _table(table, "in_memory")
    return Sandbox(
        files=tuple(_grant(entry) for entry in files),
        in_memory={_path(path, "sandbox.in_memory"): _whole(memory, path, 0, least=4096) for path in memory},
        python=_path(table["python"], "sandbox.python") if table.get("python") else "",
        network=network,
        cpus=float(cpus),
        temporary_bytes=_whole(table, "temporary_bytes", usual.temporary_bytes, least=4096),
        own_uid=own_uid,
    )


def _grant(entry: object) -> Grant:
    if not isinstance(entry, list) or len(entry) != 2:
        raise BadOrder("each of sandbox.files must be a path and what may be done with it")
    try:
        access = Access(entry[1])
    except ValueError:
        raise BadOrder(f"a file may be had to {', '.join(kind.value for kind in Access)}") from None
    return Grant(_path(entry[0], "sandbox.files"), access)


def _path(value: object, where: str) -> str:
    """Absolute, and the same whoever reads it: a child must not be shown what lies beside what was meant."""
    if not isinstance(value, str) or not _sendable(value) or not value.startswith("/") or value == "/":
        raise BadOrder(f"{where} must hold absolute paths")
    if any(part in ("", ".", "..") for part in value.split("/")[1:]):
        raise BadOrder(f"{where} must hold paths without '.', '..' and empty parts: {value[:100]!r}")
    return value


def _limits(table: dict[str, Any]) -> Limits:
    usual = Limits(open_files=OPEN_FILES)
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
