"""Writes garbage, oversize packets and descriptors to the sockets that the node gave it."""

import array
import os
import socket
import stat
import time
from collections.abc import Iterator

from fornada_sdk import Context
from fornada_sdk.wire.framing import HEADER, MORE, frame
from fornada_sdk.wire.messages import Kind
from tests.security.attacks.verdict import Told, Verdict, nothing_there, refused

WALL = "the runner is killed, its caller told; the kernel closes what is passed"
SEEN_OUTSIDE = True
MAY_DIE = True

KEEPER = 3
DESCRIPTORS = 250
PARTS = (
    "keeper garbage",
    "keeper oversize",
    "keeper descriptors",
    "keeper order",
    "link garbage",
    "link oversize",
    "link descriptors",
    "link unknown id",
    "link endless body",
)
PATIENCE_S = 3.0
ENDLESS_PARTS, PART_BYTES = 5000, 60_000
"""More than the largest answer that a model may give."""


def packets(what: str) -> Iterator[bytes]:
    match what:
        case "garbage":
            yield from (os.urandom(300) for _ in range(20))
        case "oversize":
            yield bytes(200_000)
        case "descriptors":
            yield b"x"
        case "order":
            yield frame(Kind.SIGNAL, 0, b'{"instance":"*","signal":9}')
            yield frame(Kind.DRAIN, 0, b"{}")
        case "unknown id":
            yield from (frame(Kind.ANSWER, number, b"\x02\0\0\0{}{}") for number in (1, 7 << 40, 2**64 - 1))
        case _:
            for part in range(ENDLESS_PARTS):
                yield HEADER.pack(PART_BYTES, Kind.PART if part else Kind.ANSWER, MORE, part, 5) + bytes(PART_BYTES)


def attempt(context: Context, told: Told) -> Verdict:
    whom, _, what = told["part"].partition(" ")
    found = [KEEPER] if whom == "keeper" else _links()
    if not found:
        return nothing_there("it has no such socket")
    sent = 0
    for descriptor in found:
        with socket.socket(fileno=os.dup(descriptor)) as sock:
            sock.setblocking(False)
            for packet in packets(what):
                if not _sent(sock, packet, DESCRIPTORS if what == "descriptors" else 0):
                    break
                sent += 1
    time.sleep(1)  # the node reads it, and does what it does
    return refused(f"sent {sent} to {len(found)}, and nothing came of it")


def _sent(sock: socket.socket, packet: bytes, descriptors: int) -> bool:
    """Whether it went out: the other side may be slow, or have hung up."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        try:
            _send(sock, packet, descriptors)
        except BlockingIOError:
            time.sleep(0.002)
        except OSError:
            return False
        else:
            return True
    return False


def _send(sock: socket.socket, packet: bytes, descriptors: int) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    passed = array.array("i", [null] * descriptors)
    try:
        sock.sendmsg([packet], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, passed)] if descriptors else [])
    finally:
        os.close(null)


def _links() -> list[int]:
    found = []
    for descriptor in range(KEEPER + 1, 256):
        try:
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                with socket.socket(fileno=os.dup(descriptor)) as sock:
                    if sock.type == socket.SOCK_SEQPACKET:
                        found.append(descriptor)
        except OSError:
            continue
    return found
