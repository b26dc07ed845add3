"""The processes that instances share, as this control plane knows them: who is in which, and what is still expected of them.

A host's name is used once. It is the keeper's key too, and the name of the directory that the process calls its home.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from fornada.core.policy.packing import Bound, HostRoom, alone_because, choose_host, expected_bytes, too_large_because
from fornada.core.ports import Provisioned, Version
from fornada.node import shelf

PAGE_BYTES = 4096
HOME, SHELF = "home", "models"
"""In the host's directory."""


class Seat(NamedTuple):
    """What an instance that shares a process is started with."""

    host: str
    group: str
    scratch: str
    """The host's own directory, which it may write to."""
    shelf: str
    """The directory of all that its members may read; it grows with them."""
    provisioned: Provisioned
    """As this instance finds it on the shelf."""
    bound: Bound


class Alone(NamedTuple):
    """An instance that has a process of its own."""

    because: str


class Sharing(NamedTuple):
    """What decides about an instance beside its spec."""

    device: str
    crashes: int
    """Of shared processes, under its own work."""
    peak_bytes: int
    """The most it took before; 0: it never ran."""


@dataclass(slots=True)
class _Host:
    group: str
    members: dict[str, int] = field(default_factory=dict)
    """Instance -> bytes that it is still expected to take; 0 once it is loaded, and counted with the process."""
    pid: int = 0
    open: bool = True


class Hosts:
    """Changed by instances as they come and go."""

    def __init__(self, *, bound: Bound, scratch: Path, new_suffix: Callable[[], str]) -> None:
        self.bound = bound
        self._scratch = scratch
        self._new_suffix = new_suffix
        self._hosts: dict[str, _Host] = {}
        self._of: dict[str, str] = {}

    def find(self, instance: str, version: Version, provisioned: Provisioned, use: Sharing) -> Seat | Alone:
        """Its place in a process that others share, or why it has one of its own. Raises OSError."""
        because = alone_because(version.spec, device=use.device, host_crashes=use.crashes, bound=self.bound)
        if because:
            return Alone(because)
        names = shelf.files(provisioned)
        if names is None:
            return Alone(f"its folder holds more than {shelf.FILES_MOST} files")
        weights = shelf.weights_bytes(provisioned, names)
        expected = expected_bytes(weights_bytes=weights, peak_bytes=use.peak_bytes)
        if because := too_large_because(expected, bound=self.bound):
            return Alone(because)
        group = group_of(version, provisioned)
        place = self._scratch / self._seat(instance, group, expected)
        (place / HOME).mkdir(parents=True, mode=0o700, exist_ok=True)
        laid_out = shelf.lay_out(place / SHELF / instance, provisioned, names)
        return Seat(place.name, group, str(place / HOME), str(place / SHELF), laid_out, self.bound)

    def _seat(self, instance: str, group: str, expected: int) -> str:
        """The host's name; a new one where none of the group has room."""
        rooms = [
            HostRoom(name, len(host.members), sum(host.members.values()) + data_bytes(host.pid))
            for name, host in self._hosts.items()
            if host.open and host.group == group
        ]
        name = choose_host(rooms, expected=expected, bound=self.bound) or f"host-{self._new_suffix()}"
        host = self._hosts.setdefault(name, _Host(group))
        host.members[instance] = expected
        self._of[instance] = name
        return name

    def adopted(self, instance: str, *, host: str, group: str, pid: int) -> None:
        """A predecessor had put it there."""
        self._hosts.setdefault(host, _Host(group)).members[instance] = 0
        self._of[instance] = host
        self.spawned(instance, pid=pid)

    def spawned(self, instance: str, *, pid: int) -> None:
        if (name := self._of.get(instance)) is not None:
            self._hosts[name].pid = pid

    def loaded(self, instance: str) -> None:
        """What it takes is part of what the process holds from here on."""
        if (name := self._of.get(instance)) is not None:
            self._hosts[name].members[instance] = 0

    def left(self, instance: str, *, well: bool) -> str:
        """It has ended, or never began; not `well`: with its host. Returns what is to be removed below the scratch directory: what it
        had on the shelf, or all of the host's where it was the last one there. Empty: nothing."""
        name = self._of.pop(instance, None)
        if name is None:
            return ""
        host = self._hosts[name]
        del host.members[instance]
        host.open = host.open and well
        if host.members:
            return f"{name}/{SHELF}/{instance}"
        del self._hosts[name]
        return name

    def others(self, instance: str) -> int:
        """How many share its process with it."""
        name = self._of.get(instance)
        return len(self._hosts[name].members) - 1 if name is not None else 0


def group_of(version: Version, provisioned: Provisioned) -> str:
    """Who may meet in one process: the same account, environment and release of the SDK."""
    return f"{version.account}|{provisioned.environment}|{provisioned.sdk}"


def data_bytes(pid: int) -> int:
    """A process' data segment, which its bound is kept on; 0 where there is none."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[5]) * PAGE_BYTES if pid else 0
    except (OSError, ValueError, IndexError):
        return 0
