"""What a hostile runner may do with its outbound channel: nothing that reaches further, costs more or holds up anybody else."""

import array
import asyncio
import os
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from fornada.node.outbound.gate import CONNECTIONS_MOST
from fornada_sdk.wire.outbound import connect_packet
from tests.bounds import bound, count
from tests.harness.outbound import Crossroads, Host, crossroads, echo, host, never_held_up, within


@pytest.fixture
async def roads(tmp_path: Path) -> AsyncIterator[Crossroads]:
    async with crossroads(tmp_path) as made:
        yield made


@pytest.fixture
async def echoes() -> AsyncIterator[Host]:
    async with host(echo) as made:
        yield made


def send(channel: socket.socket, packet: bytes, descriptors: list[int]) -> None:
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    channel.sendmsg([packet], rights, socket.MSG_DONTWAIT)


async def wish(roads: Crossroads, place: tuple[str, int], theirs: socket.socket) -> None:
    """Sends a wish as soon as the channel takes it."""
    async with asyncio.timeout(bound(20)):
        while True:
            try:
                send(roads.runner, connect_packet(*place), [theirs.fileno()])
                return
            except BlockingIOError:
                await asyncio.sleep(0.01)


async def served(roads: Crossroads, echoes: Host) -> None:
    """A wish that is in order comes true, whatever was sent before it."""
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            await wish(roads, ("127.0.0.1", echoes.port), theirs)
        ours.setblocking(False)
        assert await within(loop.sock_recv(ours, 3), 20) == b"{}\n"
        await loop.sock_sendall(ours, b"well")
        assert await within(loop.sock_recv(ours, 4)) == b"well"


async def quiet() -> None:
    """The loop waits for something that doesn't come; one that is told of a descriptor again and again works all the time."""
    worked, began = time.process_time(), time.monotonic()
    await asyncio.sleep(0.5)
    assert time.process_time() - worked < 0.5 * (time.monotonic() - began)


async def descriptors_are(number: int) -> None:
    """As many as before, after the moment that the end of the good wish takes."""
    async with asyncio.timeout(bound(10)):
        while open_descriptors() > number:
            await asyncio.sleep(0.01)


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def _tcp() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM)


def _listening() -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.bind("")
    sock.listen()
    return sock


STRANGERS: dict[str, Callable[[], int]] = {
    "file": lambda: os.open(__file__, os.O_RDONLY),
    "folder": lambda: os.open("/", os.O_RDONLY | os.O_DIRECTORY),
    "pipe": lambda: os.pipe()[0],
    "null": lambda: os.open(os.devnull, os.O_RDWR),
    "memory": lambda: os.memfd_create("x"),
    "event": lambda: os.eventfd(0),
    "tcp": lambda: _tcp().detach(),
    "udp": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).detach(),
    "listening": lambda: _listening().detach(),
    "unconnected": lambda: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).detach(),
    "packets": lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)[0].detach(),
    "datagrams": lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].detach(),
}


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", STRANGERS)
async def test_a_descriptor_of_another_kind_is_closed_and_nothing_done_with_it(roads: Crossroads, echoes: Host, kind: str) -> None:
    roads.open(echoes.pair, allow_private=[echoes.pair])
    stranger = STRANGERS[kind]()
    send(roads.runner, connect_packet("127.0.0.1", echoes.port), [stranger])
    os.close(stranger)
    before = open_descriptors()
    await served(roads, echoes)
    await descriptors_are(before)
    assert roads.counted("refused") == 1 and len(echoes.visits) == 1


@pytest.mark.parametrize(
    "packet",
    [
        b"", b"{", b"[]", b"null", b"\xff" * 50, b"{}", b'{"host": 1, "port": 2}', b'{"host": "a", "port": "80"}', b'{"host": "a", "port": true}',
        b'{"host": "\\ud800", "port": 80}', b'{"host": "a\\u0000b", "port": 80}', b'{"host": "a", "port": 1e999}', b"[" * 1000,
        b'{"host": "a", "port": 99999999999999999999}', b'{"host": "' + b"a" * 980 + b'", "port": 80}', b"x" * 1025, b"x" * 60000,
    ],
)  # fmt: skip
@pytest.mark.parametrize("descriptors", [0, 1, 2, 200])
async def test_messages_that_are_none_cost_their_sender_an_answer(roads: Crossroads, echoes: Host, packet: bytes, descriptors: int) -> None:
    roads.open(echoes.pair, allow_private=[echoes.pair])
    before = open_descriptors()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        send(roads.runner, packet, [theirs.fileno()] * descriptors)
        await served(roads, echoes)
    assert roads.counted("refused") == 1
    await descriptors_are(before)


async def test_several_descriptors_with_a_good_message_are_refused(roads: Crossroads, echoes: Host) -> None:
    roads.open(echoes.pair, allow_private=[echoes.pair])
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            send(roads.runner, connect_packet("127.0.0.1", echoes.port), [theirs.fileno(), theirs.fileno()])
        ours.setblocking(False)
        assert b"several descriptors" in await within(asyncio.get_running_loop().sock_recv(ours, 1024))
    await served(roads, echoes)


async def test_thousands_of_wishes_cost_no_descriptors_and_hold_up_nobody(roads: Crossroads, echoes: Host) -> None:
    roads.open(echoes.pair, allow_private=[echoes.pair])
    before = open_descriptors()
    ours, theirs = socket.socketpair()
    most = 0
    with ours, theirs:
        for number in range(count(600, long=20000)):
            try:
                send(roads.runner, connect_packet("elsewhere.example", 443), [theirs.fileno()])
            except BlockingIOError:
                await asyncio.sleep(0.001)
            if number % 50 == 0:
                await asyncio.sleep(0)
            most = max(most, open_descriptors())
        assert most <= before + 8
        await served(roads, echoes)
        # Of all this the log got some lines, and the metric every one.
        assert len(roads.log.read_text().splitlines()) <= roads.counted("refused")


