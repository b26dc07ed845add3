"""A mark that tells processes of a change: eight bytes of a file, read where they lie in memory.

Who changes something writes a new value after it; who depends on it compares before each use, which costs some ten nanoseconds.
"""

import contextlib
import mmap
import os
from pathlib import Path

from fornada.store.unusable import StoreUnusable

SIZE = 8


def bump(path: Path) -> None:
    """Another value than any before. Where the disk is full it may not be told: readers must look now and then anyway."""
    descriptor = _open(path)
    try:
        with contextlib.suppress(OSError):
            # Drawn, not counted: two processes that count at the same time would write the same.
            os.pwrite(descriptor, os.urandom(SIZE), 0)
    finally:
        os.close(descriptor)


def watch(path: Path) -> memoryview:
    """A view of one integer, the mark as it is at each look. It must be kept; the file is never replaced. Raises StoreUnusable."""
    try:
        descriptor = _open(path)
        try:
            if os.fstat(descriptor).st_size < SIZE:
                os.pwrite(descriptor, bytes(SIZE), 0)
            return memoryview(mmap.mmap(descriptor, SIZE, mmap.MAP_SHARED, mmap.PROT_READ)).cast("Q")
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StoreUnusable(f"{path} can't be used: {error.strerror}") from None


def _open(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    if os.geteuid() == 0:
        # Root may do this for a node of another user, which must be able to write here, too.
        folder = os.stat(path.parent)
        os.fchown(descriptor, folder.st_uid, folder.st_gid)
    return descriptor
