"""One holder at a time of a key, over all processes on this machine: flock on a file, given up by the kernel on any death."""

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

POLL_S = 0.02
LONGEST_POLL_S = 0.5


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
        os.close(descriptor)


@contextlib.contextmanager
def held_if_free(path: Path) -> Iterator[bool]:
    """Whether the lock was free; if so, holds it."""
    descriptor = _try(path)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _try(path: Path) -> int | None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
