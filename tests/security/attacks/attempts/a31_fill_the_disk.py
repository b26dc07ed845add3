"""Writes files until it can't; three times the scratch that its model.toml declares is enough to say that nothing stops it."""

import contextlib
import errno
import mmap
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from fornada_sdk import Context
from tests.security.attacks.verdict import Told, Verdict, refused, worked

WALL = "ENOSPC or EFBIG (memory of its own); else the node's look at the folder"
BOMB = True
MAY_DIE = True

RESOURCES = {"device": "cpu", "memory": "512MiB"}
"""So that a disk that is memory isn't held by the bound of memory."""

STEP = 1024 * 1024
FILE = 4 * STEP
SMALL = 4096
FOR_A_NAME = 1024
"""Bytes that a name without content is taken for: what the kernel keeps of it, or a disk sets aside."""
ATTRIBUTE = 60_000


def _one_file(folder: Path) -> Iterator[int]:
    with open(folder / "one", "wb", buffering=0) as file:
        while True:
            yield file.write(bytes(STEP))


def _many_files(folder: Path) -> Iterator[int]:
    for number in range(10**9):
        yield from _filled(folder / str(number))


def _nameless(folder: Path) -> Iterator[int]:
    held = []
    for number in range(10**9):
        held.append(os.open(folder / str(number), os.O_RDWR | os.O_CREAT))
        os.unlink(folder / str(number))
        yield from _written(held[-1])


def _never_named(folder: Path) -> Iterator[int]:
    held = []
    while True:
        held.append(os.open(folder, os.O_RDWR | os.O_TMPFILE))
        yield from _written(held[-1])


def _mapped_alone(folder: Path) -> Iterator[int]:
    """No descriptor shows these: they are closed. The first page is all that is mapped of each."""
    held = []
    for number in range(10**9):
        descriptor = os.open(folder / str(number), os.O_RDWR | os.O_CREAT)
        os.unlink(folder / str(number))
        yield from _written(descriptor)
        held.append(mmap.mmap(descriptor, SMALL))  # holds a copy of the descriptor, which is closed below
        os.close(descriptor)
        _close_copies(folder)


def _close_copies(folder: Path) -> None:
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").startswith(f"{folder}/"):
                os.close(int(name))


def _under_way(folder: Path) -> Iterator[int]:
    """Nobody has these open: they wait in a socket."""
    pairs = []
    for number in range(10**9):
        descriptor = os.open(folder / str(number), os.O_RDWR | os.O_CREAT)
        os.unlink(folder / str(number))
        yield from _written(descriptor)
        pairs.append(socket.socketpair())
        socket.send_fds(pairs[-1][0], [b"x"], [descriptor])
        os.close(descriptor)


def _sparse(folder: Path) -> Iterator[int]:
    """Large at once, and filled through memory."""
    held = []
    for number in range(10**9):
        with open(folder / str(number), "wb+") as file:
            os.ftruncate(file.fileno(), FILE)
            os.posix_fallocate(file.fileno(), 0, FILE)  # else a full disk would be a signal, and not an error
            held.append(mmap.mmap(file.fileno(), FILE))
        for begin in range(0, FILE, STEP):
            held[-1][begin : begin + STEP] = bytes(STEP)
            yield STEP


def _allocated(folder: Path) -> Iterator[int]:
    for number in range(10**9):
        with open(folder / str(number), "wb") as file:
            os.posix_fallocate(file.fileno(), 0, FILE)
        yield FILE


def _small_files(folder: Path) -> Iterator[int]:
    for number in range(10**9):
        (folder / str(number)).write_bytes(bytes(SMALL))
        yield SMALL


def _names(folder: Path) -> Iterator[int]:
    """Files without content, folders, and links; a thousand in each folder: a file may have some 65000 names in all."""
    for number in range(10**9):
        there = folder / str(number // 1000)
        path = there / str(number)
        if number % 1000 == 0:
            there.mkdir()
            (there / "file").touch()
        elif number % 4 == 0:
            path.mkdir()
        elif number % 4 == 1:
            os.symlink("nowhere", path)
        elif number % 4 == 2:
            os.link(there / "file", path)
        else:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT))
        yield FOR_A_NAME


def _attributes(folder: Path) -> Iterator[int]:
    for number in range(10**9):
        (folder / str(number)).touch()
        os.setxattr(folder / str(number), "user.a", bytes(ATTRIBUTE))
        yield ATTRIBUTE


def _filled(path: Path) -> Iterator[int]:
    with open(path, "wb", buffering=0) as file:
        yield from _written(file.fileno())


def _written(descriptor: int) -> Iterator[int]:
    for _ in range(FILE // STEP):
        yield os.write(descriptor, bytes(STEP))


WAYS: "dict[str, Callable[[Path], Iterator[int]]]" = {
    "one file": _one_file,
    "many files": _many_files,
    "files without a name": _nameless,
    "files that never had a name": _never_named,
    "files that are only mapped": _mapped_alone,
    "files on their way": _under_way,
    "files filled through memory": _sparse,
    "files without content": _allocated,
    "small files": _small_files,
    "names": _names,
    "attributes": _attributes,
}
PARTS = tuple(WAYS)


def attempt(context: Context, told: Told) -> Verdict:
    folder = context.scratch / "full"
    folder.mkdir()
    declared, written, wall = told["scratch_bytes"], 0, ""
    way = WAYS[told["part"]](folder)
    try:
        for more in way:
            written += more
            if written >= 3 * declared:
                break
    except OSError as error:
        wall = errno.errorcode.get(error.errno or 0, str(error))
    time.sleep(0.2 if wall else 2)  # time for a watchdog, where that is what stops it
    if wall and written <= 1.25 * declared:
        return refused(f"{wall} after {written // STEP} MiB")
    return worked(f"{written // STEP} MiB, {declared // STEP} declared")
