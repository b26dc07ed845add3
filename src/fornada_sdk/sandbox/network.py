"""The one interface that a network namespace of its own has."""

from __future__ import annotations

import fcntl
import socket
import struct

_SIOCGIFFLAGS, _SIOCSIFFLAGS = 0x8913, 0x8914
_IFF_UP = 1
_REQUEST = "16sH22x"  # struct ifreq: a name, flags


def raise_loopback() -> None:
    """Needs CAP_NET_ADMIN over the network namespace. Raises OSError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as any_socket:
        answer = fcntl.ioctl(any_socket, _SIOCGIFFLAGS, struct.pack(_REQUEST, b"lo", 0))
        flags = struct.unpack(_REQUEST, answer)[1]
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack(_REQUEST, b"lo", flags | _IFF_UP))
