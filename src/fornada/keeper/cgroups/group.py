"""What a group is, whichever version the machine has."""

import contextlib
import dataclasses
import os
import signal
from pathlib import Path
from typing import Protocol

from fornada.keeper.cgroups import files

PERIOD_US = 100_000
"""The kernel's own default, over which a share of the CPU is counted."""
QUOTA_LEAST_US = 1_000
"""The kernel refuses less."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a group may use; 0 means no bound."""

    memory_bytes: int = 0
    """Private memory, memfds and page cache together; swap is not given beside it."""
    cpus: float = 0.0
    """CPU seconds per second."""
    pids: int = 0
    """Processes and threads."""


class Group(Protocol):
    """One instance's processes. Methods raise CgroupError."""

    name: str
    oom: int
    """Descriptor: `oom_events` come to it when the bound of memory was hit. It is the group's until `close`. -1: no memory controller."""
    oom_events: int
    """select.EPOLLIN or EPOLLPRI. Another event may come with it, so `oom_kills` has the last word, and clears the descriptor."""
    can_freeze: bool

    def joins(self) -> list[int]:
        """Descriptors, the caller's to close: a process that writes "0" to each of them is in the group, and its children are.

        It needs no rights to any file and no view of any: the kernel asks what the opener was allowed.
        """

    def bound(self, bounds: Bounds) -> None:
        """Sets the bounds, also while processes run."""

    def oom_kills(self) -> int:
        """How many processes the kernel has killed for want of memory since the group was made."""

    def memory_bytes(self) -> int:
        """What can't be taken back: usage without the page cache that nobody has touched lately (the kubelet's "working set")."""

    def cpu_s(self) -> float:
        """CPU time of all its processes, ended ones too."""

    def pids(self) -> list[int]:
        """Its processes as this pid namespace shows them."""

    def freeze(self) -> None:
        """Stops every process. Raises NotImplementedError unless `can_freeze`."""

    def thaw(self) -> None:
        """Undoes `freeze`."""

    def kill(self) -> None:
        """SIGKILL to every process. Doesn't wait for their ends."""

    def remove(self) -> bool:
        """Closes and removes the group. False while processes in it are dying: ask again."""

    def close(self) -> None:
        """Closes `oom`, which nobody may watch any longer."""


def quota_us(cpus: float) -> int:
    """Microseconds of CPU in each PERIOD_US."""
    return max(QUOTA_LEAST_US, round(cpus * PERIOD_US))


def opened(folders: list[Path]) -> list[int]:
    """Write ends of the folders' cgroup.procs. Raises CgroupError."""
    descriptors: list[int] = []
    for folder in folders:
        try:
            descriptors.append(os.open(folder / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC))
        except OSError as error:
            for descriptor in descriptors:
                os.close(descriptor)
            raise files.CgroupError(f"can't open {folder / 'cgroup.procs'}: {error.strerror}") from None
    return descriptors


def kill_each(folder: Path) -> None:
    """SIGKILL to each process that the folder lists. One that forks meanwhile may leave a child: see who calls."""
    for pid in files.members(folder):
        if pid:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
