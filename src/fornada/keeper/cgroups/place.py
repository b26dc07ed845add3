"""Where groups can be made: the own cgroup in each hierarchy, or why there is no such place. Nothing is changed here."""

import dataclasses
import enum
import os
from collections.abc import Iterable
from pathlib import Path

NEEDED = frozenset({"memory", "pids"})
"""Without both a model could take the whole machine, so there is no use in the rest."""
WANTED = ("memory", "pids", "cpu", "cpuacct")
"""cpuacct is version 1's; in version 2 every group counts its CPU time."""
LEAF = "keeper"
"""Version 2 wants processes in the leaves only: the node's own live in this one, beside the instances'."""
DELEGATED = ("trusted.delegate", "user.delegate")
"""Marks that systemd sets on a cgroup which it leaves to the service or scope (Delegate=yes)."""
ADVICE_USER = "run the node in a scope of its own: systemd-run --user --scope -p Delegate=yes fornada serve"
ADVICE_ROOT = "set Delegate=yes in the node's unit, or use systemd-run --scope -p Delegate=yes fornada serve"
ADVICE_CONTAINER = "a container's cgroups are read-only unless it is privileged or gets /sys/fs/cgroup writable"


class Version(enum.Enum):
    V1 = 1
    V2 = 2


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Folders that exist and may be written."""

    version: Version
    folders: dict[str, Path]
    """Controller -> where the node's folder goes. In version 2 all are the same."""

    @property
    def controllers(self) -> tuple[str, ...]:
        return tuple(sorted(self.folders))


@dataclasses.dataclass(frozen=True, slots=True)
class NoPlace:
    """Why groups can't be made, and what would change that."""

    why: str
    advice: str


@dataclasses.dataclass(frozen=True, slots=True)
class _Mount:
    version: Version
    controllers: frozenset[str]
    root: str
    point: Path


def find(node: str, *, ours: Iterable[int] = (), wanted: Iterable[str] = WANTED, root: Path = Path("/")) -> Place | NoPlace:
    """Looks from the calling process.

    `node` is the name of the node's folder; `ours` are processes beside the caller that will move into the leaf of their own accord.
    """
    mounts = _mounts(root)
    paths = _memberships(root)
    if not mounts:
        return NoPlace("no cgroup file system is mounted", "mount one at /sys/fs/cgroup")
    needed = NEEDED & set(wanted) or set(wanted)
    first: dict[str, Path] = {}
    for controller in wanted:
        if folder := _own(mounts, paths, controller, Version.V1):
            first[controller] = folder
    if needed <= first.keys():
        return _usable_v1(Place(Version.V1, first))
    folder = _own(mounts, paths, "", Version.V2)
    if folder is None:
        return NoPlace("this process's cgroup lies outside of what is mounted", "mount the cgroup file system of this namespace")
    if folder.parent.name == node and folder.name == LEAF:
        folder = folder.parent.parent
    offered = set(_text(folder / "cgroup.controllers").split())
    if not needed <= offered:
        lacking = ", ".join(sorted(needed - offered))
        return NoPlace(f"{folder} offers no {lacking} controller", _delegation())
    return _usable_v2(folder, node, {os.getpid(), *ours}, sorted(offered & set(wanted)), root)


def _usable_v1(place: Place) -> Place | NoPlace:
    for folder in dict.fromkeys(place.folders.values()):
        if not _writable(folder):
            return _refused(folder, "run the node as root, or give it a cgroup of its own in each hierarchy")
    return place


def _usable_v2(folder: Path, node: str, ours: set[int], controllers: list[str], root: Path) -> Place | NoPlace:
    for path in (folder, folder / "cgroup.procs", folder / "cgroup.subtree_control"):
        if not _writable(path):
            return _refused(path, _delegation())
    if (folder / "cgroup.type").exists():  # the machine's root, which is no delegate and may hold processes, hasn't got it
        systemd = (root / "run/systemd/system").exists()
        if os.geteuid() == 0 and systemd and not _delegated(folder):
            return NoPlace(f"{folder} belongs to systemd", ADVICE_ROOT)
        strangers = set(map(int, _text(folder / "cgroup.procs").split())) - ours
        if strangers:
            pids = ", ".join(str(pid) for pid in sorted(strangers)[:3] if pid)
            return NoPlace(f"{folder} holds other processes{f' ({pids})' if pids else ''} beside the node", _delegation())
    return Place(Version.V2, dict.fromkeys(controllers, folder))


def _delegation() -> str:
    return ADVICE_USER if os.geteuid() else ADVICE_ROOT


def _refused(path: Path, advice: str) -> NoPlace:
    try:
        if os.statvfs(path).f_flag & os.ST_RDONLY:
            return NoPlace(f"{path} is mounted read-only", ADVICE_CONTAINER)
    except OSError as error:
        return NoPlace(f"{path}: {error.strerror}", advice)
    return NoPlace(f"{path} may not be written by uid {os.geteuid()}", advice)


def _writable(path: Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=True)


def _delegated(folder: Path) -> bool:
    for mark in DELEGATED:
        try:
            if os.getxattr(folder, mark) == b"1":
                return True
        except OSError:
            continue
    return False


def _mounts(root: Path) -> list[_Mount]:
    """proc_pid_mountinfo(5): id parent major:minor root point options [optional ...] - type source options."""
    found = []
    for line in _text(root / "proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if len(fields) < 5 or not kind or kind[0] not in ("cgroup", "cgroup2"):
            continue
        version = Version.V1 if kind[0] == "cgroup" else Version.V2
        controllers = frozenset(kind[-1].split(",")) if version is Version.V1 else frozenset({""})
        found.append(_Mount(version, controllers, fields[3], root / fields[4].lstrip("/")))
    return found


def _memberships(root: Path) -> dict[str, str]:
    """Controller -> path of the own cgroup; "" is version 2."""
    found = {}
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        found.update(dict.fromkeys(controllers.split(","), path))
    return found


def _own(mounts: list[_Mount], paths: dict[str, str], controller: str, version: Version) -> Path | None:
    """The folder of the own cgroup. A container may have only its own part of the hierarchy mounted."""
    path = paths.get(controller)
    for mount in mounts:
        if path is None or mount.version is not version or controller not in mount.controllers:
            continue
        above = mount.root.rstrip("/")
        if path == mount.root or path.startswith(above + "/"):
            below = path[len(above) :].strip("/")
            if ".." not in below.split("/") and (mount.point / below).is_dir():
                return mount.point / below
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
