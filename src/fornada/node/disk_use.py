"""What folders that hostile processes write to take of the disk, and how to be rid of them.

Nothing is followed out of the folder: it is walked by descriptors, and a link is no more than itself. What changes meanwhile is
counted as it is met.
"""

import asyncio
import contextlib
import os
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILES_MOST = 50_000
"""Files and folders together: to look at more would take us longer than it takes to make them."""
FOLDERS_MOST = 5_000
"""Of them: each costs as much as ten files, and what a look doesn't come to in time isn't counted."""
DEEPEST = 64
LONGEST_S = 5.0
"""A disk that is slower than that is counted in part."""
_BLOCK = 512
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_GONE = " (deleted)"
TRIES = 20
"""Of removing one folder."""


@dataclass(slots=True)
class Held:
    """What a folder holds."""

    bytes: int = 0
    """Of the disk, not of what files pretend: holes take nothing, and several names of one file take its blocks once."""
    files: int = 0
    hidden: str = ""
    """Why some of it can't be seen; empty: all was."""


def held(folder: Path, *, files_most: int = FILES_MOST, longest_s: float = LONGEST_S) -> Held:
    """Some microseconds for each file. Ends early where there is more than `files_most`, or at what can't be seen."""
    found = _Count(files_most, time.monotonic() + longest_s)
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, _FOLDER)
        try:
            found.add(descriptor, depth=1)
        finally:
            os.close(descriptor)
    return found.held


class _Count:
    def __init__(self, files_most: int, until: float) -> None:
        self.held = Held()
        self._files_most = files_most
        self._until = until
        self._folders = 0
        self._seen: set[tuple[int, int]] = set()
        """Files with several names."""

    @property
    def _over(self) -> bool:
        return self.held.files > self._files_most or bool(self.held.hidden) or time.monotonic() > self._until

    def add(self, folder: int, *, depth: int) -> None:
        with os.scandir(folder) as entries:
            for entry in entries:
                if self._over:
                    return
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue  # it went away meanwhile
                self.held.files += 1
                self.held.bytes += self._blocks(status)
                if stat.S_ISDIR(status.st_mode):
                    self._into(folder, entry.name, depth)
                else:
                    self.held.bytes += _attributes(folder, entry.name)

    def _blocks(self, status: os.stat_result) -> int:
        if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
            key = (status.st_dev, status.st_ino)
            if key in self._seen:
                return 0
            self._seen.add(key)
        return taken(status)

    def _into(self, folder: int, name: str, depth: int) -> None:
        self._folders += 1
        if self._folders > FOLDERS_MOST:
            self.held.hidden = f"more than {FOLDERS_MOST} folders are in it"
            return
        if depth >= DEEPEST:
            self.held.hidden = f"folders in it are nested more than {DEEPEST} deep"
            return
        try:
            descriptor = os.open(name, _FOLDER, dir_fd=folder)
        except PermissionError:
            self.held.hidden = "a folder in it can't be looked into"
            return
        except OSError:
            return  # no folder any more
        try:
            self.add(descriptor, depth=depth + 1)
        finally:
            os.close(descriptor)


def _attributes(folder: int, name: str) -> int:
    """Bytes of a file's own attributes, which some file systems keep where no count of its blocks shows them."""
    path = f"/proc/self/fd/{folder}/{name}"
    try:
        return sum(len(os.getxattr(path, key, follow_symlinks=False)) for key in os.listxattr(path, follow_symlinks=False))
    except OSError:
        return 0  # none that we may read, a file system without any, or a file that went away


def taken(status: os.stat_result) -> int:
    """Bytes that a file takes of the disk.

    XFS sets as much again aside for a file that grows, and takes it back later: that isn't the writer's doing. More than that is.
    """
    blocks = status.st_blocks * _BLOCK
    return status.st_size if status.st_size < blocks <= 2 * status.st_size else blocks


def held_without_name(folder: Path, *, proc: Path = Path("/proc")) -> dict[str, int]:
    """Bytes of files that lay in `folder` and have no name any more, but are open: by the name of the folder's entry that they lay in.

    Costs some microseconds for each descriptor of all processes that may be looked into. A file that is only mapped, or on its
    way through a socket, isn't seen.
    """
    prefix = f"{folder}/"
    found: dict[str, int] = {}
    seen: set[tuple[int, int]] = set()
    for process in _entries(proc):
        if not process.isdigit():
            continue
        descriptors = f"{proc}/{process}/fd"
        for number in _entries(descriptors):
            with contextlib.suppress(OSError):
                path = os.readlink(f"{descriptors}/{number}")
                if not (path.startswith(prefix) and path.endswith(_GONE)):
                    continue
                status = os.stat(f"{descriptors}/{number}")
                key = (status.st_dev, status.st_ino)
                if status.st_nlink == 0 and key not in seen:
                    seen.add(key)
                    owner = path[len(prefix) :].partition("/")[0]
                    found[owner] = found.get(owner, 0) + taken(status)
    return found


def _entries(folder: str | Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []  # it has ended, or is somebody else's


async def removed(folder: Path) -> None:
    """The same in a thread that nobody waits for at the end: what a model left may take minutes to remove, and a node ends in seconds.
    Whatever is left then goes at the next start."""
    await asyncio.get_running_loop().run_in_executor(_ABANDONED, remove, folder)


class _Abandoned(Executor):
    """A thread for each call, which ends with the process."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> "Future[Any]":
        future: Future[Any] = Future()

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = function(*arguments, **named)
            except BaseException as error:  # noqa: BLE001 - it belongs to whoever awaits it
                future.set_exception(error)
            else:
                future.set_result(result)

        threading.Thread(target=work, daemon=True, name="remove").start()
        return future


_ABANDONED = _Abandoned()


def remove(folder: Path) -> None:
    """All of it, as far as that is possible, however deep and closed its folders are. For a folder that nobody writes to any more.

    Others may be removing parts of it meanwhile.
    """
    with contextlib.suppress(OSError):
        os.chmod(folder, stat.S_IRWXU)
        top = os.open(folder, _FOLDER)
        try:
            _empty(top)
        finally:
            os.close(top)
        os.rmdir(folder)


def _empty(top: int) -> None:
    """Level after level, folders are brought up to the top before they are emptied: no path and no stack becomes as deep as they lie."""
    prefix, number = os.urandom(8).hex(), 0
    tries: Counter[str] = Counter()
    while folders := {name for name in _without_files(top) if tries[name] < TRIES}:
        for name in folders:
            try:
                os.chmod(name, stat.S_IRWXU, dir_fd=top)
                folder = os.open(name, _FOLDER, dir_fd=top)
                try:
                    for below in _without_files(folder):
                        number += 1
                        os.chmod(below, stat.S_IRWXU, dir_fd=folder)  # a folder that may not be written to can't be moved
                        os.rename(below, f"{prefix}-{number}", src_dir_fd=folder, dst_dir_fd=top)
                finally:
                    os.close(folder)
                os.rmdir(name, dir_fd=top)
            except OSError:  # closed for good, or somebody else is removing a part of it at the same time
                tries[name] += 1


def _without_files(folder: int) -> list[str]:
    """The folders in it, once all else in it is gone."""
    folders = []
    with os.scandir(folder) as entries:
        for entry in list(entries):
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            else:
                with contextlib.suppress(OSError):
                    os.unlink(entry.name, dir_fd=folder)
    return folders
