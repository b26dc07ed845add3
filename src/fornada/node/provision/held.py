"""One holder at a time of a key, over all processes on this machine: flock on a file, given up by the kernel on any death.

The file goes with its holder: there would be one for each artifact, environment and bundle that ever was. Only who holds it may remove
it, and a lock counts only on the file that has the name at that moment: whoever opened the file before it was removed tries again.
"""

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

POLL_S = 0.02
LONGEST_POLL_S = 0.5
TRIES = 100


@contextlib.asynccontextmanager
async def held(path: Path) -> AsyncIterator[None]:
    """Waits for the lock and holds it. The caller's own deadline ends the wait."""
    pause = POLL_S
    while True:
        descriptor = _try(path)
        if descriptor is not None:
            break
        await asyncio.sleep(pause)
        pause = min(pause * 2, LONGEST_POLL_S)
    try:
        yield
    finally:
        _give_up(path, descriptor)


@contextlib.contextmanager
def held_if_free(path: Path) -> Iterator[bool]:
    """Whether the lock was free; if so, holds it."""
    descriptor = _try(path)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            _give_up(path, descriptor)


def _try(path: Path) -> int | None:
    path.parent.mkdir(parents=True, exist_ok=True)
    for _ in range(TRIES):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _has_the_name(path, descriptor):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    return None  # others come and go faster than we look: as if it were held


def _has_the_name(path: Path, descriptor: int) -> bool:
    try:
        named, ours = os.stat(path), os.fstat(descriptor)
    except FileNotFoundError:
        return False
    return (named.st_dev, named.st_ino) == (ours.st_dev, ours.st_ino)


def _give_up(path: Path, descriptor: int) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)  # before the lock is free: afterwards it might be the next holder's
    os.close(descriptor)