async def test_a_thousand_opens_get_no_more_than_an_instance_may_have(roads: Crossroads) -> None:
    async def waits(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with host(waits) as waiting:
        roads.open(waiting.pair, allow_private=[waiting.pair])
        kept = []
        for _ in range(4 * CONNECTIONS_MOST):
            ours, theirs = socket.socketpair()
            with theirs:
                await wish(roads, ("127.0.0.1", waiting.port), theirs)
            kept.append(ours)
        async with asyncio.timeout(bound(20)):
            while roads.counted("busy") < 3 * CONNECTIONS_MOST:
                await asyncio.sleep(0.01)
        assert roads.way is not None and roads.way.open == CONNECTIONS_MOST
        assert len(waiting.visits) <= CONNECTIONS_MOST
        for ours in kept:
            ours.close()
        async with asyncio.timeout(bound(20)):
            while roads.way.open:
                await asyncio.sleep(0.01)


async def test_a_stream_that_its_sender_makes_blocking_and_reads_himself_stops_nobody(roads: Crossroads, echoes: Host) -> None:
    roads.open(echoes.pair, allow_private=[echoes.pair])
    ours, theirs = socket.socketpair()
    with ours, theirs:
        await wish(roads, ("127.0.0.1", echoes.port), theirs)
        ours.setblocking(False)
        assert await within(asyncio.get_running_loop().sock_recv(ours, 3)) == b"{}\n"
        for _ in range(count(300, long=10000)):
            theirs.setblocking(True)  # the node's copy is the same open file
            ours.send(b"x")
            try:
                theirs.recv(1, socket.MSG_DONTWAIT)  # what the node has been told of is gone when it looks
            except BlockingIOError:
                pass
            await asyncio.sleep(0)
        await served(roads, echoes)


async def test_a_stream_with_urgent_bytes_stops_nobody(roads: Crossroads, echoes: Host) -> None:
    roads.open(echoes.pair, allow_private=[echoes.pair])
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            await wish(roads, ("127.0.0.1", echoes.port), theirs)
        try:
            for _ in range(3):
                ours.send(b"!", socket.MSG_OOB | socket.MSG_DONTWAIT)
                ours.send(b"x", socket.MSG_DONTWAIT)
        except OSError:
            pytest.skip("this kernel has no urgent bytes on Unix sockets")
        await served(roads, echoes)


async def test_a_stream_that_seems_to_hold_something_and_does_not_stops_nobody(roads: Crossroads, echoes: Host) -> None:
    roads.open(echoes.pair, allow_private=[echoes.pair])
    ours, theirs = socket.socketpair()
    with ours, theirs:
        await wish(roads, ("127.0.0.1", echoes.port), theirs)
        ours.setblocking(False)
        assert await within(asyncio.get_running_loop().sock_recv(ours, 3)) == b"{}\n"
        theirs.setblocking(True)
        try:
            ours.send(b"!", socket.MSG_OOB)  # told of as something to read, and gone when it is read
        except OSError:
            pytest.skip("this kernel has no urgent bytes on Unix sockets")
        with never_held_up(lambda: ours.send(b"x")):
            await asyncio.sleep(0.1)
            await served(roads, echoes)


async def test_descriptors_inside_a_stream_are_not_taken(roads: Crossroads, echoes: Host) -> None:
    roads.open(echoes.pair, allow_private=[echoes.pair])
    ours, theirs = socket.socketpair()
    with ours, tempfile.TemporaryFile() as file:
        with theirs:
            await wish(roads, ("127.0.0.1", echoes.port), theirs)
        ours.setblocking(False)
        loop = asyncio.get_running_loop()
        assert await within(loop.sock_recv(ours, 3)) == b"{}\n"
        before = open_descriptors()
        for _ in range(20):
            send(ours, b"y", [file.fileno()] * 50)
            assert await within(loop.sock_recv(ours, 1)) == b"y"
        assert open_descriptors() <= before


async def test_the_channel_itself_as_a_stream_is_refused(roads: Crossroads, echoes: Host) -> None:
    roads.open(echoes.pair, allow_private=[echoes.pair])
    for _ in range(20):
        send(roads.runner, connect_packet("127.0.0.1", echoes.port), [roads.runner.fileno()])
    await served(roads, echoes)
    assert roads.counted("refused") == 20


async def test_a_channel_that_is_closed_is_left_alone(roads: Crossroads, echoes: Host) -> None:
    roads.open(echoes.pair, allow_private=[echoes.pair])
    roads.runner.close()
    await quiet()
    assert roads.counted("refused") == 0


async def test_a_stream_that_its_sender_keeps_after_the_end_keeps_nobody_busy(roads: Crossroads, echoes: Host) -> None:
    gate = roads.open(echoes.pair, allow_private=[echoes.pair])
    ours, theirs = socket.socketpair()
    with ours, theirs:
        await wish(roads, ("127.0.0.1", echoes.port), theirs)
        ours.setblocking(False)
        assert await within(asyncio.get_running_loop().sock_recv(ours, 3)) == b"{}\n"
        gate.close()
        async with asyncio.timeout(bound(10)):
            while not roads.counted("stopped"):
                await asyncio.sleep(0.01)
        ours.send(b"x")  # arrives at the open file that the node has closed its copy of
        await quiet()
