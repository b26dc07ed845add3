"""What an instance sees as the machine: /proc/meminfo and /proc/cpuinfo of its own limits, as files to be mounted over the real ones.

Libraries size their caches and pools by these two. `os.sysconf` asks the kernel instead and isn't deceived: whatever starts a model
also tells it its limits in the environment. A memfd can't be mounted (EINVAL: its file system is mounted nowhere), and neither can
a file that has no name (ENOENT), so these lie in a folder of the keeper's.
"""

import contextlib
import math
import os
from pathlib import Path

RHYTHM_S = 1.0
"""How often `rewrite` is worth calling: as often as people's tools look."""
_KIB = 1024
_WIDTH = 12
"""Digits of every number, so that the text's length never changes: a reader in the middle would miss a line otherwise."""


class LimitsView:
    """The two files of one instance, to be mounted read-only: everybody may read them. Raises OSError."""

    def __init__(self, folder: Path, name: str, *, memory_bytes: int, cpus: float, proc: Path = Path("/proc")) -> None:
        """`folder` is the keeper's alone and better in memory than on a disk; `name` is new in it, or left by a dead keeper.

        Each limit that is 0 leaves the machine's own file: there is none of ours then.
        """
        self.meminfo = folder / f"{name}.meminfo" if memory_bytes else None
        self.cpuinfo = folder / f"{name}.cpuinfo" if cpus else None
        self._proc = proc
        self._memory_bytes = memory_bytes
        self._written = b""
        self._open = -1
        try:
            if self.meminfo is not None:
                self._open = _made(self.meminfo)
                self.rewrite(0)
            if self.cpuinfo is not None:
                descriptor = _made(self.cpuinfo)
                try:
                    text = (proc / "cpuinfo").read_text(encoding="utf-8", errors="replace")
                    os.write(descriptor, render_cpuinfo(text, cpus).encode())
                finally:
                    os.close(descriptor)
        except OSError:
            self.close()
            raise

    def rewrite(self, used_bytes: int) -> None:
        """What the instance uses now, as `Group.memory_bytes` counts it. Costs some tens of microseconds."""
        if self._open < 0:
            return
        machine = (self._proc / "meminfo").read_text(encoding="ascii", errors="replace")
        text = render_meminfo(machine, limit_bytes=self._memory_bytes, used_bytes=used_bytes).encode()
        if text != self._written:
            os.pwrite(self._open, text, 0)
            self._written = text

    def close(self) -> None:
        """Removes the files. Where they are mounted they stay as they are, until the last of those mounts goes."""
        for path in (self.meminfo, self.cpuinfo):
            if path is not None:
                path.unlink(missing_ok=True)
        if self._open >= 0:
            os.close(self._open)
            self._open = -1


def render_meminfo(machine: str, *, limit_bytes: int, used_bytes: int) -> str:
    """/proc/meminfo (proc_meminfo(5)) of a machine as large as the limit, in which nobody else uses anything.

    `machine` is the real one's: no more can be had than is free there, whatever the limit says. Page cache that can be taken back
    counts as free, and the text always has the same length.
    """
    real = _kib(machine)
    total = min(limit_bytes // _KIB, real.get("MemTotal", limit_bytes // _KIB))
    used = min(max(0, used_bytes) // _KIB, total)
    free = total - used
    numbers = {
        "MemTotal": total,
        "MemFree": free,
        "MemAvailable": min(free, real.get("MemAvailable", free)),
        "Buffers": 0,
        "Cached": 0,
        "SwapCached": 0,
        "Active": used,
        "Inactive": 0,
        "Active(anon)": used,
        "Inactive(anon)": 0,
        "Active(file)": 0,
        "Inactive(file)": 0,
        "Unevictable": 0,
        "Mlocked": 0,
        "SwapTotal": 0,
        "SwapFree": 0,
        "Dirty": 0,
        "Writeback": 0,
        "AnonPages": used,
        "Mapped": 0,
        "Shmem": 0,
        "KReclaimable": 0,
        "Slab": 0,
        "SReclaimable": 0,
        "SUnreclaim": 0,
        "CommitLimit": total,
        "Committed_AS": used,
        "Hugepagesize": real.get("Hugepagesize", 2048),
    }
    return "".join(f"{name + ':':<16}{number:>{_WIDTH}} kB\n" for name, number in numbers.items())


def render_cpuinfo(machine: str, cpus: float) -> str:
    """The first of the machine's processors, as many as the limit begins to use, at least one."""
    wanted = max(1, math.ceil(cpus))
    kept, seen = [], 0
    for block in machine.rstrip("\n").split("\n\n"):
        is_processor = block.startswith("processor")
        seen += is_processor
        if not is_processor or seen <= wanted:  # arm's last block is about the machine
            kept.append(block)
    count = min(seen, wanted)
    return "\n\n".join("\n".join(_counted(line, count) for line in block.split("\n")) for block in kept) + "\n\n"


def _counted(line: str, count: int) -> str:
    """Lines in which a processor says how many it is one of."""
    name, colon, value = line.partition(":")
    if name.strip() in ("siblings", "cpu cores") and value.strip().isdigit():
        return f"{name}{colon} {min(int(value), count)}"
    return line


def _kib(text: str) -> dict[str, int]:
    found = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        with contextlib.suppress(IndexError, ValueError):
            found[name] = int(words[0])
    return found


def _made(path: Path) -> int:
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o444)
    os.fchmod(descriptor, 0o444)  # whatever the umask is
    return descriptor
