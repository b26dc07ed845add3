"""A group of version 1: one folder in each controller's hierarchy.

There is no freezing: a SIGKILL doesn't reach a process that version 1's freezer holds, so models of a killed keeper would stay.
"""

import contextlib
import os
import select
from pathlib import Path

from fornada.keeper.cgroups import files
from fornada.keeper.cgroups.group import PERIOD_US, Bounds, kill_each, opened, quota_us


class GroupV1:
    """See `group.Group`."""

    can_freeze = False
    oom_events = select.EPOLLIN

    def __init__(self, name: str, folders: dict[str, Path]) -> None:
        """`folders`: controller -> the group's folder, made already. Raises CgroupError."""
        self.name = name
        self._folders = folders
        self._distinct = list(dict.fromkeys(folders.values()))
        self.oom = _oom_event(folders["memory"]) if "memory" in folders else -1

    def joins(self) -> list[int]:
        return opened(self._distinct)

    def bound(self, bounds: Bounds) -> None:
        if memory := self._folders.get("memory"):
            self._bound_memory(memory, bounds.memory_bytes or -1)
        if cpu := self._folders.get("cpu"):
            files.write(cpu / "cpu.cfs_period_us", str(PERIOD_US))
            files.write(cpu / "cpu.cfs_quota_us", str(quota_us(bounds.cpus) if bounds.cpus else -1))
        if pids := self._folders.get("pids"):
            files.write(pids / "pids.max", str(bounds.pids or "max"))

    def _bound_memory(self, folder: Path, value: int) -> None:
        """memsw counts memory and swap together; equal bounds leave no swap. Neither may pass the other on the way."""
        memory, both = folder / "memory.limit_in_bytes", folder / "memory.memsw.limit_in_bytes"
        if not both.exists():  # no swap in the kernel, or switched off at boot
            files.write(memory, str(value))
            return
        try:
            files.write(memory, str(value))
            files.write(both, str(value))
        except files.CgroupError:  # it is being raised
            files.write(both, str(value))
            files.write(memory, str(value))

    def oom_kills(self) -> int:
        if self.oom < 0:
            return 0
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.oom)
        return files.table(self._folders["memory"] / "memory.oom_control").get("oom_kill", 0)

    def memory_bytes(self) -> int:
        if (folder := self._folders.get("memory")) is None:
            return 0
        used = files.number(folder / "memory.usage_in_bytes")
        return max(0, used - files.table(folder / "memory.stat").get("total_inactive_file", 0))

    def cpu_s(self) -> float:
        folder = self._folders.get("cpuacct")
        return files.number(folder / "cpuacct.usage") / 1e9 if folder else 0.0

    def pids(self) -> list[int]:
        return [pid for pid in files.members(self._distinct[0]) if pid]

    def freeze(self) -> None:
        raise NotImplementedError("version 1 has no freezing that a SIGKILL ends; stop the processes by SIGSTOP")

    def thaw(self) -> None:
        raise NotImplementedError("version 1 has no freezing that a SIGKILL ends; continue the processes by SIGCONT")

    def kill(self) -> None:
        kill(self._folders)

    def remove(self) -> bool:
        self.close()
        return not [folder for folder in self._distinct if not files.gone(folder)]

    def close(self) -> None:
        if self.oom >= 0:
            os.close(self.oom)
            self.oom = -1


def kill(folders: dict[str, Path]) -> None:
    """SIGKILL to every process in a group's folders. Raises CgroupError."""
    if pids := folders.get("pids"):
        # A fork bomb would make new processes while its list is read; from here on it makes none.
        files.write(pids / "pids.max", "0")
    for folder in dict.fromkeys(folders.values()):  # one may have joined some hierarchies only
        kill_each(folder)


def _oom_event(folder: Path) -> int:
    """An eventfd that counts how often the group was out of memory. Raises CgroupError."""
    event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    try:
        control = os.open(folder / "memory.oom_control", os.O_RDONLY | os.O_CLOEXEC)
        try:
            files.write(folder / "cgroup.event_control", f"{event} {control}")
        finally:
            os.close(control)
    except OSError as error:
        os.close(event)
        raise files.CgroupError(f"can't open {folder / 'memory.oom_control'}: {error.strerror}") from None
    except files.CgroupError:
        os.close(event)
        raise
    return event
