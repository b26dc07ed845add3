"""Everything that a forked child does to itself, as values: enter.py carries a plan out, plan_json.py sends one to a zygote.

Descriptors are counted: a plan names the first, second ... of those that are handed over with it.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Union

from fornada_sdk.sandbox.seccomp import Variant


class BadPlan(ValueError):
    """A plan that would change the caller's own machine, or that can't be read. The message is one line."""


class Namespace(enum.Enum):
    """What a child has to itself. Its pids come with the fork (forking.py), its users last of all."""

    MOUNTS = "mounts"
    NETWORK = "network"
    IPC = "ipc"
    HOSTNAME = "hostname"
    CGROUPS = "cgroups"


class Access(enum.Enum):
    """What may be done with a file, or with all that a folder holds."""

    READ = "read"
    """Read and execute."""
    WRITE = "write"
    """Everything."""
    USE = "use"
    """Read, write and control, but make nothing: device nodes."""


@dataclasses.dataclass(frozen=True)
class Attached:
    """A detached mount (mounts.detach) of a folder, or of a single file, put at `path`."""

    path: str
    descriptor: int


@dataclasses.dataclass(frozen=True)
class Memory:
    """A folder in memory (tmpfs), with an own bound on bytes and on the number of files."""

    path: str
    size_bytes: int
    files: int
    mode: int = 0o1777


@dataclasses.dataclass(frozen=True)
class Processes:
    """/proc of the child's own pid namespace."""

    path: str = "/proc"


@dataclasses.dataclass(frozen=True)
class Link:
    """A symbolic link."""

    path: str
    target: str


@dataclasses.dataclass(frozen=True)
class Text:
    """A small file that everybody may read. It counts against the root's bound."""

    path: str
    content: str


@dataclasses.dataclass(frozen=True)
class Folder:
    """An empty folder. Those above an entry are made without being named."""

    path: str


Entry = Union[Attached, Memory, Processes, Link, Text, Folder]


@dataclasses.dataclass(frozen=True)
class Root:
    """A file system out of nothing: what isn't an entry isn't there. A later entry may lie inside an earlier one."""

    entries: tuple[Entry, ...]
    size_bytes: int = 4 * 1024 * 1024
    """Of folders, links and texts; read-only once everything is in its place."""
    files: int = 4096


@dataclasses.dataclass(frozen=True)
class Identity:
    """Who the child is outside. Needs CAP_SETUID and CAP_SETGID over these numbers."""

    uid: int
    gid: int


@dataclasses.dataclass(frozen=True)
class Users:
    """A user namespace of its own, in which the child is called this. Locks its mounts, and gives it an own count of processes."""

    uid: int = 1000
    gid: int = 1000


@dataclasses.dataclass(frozen=True)
class Limits:
    """Bounds of the child. 0 means no bound, except for `core_bytes`, where it means no core file."""

    memory_bytes: int = 0
    """Of its private memory (RLIMIT_DATA)."""
    open_files: int = 0
    processes: int = 0
    """Of its uid, and with Users of this child and what it starts alone. Threads count, and so do zombies."""
    file_bytes: int = 0
    core_bytes: int = 0
    nice: int = 0


@dataclasses.dataclass(frozen=True)
class Grant:
    """What may be done with a path, as the child sees it, and with everything below."""

    path: str
    access: Access


@dataclasses.dataclass(frozen=True)
class Landlock:
    """The only files that may be used. Abstract sockets and signals of others are out of reach from version 6 on."""

    grants: tuple[Grant, ...]
    refuse_tcp: bool = False
    """From version 4 on."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """The walls. What is empty or None is left out; no_new_privs never is."""

    cgroups: tuple[int, ...] = ()
    """Descriptors of cgroup.procs, open for writing."""
    namespaces: frozenset[Namespace] = frozenset()
    loopback: bool = False
    """127.0.0.1 and ::1 work in the own network namespace."""
    root: Root | None = None
    hostname: str = ""
    identity: Identity | None = None
    users: Users | None = None
    limits: Limits = Limits()
    capable: bool = False
    """Keeps its capabilities: for a zygote, which puts children behind walls, in a user namespace that was made for it."""
    landlock: Landlock | None = None
    seccomp: Variant | None = None

    def __post_init__(self) -> None:
        """Raises BadPlan for what would reach past the child: its host's file system, network or name."""
        for wanted, needed, what in (
            (self.root is not None, Namespace.MOUNTS, "a root"),
            (self.loopback, Namespace.NETWORK, "loopback"),
            (bool(self.hostname), Namespace.HOSTNAME, "a host name"),
        ):
            if wanted and needed not in self.namespaces:
                raise BadPlan(f"{what} needs the namespace {needed.value!r}: without it the host's own would be changed")
