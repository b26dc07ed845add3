"""What the kernel says of a connection over IPv4 on this machine: what was sent and hasn't been read yet."""

import os
import random
import socket
import time
from pathlib import Path

from tests.harness.waiting import until


def unread(ours: socket.socket) -> int:
    """Bytes that were sent on it and that no process has read at its other end, wherever they are meanwhile."""
    here, there = ours.getsockname(), ours.getpeername()
    queues = {(local, remote): (sent, received) for local, remote, sent, received in _established()}
    on_their_way, _ = queues[_name(here), _name(there)]
    _, waiting = queues[_name(there), _name(here)]
    return on_their_way + waiting


def wait_read(ours: socket.socket, *, what: str = "the other end has read what was sent") -> None:
    """Waits until nothing is on its way any more."""
    until(lambda: unread(ours) == 0, within_s=5, what=what, every_s=0.002)


def _name(address: tuple[str, int]) -> str:
    """As /proc/net/tcp spells it: the four bytes as a number of this machine, then the port."""
    return f"{int.from_bytes(socket.inet_aton(address[0]), 'little'):08X}:{address[1]:04X}"


def _established() -> list[tuple[str, str, int, int]]:
    """(local, remote, bytes that aren't acknowledged, bytes that aren't read) of each."""
    found = []
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, _state, queues, *_ = line.split()
        sent, received = (int(part, 16) for part in queues.split(":"))
        found.append((local, remote, sent, received))
    return found


def free_port() -> int:
    """A port of 127.0.0.1 for a server that can't be told to take any: below those that the kernel gives to connections, so that none of
    another test takes it meanwhile."""
    chance = random.Random(f"{os.getpid()} {time.monotonic_ns()}")
    while True:
        port = chance.randrange(12_000, 32_000)
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
