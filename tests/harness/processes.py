"""What /proc says: who descends from whom, who is left, what they hold. A process is (pid, start time), so a reused pid is another."""

import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.harness.waiting import until


@dataclass(frozen=True)
class Process:
    """A process that was seen alive. `started` in clock ticks since boot."""

    pid: int
    started: int
    name: str = ""

    @property
    def alive(self) -> bool:
        """Whether it still runs; a zombie doesn't."""
        now = read_stat(self.pid)
        return now is not None and now.started == self.started and now.state not in "ZX"


@dataclass(frozen=True)
class Stat:
    """Some fields of /proc/PID/stat."""

    pid: int
    name: str
    state: str
    parent: int
    cpu_s: float
    started: int


def read_stat(pid: int) -> Stat | None:
    """None where there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    ticks = os.sysconf("SC_CLK_TCK")
    return Stat(pid, name, fields[0], int(fields[1]), (int(fields[11]) + int(fields[12])) / ticks, int(fields[19]))


def seen(pid: int) -> Process:
    """The process `pid`, which must be alive now."""
    found = living([pid])
    assert found, f"no live process {pid}"
    return found[0]


def living(pids: Iterable[int]) -> list[Process]:
    """Those of `pids` that are alive now, each looked at once: between two looks it may end."""
    found = [read_stat(pid) for pid in pids]
    return [Process(stat.pid, stat.started, stat.name) for stat in found if stat and stat.state not in "ZX"]


def alive(pid: int) -> bool:
    return bool(living([pid]))


def descendants(pid: int) -> list[Process]:
    """All live processes below `pid`, at any depth."""
    children: dict[int, list[Stat]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (stat := read_stat(int(entry))):
            children.setdefault(stat.parent, []).append(stat)
    found: list[Process] = []
    todo = [pid]
    while todo:
        for stat in children.get(todo.pop(), ()):
            todo.append(stat.pid)
            if stat.state not in "ZX":
                found.append(Process(stat.pid, stat.started, stat.name))
    return found


def marked(text: str) -> list[Process]:
    """Live processes whose command line or working directory holds `text`: finds those that lost their parent."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            line = Path(f"/proc/{entry}/cmdline").read_bytes().decode(errors="replace")
            where = os.readlink(f"/proc/{entry}/cwd")
        except OSError:
            continue
        stat = read_stat(int(entry))
        if stat and stat.state not in "ZX" and (text in line or text in where):
            found.append(Process(stat.pid, stat.started, line.replace("\0", " ")[:200]))
    return found


def all_gone(processes: list[Process], *, within_s: float, what: str) -> None:
    """Waits until none of `processes` is alive."""
    until(lambda: not any(process.alive for process in processes), within_s=within_s, what=f"{what}: {processes}")


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    os.kill(pid, number)


def resident_bytes(pid: int) -> int:
    """RSS."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def descriptors(pid: int) -> int:
    """How many descriptors are open."""
    return len(os.listdir(f"/proc/{pid}/fd"))
