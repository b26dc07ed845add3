"""The memory that a runner shares with the node, found as an attacker would: among its own descriptors."""

import os


def arenas() -> dict[int, str]:
    """Descriptors of memory files that have a size, and what they are called."""
    found = {}
    for descriptor in range(3, 256):
        try:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            if path.startswith("/memfd:") and os.fstat(descriptor).st_size:
                found[descriptor] = path.removeprefix("/memfd:").split()[0]
        except OSError:
            continue
    return found
