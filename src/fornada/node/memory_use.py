"""What processes hold of the host's memory, as the kernel counts it.

Pages that several processes share (libraries, what a zygote had imported) count by their part for each: who is charged for them
all would be charged for what is there once. A reading takes tenths of a millisecond, and milliseconds for each GiB that is mapped:
it is made in a thread.
"""

import contextlib
import os
import re
from pathlib import Path
from typing import NamedTuple

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
FAMILY_MOST = 1000
"""Processes of one instance that are looked at."""
_SHARES = re.compile(rb"^(?:Pss|SwapPss): +(\d+) kB$", re.MULTILINE)


class Held(NamedTuple):
    """Of one instance: its first process and all below it."""

    bytes: int
    peak_bytes: int
    """Now, and what its first process has given back since it began."""


NOTHING = Held(0, 0)


def held_by(pid: int, *, proc: Path = Path("/proc")) -> Held:
    """NOTHING once it is gone."""
    count = sum(share_of(member, proc=proc) for member in family(pid, proc=proc))
    return Held(count, count + _given_back(proc, pid)) if count else NOTHING


def family(pid: int, *, proc: Path = Path("/proc")) -> list[int]:
    """The process and all that it has started, as far as the kernel tells (CONFIG_PROC_CHILDREN); empty once it is gone."""
    if not (proc / str(pid)).exists():
        return []
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):
            for task in os.scandir(proc / str(one) / "task"):
                with contextlib.suppress(OSError):
                    children = [int(child) for child in Path(task.path, "children").read_text().split()]
                    found += [child for child in children if child not in found]
        if len(found) > FAMILY_MOST:
            break
    return found


def resident_bytes(pid: int, *, proc: Path = Path("/proc")) -> int:
    """All that it has in memory, shared or not; 0 once it is gone."""
    try:
        return int((proc / str(pid) / "statm").read_text().split()[1]) * PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return 0


def share_of(pid: int, *, proc: Path = Path("/proc")) -> int:
    """The part of one process alone; 0 once it is gone."""
    try:
        text = (proc / str(pid) / "smaps_rollup").read_bytes()
    except OSError:  # another user's process, or an old kernel
        return resident_bytes(pid, proc=proc)
    return sum(map(int, _SHARES.findall(text))) * 1024


def _given_back(proc: Path, pid: int) -> int:
    try:
        text = (proc / str(pid) / "status").read_text()
    except OSError:
        return 0
    lines = dict(line.split(":", 1) for line in text.splitlines() if line.startswith(("VmHWM:", "VmRSS:")))
    try:
        return max(0, int(lines["VmHWM"].split()[0]) - int(lines["VmRSS"].split()[0])) * 1024
    except (KeyError, ValueError, IndexError):
        return 0
