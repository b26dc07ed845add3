"""The node's folder of groups: made at the start, swept of what a dead keeper left, removed at the end.

A live node holds a lock on it in every hierarchy. What nobody holds a lock on belongs to a node that was killed, and whose data directory
may never see another start: any node that starts beside it removes it, unless a process is in it.
"""

import contextlib
import fcntl
import hashlib
import os
import re
from pathlib import Path
from typing import assert_never

from fornada.keeper.cgroups import files, v1, v2
from fornada.keeper.cgroups.group import Bounds, Group
from fornada.keeper.cgroups.place import LEAF, Place, Version

PREFIX = "fornada-node-"
"""Not "fornada-" alone: releases that called theirs so held no locks."""
NAME_MOST = 100
PROBE_PREFIX = "fornada-probe-"
"""Of folders that a start makes and removes at once, to see whether it can: nobody minds when another removes them."""
_OURS = re.compile(rf"{PREFIX}[0-9a-f]{{16}}|{PROBE_PREFIX}[0-9]+")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def node_name(data_dir: Path) -> str:
    """What the node's folder is called: its data directory's own, so that nodes beside one another leave each other alone.

    Of the directory itself rather than of its path: that may be the same in two containers. Raises OSError.
    """
    status = os.stat(data_dir)
    identity = f"{os.path.realpath(data_dir)}\0{status.st_dev}\0{status.st_ino}"
    return PREFIX + hashlib.sha256(identity.encode()).hexdigest()[:16]


class Tree:
    """The groups of one node. Only one process may make and remove them at a time: who holds the data directory's lock."""

    def __init__(self, place: Place, node: str) -> None:
        """Makes the node's folders, and removes those of dead nodes beside them; what is in its own already stays. In version 2 the
        caller moves into the leaf. Raises CgroupError."""
        self.place = place
        self._roots = {controller: folder / node for controller, folder in place.folders.items()}
        self._distinct = list(dict.fromkeys(self._roots.values()))
        self._live: set[str] = set()
        self._divided: list[tuple[Path, str]] = []
        """Files and controllers that we switched on, in this order."""
        self._locks = [_held(folder) for folder in self._distinct]
        remove_dead(place)
        if place.version is Version.V2:
            self._enter()

    def _enter(self) -> None:
        """The caller and what it forks from now on live in the leaf: a cgroup can't both hold processes and divide its controllers."""
        (folder,) = self._distinct
        leaf = folder / LEAF
        files.make(leaf)
        files.write(leaf / "cgroup.procs", "0")
        for above in (folder.parent, folder):
            control = above / "cgroup.subtree_control"
            for controller in sorted(set(self.place.controllers) - set(files.read(control).split())):
                files.write(control, f"+{controller}")  # one by one: a refusal then names the one
                self._divided.append((control, controller))

    def create(self, name: str, bounds: Bounds) -> Group:
        """A new, empty group. Raises CgroupError; nothing is left then."""
        folder_name = _folder_name(name)
        folders = {controller: root / folder_name for controller, root in self._roots.items()}
        distinct = list(dict.fromkeys(folders.values()))
        group: Group | None = None
        try:
            for folder in distinct:
                if folder.exists():
                    raise files.CgroupError(f"{folder} is there already")
            for folder in distinct:
                files.make(folder)
            match self.place.version:
                case Version.V1:
                    group = v1.GroupV1(name, folders)
                case Version.V2:
                    group = v2.GroupV2(name, distinct[0])
                case _:
                    assert_never(self.place.version)
            group.bound(bounds)
        except files.CgroupError:
            if group is not None:
                group.close()
            with contextlib.suppress(files.CgroupError):
                for folder in distinct:
                    files.gone(folder)
            raise
        self._live.add(folder_name)
        return group

    def forget(self, group: Group) -> bool:
        """Kills what is left in the group and removes it. False while processes in it are dying: ask again. Raises CgroupError."""
        if group.remove():
            self._live.discard(_folder_name(group.name))
            return True
        group.kill()
        return False

    def sweep(self) -> list[str]:
        """Kills and removes groups that a dead keeper left. The names of those still dying: ask again until there are none.

        Raises CgroupError.
        """
        return [name for name in self._names() if name not in self._live and not self._swept(name)]

    def _names(self) -> list[str]:
        found: set[str] = set()
        for folder in self._distinct:
            with contextlib.suppress(FileNotFoundError):
                found.update(entry.name for entry in os.scandir(folder) if entry.is_dir() and entry.name != LEAF)
        return sorted(found)

    def _swept(self, name: str) -> bool:
        folders = {controller: root / name for controller, root in self._roots.items() if (root / name).exists()}
        distinct = list(dict.fromkeys(folders.values()))
        if not [folder for folder in distinct if not files.gone(folder)]:
            return True
        match self.place.version:
            case Version.V1:
                v1.kill(folders)
            case Version.V2:
                v2.kill(distinct[0])
            case _:
                assert_never(self.place.version)
        return False

    def close(self) -> bool:
        """At the end, when no group is left: removes the node's folders, moving the caller out. False if something is still in them.

        Raises CgroupError.
        """
        if self.place.version is Version.V2:
            (folder,) = self._distinct
            with contextlib.suppress(files.CgroupError):  # somebody beside us may divide the same controller: then we stay
                while self._divided:
                    control, controller = self._divided[-1]
                    files.write(control, f"-{controller}")
                    self._divided.pop()
                files.write(folder.parent / "cgroup.procs", "0")
            if not files.gone(folder / LEAF):
                return False
        left = [folder for folder in self._distinct if not files.gone(folder)]
        while self._locks and not left:
            os.close(self._locks.pop())
        return not left


def remove_dead(place: Place) -> None:
    """Folders of nodes and starts that live no more, as far as they are the caller's to remove and no process is in them."""
    for above in dict.fromkeys(place.folders.values()):
        with contextlib.suppress(OSError):
            for name in [entry.name for entry in os.scandir(above) if _OURS.fullmatch(entry.name)]:
                with contextlib.suppress(OSError):
                    _remove_dead(above / name)


def _remove_dead(folder: Path) -> None:
    descriptor = os.open(folder, _FOLDER)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for entry in list(os.scandir(descriptor)):
            if entry.is_dir(follow_symlinks=False):
                os.rmdir(entry.name, dir_fd=descriptor)
        os.rmdir(folder)
    finally:
        os.close(descriptor)


def _held(folder: Path) -> int:
    """Makes it; the descriptor holds the lock that says that its node lives. Several processes of a node may. Raises CgroupError."""
    while True:
        files.make(folder)
        with contextlib.ExitStack() as unless_held:
            try:
                descriptor = os.open(folder, _FOLDER)
                unless_held.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_SH)
                if os.path.samestat(os.fstat(descriptor), os.stat(folder)):
                    unless_held.pop_all()
                    return descriptor
            except FileNotFoundError:
                pass  # somebody who starts beside us took it for a dead one's, before it was locked
            except OSError as error:
                raise files.CgroupError(f"can't lock {folder}: {error.strerror}") from None


def _folder_name(name: str) -> str:
    """No name of an instance can be a path, a file of the kernel's or the leaf."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:NAME_MOST]
    if plain != name:
        plain += "-" + hashlib.sha256(name.encode(errors="replace")).hexdigest()[:8]
    return f"i-{plain}"
