"""A group of version 2: one folder for all controllers."""

import os
import select
from pathlib import Path

from fornada.keeper.cgroups import files
from fornada.keeper.cgroups.group import PERIOD_US, Bounds, kill_each, opened, quota_us


class GroupV2:
    """See `group.Group`."""

    can_freeze = True
    oom_events = select.EPOLLPRI

    def __init__(self, name: str, folder: Path) -> None:
        """`folder` is made already; bounds of controllers that it lacks are left out. Raises CgroupError."""
        self.name = name
        self._folder = folder
        self.oom = -1
        events = folder / "memory.events"
        if events.exists():
            # What hits the bound is one model: half of one is of no use, and would answer nobody.
            files.write(folder / "memory.oom.group", "1")
            try:
                self.oom = os.open(events, os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                raise files.CgroupError(f"can't open {events}: {error.strerror}") from None
            self.oom_kills()  # a file that was never read counts as changed

    def joins(self) -> list[int]:
        return opened([self._folder])

    def bound(self, bounds: Bounds) -> None:
        self._set("memory.max", str(bounds.memory_bytes or "max"))
        self._set("memory.swap.max", "0" if bounds.memory_bytes else "max")
        self._set("cpu.max", f"{quota_us(bounds.cpus) if bounds.cpus else 'max'} {PERIOD_US}")
        self._set("pids.max", str(bounds.pids or "max"))

    def _set(self, name: str, value: str) -> None:
        path = self._folder / name
        if path.exists():
            files.write(path, value)

    def oom_kills(self) -> int:
        if self.oom < 0:
            return 0
        try:
            text = os.pread(self.oom, 4096, 0).decode("ascii", "replace")
        except OSError as error:
            raise files.CgroupError(f"can't read {self._folder / 'memory.events'}: {error.strerror}") from None
        return files.parsed(text).get("oom_kill", 0)

    def memory_bytes(self) -> int:
        if self.oom < 0:
            return 0
        used = files.number(self._folder / "memory.current")
        return max(0, used - files.table(self._folder / "memory.stat").get("inactive_file", 0))

    def cpu_s(self) -> float:
        return files.table(self._folder / "cpu.stat").get("usage_usec", 0) / 1e6

    def pids(self) -> list[int]:
        return [pid for pid in files.members(self._folder) if pid]

    def freeze(self) -> None:
        files.write(self._folder / "cgroup.freeze", "1")

    def thaw(self) -> None:
        files.write(self._folder / "cgroup.freeze", "0")

    def kill(self) -> None:
        kill(self._folder)

    def remove(self) -> bool:
        self.close()
        return files.gone(self._folder)

    def close(self) -> None:
        if self.oom >= 0:
            os.close(self.oom)
            self.oom = -1


def kill(folder: Path) -> None:
    """SIGKILL to every process in a group's folder, frozen ones too. Raises CgroupError."""
    if (folder / "cgroup.kill").exists():  # Linux 5.14
        files.write(folder / "cgroup.kill", "1")
        return
    if (folder / "pids.max").exists():
        files.write(folder / "pids.max", "0")  # a fork bomb would make new processes while its list is read
    kill_each(folder)
