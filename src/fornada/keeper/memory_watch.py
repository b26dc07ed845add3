"""Bounds of memory where there are no cgroups: somebody looks often, and who holds too much is ended.

It comes too late for what is quicker than the rhythm, so each process has an rlimit as well; this is about several processes of one
instance, and about memory that rlimits don't count (memfds). What lies in an instance's own tmpfs is bounded by that one's size.
"""

import contextlib
import dataclasses
import functools
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

CALM_S = 0.5
CLOSE_S = 0.1
"""How long until the next look, and how long with an instance near its bound."""
NEAR = 0.8
"""Share of the bound from which on it is near."""
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PRIVATE = re.compile(rb"^(?:Pss_Anon|Private_Hugetlb|SwapPss): +(\d+) kB$", re.MULTILINE)
_OWN = re.compile(rb"^Private_(?:Clean|Dirty): +(\d+) kB$", re.MULTILINE)
_TABLES = re.compile(rb"^VmPTE:\s*(\d+) kB", re.MULTILINE)
_SHARED = re.compile(rb"^Pss_Shmem: +[1-9]\d* kB$", re.MULTILINE)
_MAPPING = re.compile(rb"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ (\S+) .*\n(?:(?![0-9a-f]+-).*\n)*?Pss: +(\d+) kB$", re.MULTILINE)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """An instance and its bound. `pid` is its first process as /proc calls it; `folders` are descriptors of file systems in memory
    that are its own."""

    instance: str
    pid: int
    limit_bytes: int
    folders: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What all processes of an instance hold. Memory that several instances share counts by its part for each."""

    instance: str
    limit_bytes: int
    used_bytes: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TooMuch:
    """End this instance."""

    instance: str
    reason: str


# ---- the choice


def over(samples: Iterable[Sample]) -> tuple[TooMuch, ...]:
    """Who must be ended: whoever holds more than its bound, the worst first. A bound of 0 is none."""
    too_much = sorted(
        (sample for sample in samples if 0 < sample.limit_bytes < sample.used_bytes),
        key=lambda sample: (sample.limit_bytes - sample.used_bytes, sample.instance),
    )
    return tuple(
        TooMuch(instance=sample.instance, reason=f"its processes hold {sample.used_bytes} bytes, and {sample.limit_bytes} are its bound")
        for sample in too_much
    )


def next_look_s(samples: Iterable[Sample]) -> float:
    """Seconds."""
    near = any(sample.limit_bytes and sample.used_bytes > NEAR * sample.limit_bytes for sample in samples)
    return CLOSE_S if near else CALM_S


# ---- what /proc says


def look(watched: Sequence[Watched], *, proc: Path = Path("/proc")) -> list[Sample]:
    """One sample for each that is still there.

    Costs some 10 microseconds for each process of the machine; an instance near its bound is looked at more closely, which takes
    milliseconds for each GiB that it maps.
    """
    if not watched:
        return []
    children = _children(proc)
    samples = []
    for one in watched:
        pids = _family(one.pid, children)
        if not any((proc / str(pid)).exists() for pid in pids):
            continue
        resident = sum(_resident(proc, pid) for pid in pids)
        # RSS counts what is shared once for each process, so it says nothing against anybody, but clears who is below the bound.
        # What is mapped of a folder's files is in RSS as well, but the exact count leaves it out (it has a name).
        files = _memory_files(proc, pids)
        folders = sum(map(_taken, one.folders))
        exact = resident + files + folders > NEAR * one.limit_bytes
        used = (_held(proc, pids, files) if exact else resident + files) + folders
        samples.append(Sample(instance=one.instance, limit_bytes=one.limit_bytes, used_bytes=used))
    return samples


def own_bytes(pid: int, *, proc: Path = Path("/proc")) -> int:
    """What a process has to itself, the tables of its pages among it, which a fork of a large process begins with; 0: it has gone, or
    may not be looked into."""
    with contextlib.suppress(OSError):
        private = sum(int(kib) for kib in _OWN.findall(_read(f"{proc}/{pid}/smaps_rollup")))
        tables = _TABLES.search(_read(f"{proc}/{pid}/status"))
        return (private + (int(tables[1]) if tables else 0)) * 1024
    return 0


def _children(proc: Path) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for entry in os.scandir(proc):
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                parent = int(_read(f"{entry.path}/stat").rpartition(b")")[2].split()[1])
                found.setdefault(parent, []).append(int(entry.name))
    return found


def _family(pid: int, children: dict[int, list[int]]) -> list[int]:
    """The process and all below it."""
    found = [pid]
    for one in found:
        found += children.get(one, ())
    return found


def _resident(proc: Path, pid: int) -> int:
    """proc_pid_statm(5): size, resident, shared ... in pages."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int(_read(f"{proc}/{pid}/statm").split()[1]) * _PAGE
    return 0


def _held(proc: Path, pids: Sequence[int], files: int) -> int:
    """What nobody else holds, and what can't be taken back: not the pages of files."""
    private = shared = 0
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            try:
                text = _read(f"{proc}/{pid}/smaps_rollup")
            except PermissionError:  # a process of another uid, or one that may not be looked into
                private += _anonymous(proc, pid)
                continue
            private += sum(int(kib) for kib in _PRIVATE.findall(text)) * 1024
            if _SHARED.search(text):
                shared += _nameless(proc, pid)
    return private + max(shared, files)  # what is mapped of a memfd is in both


def _nameless(proc: Path, pid: int) -> int:
    """Shared memory that no file system holds. Weights on a tmpfs are shared memory too, and not the instance's."""
    with contextlib.suppress(OSError):
        mappings = Path(f"{proc}/{pid}/smaps").read_bytes()
        return sum(int(kib) for device, kib in _MAPPING.findall(mappings) if device == _nameless_device()) * 1024
    return 0


@functools.cache
def _nameless_device() -> bytes:
    """The kernel's own tmpfs, which memfds, SysV segments and shared anonymous memory lie in, as smaps calls it."""
    descriptor = os.memfd_create("fornada-device", os.MFD_CLOEXEC)
    try:
        device = os.fstat(descriptor).st_dev
    finally:
        os.close(descriptor)
    return f"{os.major(device):02x}:{os.minor(device):02x}".encode()


def _anonymous(proc: Path, pid: int) -> int:
    with contextlib.suppress(OSError, IndexError, ValueError):
        _, resident, shared = _read(f"{proc}/{pid}/statm").split()[:3]
        return (int(resident) - int(shared)) * _PAGE
    return 0


def _memory_files(proc: Path, pids: Sequence[int]) -> int:
    """What lies in the memfds that the processes have open, mapped or not."""
    blocks: dict[tuple[int, int], int] = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            for entry in os.scandir(f"{proc}/{pid}/fd"):
                with contextlib.suppress(OSError):
                    if os.readlink(entry.path).startswith("/memfd:"):
                        status = os.stat(entry.path)
                        blocks[status.st_dev, status.st_ino] = status.st_blocks
    return sum(blocks.values()) * 512


def _taken(folder: int) -> int:
    status = os.statvfs(folder)
    return (status.f_blocks - status.f_bfree) * status.f_frsize


def _read(path: str) -> bytes:
    """All of these files fit into one page."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 4096)
    finally:
        os.close(descriptor)
