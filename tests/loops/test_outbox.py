"""What is to be sent to a runner isn't lost where the kernel can't take it for now."""

import asyncio
import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fornada.node import outbox
from fornada.node.outbox import Outbox
from fornada_sdk.wire.framing import frame, split
from fornada_sdk.wire.messages import Kind
from tests.bounds import bound


class Starved:
    """A kernel without memory for packets, for so many tries. There is no way to make a real one."""

    def __init__(self, times: int, number: int) -> None:
        self.left = times
        self._number = number

    def write(self, descriptor: int, packet: bytes) -> int:
        if self.left:
            self.left -= 1
            raise OSError(self._number, os.strerror(self._number))
        return os.write(descriptor, packet)


@contextmanager
def box() -> Iterator[tuple[Outbox, socket.socket, asyncio.Event]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    theirs.setblocking(False)
    room = asyncio.Event()
    made = Outbox(ours.fileno(), is_open=lambda: True, on_room=room.set, loop=asyncio.get_running_loop())
    try:
        yield made, theirs, room
    finally:
        made.close()
        ours.close()
        theirs.close()


def requests(sock: socket.socket) -> list[int]:
    """Ids of the frames that have come."""
    found = []
    while True:
        try:
            found += [request for _, _, _, request, _ in split(sock.recv(65536))]
        except BlockingIOError:
            return found


@pytest.mark.parametrize("number", [errno.ENOBUFS, errno.ENOMEM])
async def test_want_of_memory_in_the_kernel_delays_a_packet_and_loses_none(monkeypatch: pytest.MonkeyPatch, number: int):
    with box() as (made, theirs, room):
        monkeypatch.setattr(outbox, "os", Starved(3, number))
        for request in (1, 2):
            made.put(frame(Kind.CREDIT, request, b"\0\0\0\0"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert made.blocked
        assert requests(theirs) == []
        made.put(frame(Kind.CREDIT, 3, b"\0\0\0\0"))
        await asyncio.wait_for(room.wait(), bound(5))
        assert requests(theirs) == [1, 2, 3]
        assert not made.blocked and made.size == 0


async def test_an_outbox_that_is_closed_tries_no_more(monkeypatch: pytest.MonkeyPatch):
    with box() as (made, _, room):
        starved = Starved(1000, errno.ENOBUFS)
        monkeypatch.setattr(outbox, "os", starved)
        made.put(frame(Kind.CANCEL, 1))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        made.close()
        left = starved.left
        await asyncio.sleep(4 * outbox.AGAIN_S)
        assert starved.left == left and not room.is_set()


async def test_a_full_socket_delays_packets_in_their_order():
    with box() as (made, theirs, room):
        for request in range(4000):
            made.put(frame(Kind.CREDIT, request, bytes(1000)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert made.blocked
        came = requests(theirs)
        while not room.is_set():
            await asyncio.sleep(0)
            came += requests(theirs)
        assert came + requests(theirs) == list(range(4000))
