"""The memory that a runner shares with the node, found as an attacker would: among its own descriptors."""

import os


def arenas() -> list[int]:
    """Descriptors of memory files that have a size."""
    found = []
    for descriptor in range(3, 256):
        try:
            if os.readlink(f"/proc/self/fd/{descriptor}").startswith("/memfd:") and os.fstat(descriptor).st_size:
                found.append(descriptor)
        except OSError:
            continue
    return found
