"""The data directory: its folders, and the lock that lets one node use it."""

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

FOLDERS = ("run", "environments", "artifacts", "bundles", "logs", "scratch")
NODE_JSON = "run/node.json"
STORE = "store.sqlite"
USAGE = "run/usage"
DYING_S = 5.0
"""How long the processes of a node that was killed may hold the lock on."""
RETRY_S = 0.02


class DataDirectoryRefused(Exception):
    """This directory can't be used. The message is one line: why, and what to do."""


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[int]:
    """Makes the folders (mode 0700), takes the lock and yields its descriptor; the lock is free when its last copy is closed.

    run/node.json, which describes a running node, is removed before and after. Raises DataDirectoryRefused.
    """
    try:
        for path in (folder, *(folder / name for name in FOLDERS)):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in FOLDERS:
            (folder / name).chmod(0o700)
        lock = os.open(folder / "run" / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise _unusable(folder, error) from None
    try:
        _take(lock, folder)
        try:
            os.ftruncate(lock, 0)
            os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
            (folder / NODE_JSON).unlink(missing_ok=True)
        except OSError as error:
            raise _unusable(folder, error) from None
        yield lock
        with contextlib.suppress(OSError):
            (folder / NODE_JSON).unlink(missing_ok=True)
    finally:
        os.close(lock)


def _take(lock: int, folder: Path) -> None:
    until = time.monotonic() + DYING_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            holder = os.pread(lock, 32, 0).decode(errors="replace").strip()
            living = bool(holder) and Path("/proc", holder).exists()  # nothing yet: it has just begun
            if living or time.monotonic() > until:
                raise DataDirectoryRefused(
                    f"{folder} is in use by the node with pid {holder or 'unknown'}; stop that one, or choose another directory with --data-dir"
                ) from None
        except OSError as error:
            raise _unusable(folder, error) from None
        time.sleep(RETRY_S)


def _unusable(folder: Path, error: OSError) -> DataDirectoryRefused:
    place = error.filename or folder
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DataDirectoryRefused(f"no space left for {place}; free some, or choose another directory with --data-dir")
    return DataDirectoryRefused(
        f"{place} can't be written by uid {os.geteuid()}: {error.strerror}; change its owner, or choose another directory with --data-dir"
    )
