"""What the kernel and the node's folders hold for a node's walls: what must be the same before and after, and nothing at the end."""

import contextlib
import functools
import os
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from fornada.keeper.cgroups.tree import node_name
from fornada.keeper.levels import Level
from tests.bounds import bound
from tests.harness.processes import descriptors
from tests.harness.waiting import until

CGROUPS = Path("/sys/fs/cgroup")
LACKING = """
import sys
from fornada.keeper import levels, probes
print("; ".join(map(str, levels.missing(probes.look(), levels.Level(sys.argv[1])))))
"""  # in a process of one thread


class Held(NamedTuple):
    """Of one node, at rest."""

    descriptors: tuple[int, ...]
    """Of the keeper and of the control plane."""
    mounts: int
    """In the keeper's mount namespace."""
    groups: frozenset[str]
    views: frozenset[str]
    """Files in run/limits, which only the keeper sees."""
    scratch: frozenset[str]


def held(data_dir: Path, keeper: int, *others: int) -> Held:
    root = Path(f"/proc/{keeper}/root")
    return Held(
        tuple(descriptors(pid) for pid in (keeper, *others)),
        len(Path(f"/proc/{keeper}/mountinfo").read_text().splitlines()),
        frozenset(str(path) for path in groups(data_dir)),
        _names(Path(f"{root}{data_dir}/run/limits")),
        _names(data_dir / "scratch"),
    )


def at_rest(data_dir: Path, keeper: int, *others: int) -> Held:
    """The same, once it doesn't change for a moment: what ended may still be on its way out."""
    before = held(data_dir, keeper, *others)

    def settled() -> bool:
        nonlocal before
        last, before = before, held(data_dir, keeper, *others)
        return last == before

    until(settled, within_s=5, what="what the node holds stays the same", every_s=0.2)
    return before


def no_more_open(before: Held, *pids: int) -> None:
    """Waits until none of the processes has more descriptors open than `before` says of them, in its order: what comes and goes, such as a
    look at a spare, may be in between; what leaks stays, and is named. Raises AssertionError."""

    def none_more() -> bool:
        return all(descriptors(pid) <= then for pid, then in zip(pids, before.descriptors, strict=True))

    try:
        until(none_more, within_s=10, what="as few descriptors are open as before", every_s=0.1)
    except TimeoutError:
        found = {pid: sorted(_open_files(pid)) for pid in pids}
        raise AssertionError(f"open before: {before.descriptors}; open now: {found}") from None


def _open_files(pid: int) -> Iterator[str]:
    for number in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            yield os.readlink(f"/proc/{pid}/fd/{number}")


def groups(data_dir: Path) -> list[Path]:
    """Cgroup folders of instances, whatever hierarchy they are in."""
    return [path for top in tops(data_dir) for path in top.iterdir() if path.is_dir() and path.name.startswith("i-")]


def tops(data_dir: Path) -> list[Path]:
    """The node's own folders among the cgroups."""
    return named(node_name(data_dir))


def named(name: str) -> list[Path]:
    """The folders of that name among the cgroups."""
    return [Path(folder) / name for folder, below, _ in os.walk(CGROUPS) if name in below]


def remove_groups(data_dir: Path) -> None:
    """For a node that was killed and gets no next start, which would do it: tests leave nothing on the machine. Nothing of it may live."""
    if data_dir.is_dir():
        remove_named(node_name(data_dir))


def remove_named(name: str) -> None:
    for top in named(name):
        for folder, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)


def uid(pid: int) -> int:
    """Of a process, as it is called out here."""
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("Uid:")]
    return int(line.split()[1])


@functools.cache
def lacking(level: Level) -> str:
    """Why this machine doesn't offer the level to who runs the tests; empty where it does."""
    done = subprocess.run([sys.executable, "-I", "-c", LACKING, level], capture_output=True, text=True, timeout=bound(30), check=True)
    return done.stdout.strip()


def _names(folder: Path) -> frozenset[str]:
    names: Collection[str] = os.listdir(folder) if folder.is_dir() else ()
    return frozenset(names)
