"""Takes memory until it can't; three times what its model.toml declares is enough to say that nothing stops it."""

import contextlib
import ctypes
import mmap
import os
import socket
import time
from collections.abc import Iterator

from fornada_sdk import Context
from tests.security.attacks.kernel import call
from tests.security.attacks.verdict import Told, Verdict, refused, worked

WALL = "killed for memory, or MemoryError"
BOMB = True
MAY_DIE = True
PARTS = ("heap", "mapping", "memfd", "segments", "sockets")
"""The last two are no process's: System V segments that nobody is attached to, and what waits in sockets."""

STEP = 16 * 1024 * 1024
IPC_PRIVATE = 0
PACKET = 64 * 1024


def attempt(context: Context, told: Told) -> Verdict:
    held: list[object] = []
    enough = 3 * told["memory_bytes"]
    taken = 0
    try:
        for piece in _pieces(told["part"]):
            held.append(piece)
            taken += STEP
            if taken >= enough:
                break
        time.sleep(2)  # time for a watchdog, where that is what stops it
    except (MemoryError, OSError) as error:
        count = taken // 2**20
        held.clear()
        if taken <= told["memory_bytes"]:
            return refused(f"{type(error).__name__} after {count} MiB")
        return worked(f"{count} MiB, then {type(error).__name__}")
    return worked(f"{taken // 2**20} MiB, {told['memory_bytes'] // 2**20} declared")


def _pieces(part: str) -> Iterator[object]:
    """Memory that is really there: every page was written to."""
    if part == "heap":
        while True:
            yield bytearray(b"x") * STEP
    if part == "mapping":
        while True:
            area = mmap.mmap(-1, STEP)  # shared: no part of the data segment
            area.write(b"x" * STEP)
            yield area
    if part == "segments":
        while True:
            segment = call("shmget", IPC_PRIVATE, STEP, 0o600)
            address = call("shmat", segment, 0, 0)
            ctypes.memset(address, 120, STEP)
            call("shmdt", address)
            yield segment
    if part == "sockets":
        while True:
            pairs: list[object] = []
            held = 0
            while held < STEP:
                pair, more = _filled_pair()
                pairs.append(pair)
                held += more
            yield pairs
    while True:
        file = open(os.memfd_create("bomb"), "wb", buffering=0)  # noqa: SIM115 - it stays open
        file.write(b"x" * STEP)
        yield file


def _filled_pair() -> "tuple[tuple[socket.socket, socket.socket], int]":
    """With how many bytes wait in it. Raises OSError when no descriptors are left."""
    pair = socket.socketpair()
    held = 0
    for end in pair:
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        with contextlib.suppress(BlockingIOError):
            while True:
                held += end.send(b"x" * PACKET)
    return pair, held
