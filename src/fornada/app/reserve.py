"""Room on the disk that is kept for ending keys: on a full one nobody could be shut out any more.

Each start of a control plane takes it, and each command about keys, once there is room again.
"""

import contextlib
import os
from pathlib import Path

RESERVE = "reserve"
BYTES = 512 * 1024
"""What opening the store takes (its log and the log's index), a changed key, and its line in the audit, several times over."""


def keep(folder: Path) -> None:
    """Takes the room where it isn't taken yet. A disk that hasn't as much is left as it is."""
    path = folder / RESERVE
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            if os.fstat(descriptor).st_size < BYTES:
                os.posix_fallocate(descriptor, 0, BYTES)
        except OSError:
            path.unlink()
        finally:
            os.close(descriptor)


def spend(folder: Path) -> None:
    """Gives it back to the disk if there is less than that left."""
    with contextlib.suppress(OSError):
        found = os.statvfs(folder)
        if found.f_bavail * found.f_frsize < BYTES:
            (folder / RESERVE).unlink(missing_ok=True)
