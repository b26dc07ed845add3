"""Both halves of the way out in one process: the runner's proxy in its thread, the node's gate in the test's loop."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from fornada.core.names import Instant, ModelName
from fornada.core.policy.outbound import Place, outbound, parse_place
from fornada.node.outbound import Gate, WayOut
from fornada.node.tasks import Tasks
from fornada.telemetry import Telemetry
from fornada_sdk.runner.outbound import Forwarder
from tests.bounds import bound

MODEL = ModelName("@local/traveller")

T = TypeVar("T")
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class _Clock:
    def now(self) -> Instant:
        return Instant(asyncio.get_running_loop().time())

    def wall(self) -> float:
        return 0.0


class Host:
    """A server of the test on 127.0.0.1."""

    def __init__(self, server: asyncio.Server, visits: list[int]) -> None:
        self.port = int(server.sockets[0].getsockname()[1])
        self.pair = f"127.0.0.1:{self.port}"
        self.visits = visits
        """One entry for each connection that it got."""


class Crossroads:
    """`runner` is the runner's end of the channel, `far` the one that control planes read."""

    def __init__(self, folder: Path) -> None:
        self.runner, self.far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.telemetry = Telemetry(clock=_Clock(), data_dir=folder, stream=None)
        self.log = folder / "logs" / "node.log"
        self.tasks = Tasks(self.telemetry.log)
        self.way: WayOut | None = None
        self.gates: list[Gate] = []
        self.forwarder: Forwarder | None = None
        self._clients: list[asyncio.StreamWriter] = []

    def open(
        self,
        *network: str,
        allow_private: Sequence[str] = (),
        look_up: Callable[[Place], Sequence[str]] | None = None,
        own: Sequence[str] = (),
        **bounds: float,
    ) -> Gate:
        """A gate as a control plane has it, with a way out of its own."""
        loop = asyncio.get_running_loop()
        options: dict[str, Any] = {} if look_up is None else {"look_up": look_up}
        if own:
            options["own_among"] = set(own).intersection
        way = WayOut(policy=outbound(allow_private), telemetry=self.telemetry, tasks=self.tasks, loop=loop, **options, **bounds)  # type: ignore[arg-type]
        self.way = way
        gate = Gate(self.far.fileno(), way, model=MODEL, instance="traveller-1", network=frozenset(map(parse_place, network)))
        self.gates.append(gate)
        return gate

    def proxy(self) -> Forwarder:
        """The runner's half, started once."""
        if self.forwarder is None:
            self.forwarder = Forwarder(self.runner.dup())
            self.forwarder.start()
        return self.forwarder

    async def ask(self, head: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, str]:
        """A client of the proxy, and the first line that it was answered."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.proxy().port)
        self._clients.append(writer)
        writer.write(head.encode())
        line = await within(reader.readline())
        return reader, writer, line.decode().strip()

    async def connect(self, pair: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A tunnel that must come to be."""
        reader, writer, line = await self.ask(f"CONNECT {pair} HTTP/1.1\r\nHost: {pair}\r\n\r\n")
        assert line == "HTTP/1.1 200 Connection established", line
        assert await within(reader.readline()) == b"\r\n"
        return reader, writer

    async def refused(self, pair: str) -> str:
        """What a tunnel that must not come to be is answered: status and reason."""
        reader, writer, line = await self.ask(f"CONNECT {pair} HTTP/1.1\r\nHost: {pair}\r\n\r\n")
        rest = await within(reader.read())
        writer.close()
        await within(writer.wait_closed())
        assert line.startswith("HTTP/1.1 ") and rest.endswith(line.split(" ", 2)[2].encode() + b"\n")
        return line.removeprefix("HTTP/1.1 ")

    def counted(self, outcome: str) -> int:
        return self.telemetry.metrics.outbound_connections.at(MODEL, outcome).value

    def bytes(self, direction: str) -> int:
        return self.telemetry.metrics.outbound_bytes.at(MODEL, direction).value

    async def close(self) -> None:
        for writer in self._clients:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await within(writer.wait_closed())
        for gate in self.gates:
            gate.close()
        await self.tasks.close()
        self.telemetry.close()
        for end in (self.runner, self.far):
            end.close()


@contextlib.asynccontextmanager
async def crossroads(folder: Path) -> AsyncIterator[Crossroads]:
    made = Crossroads(folder)
    try:
        yield made
    finally:
        await made.close()


@contextlib.asynccontextmanager
async def host(talk: Talk) -> AsyncIterator[Host]:
    """`talk` is run for each connection, which is closed after it."""
    visits: list[int] = []
    talking: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def visited(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visits.append(len(visits))
        task = asyncio.current_task()
        assert task is not None
        talking[task] = writer
        try:
            await talk(reader, writer)
        except ConnectionError:
            pass
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        del talking[task]

    server = await asyncio.start_server(visited, "127.0.0.1", 0)
    try:
        yield Host(server, visits)
    finally:
        server.close()
        for writer in talking.values():
            writer.transport.abort()
        await within(asyncio.gather(*talking))


@contextlib.contextmanager
def never_held_up(free: Callable[[], object]) -> Iterator[None]:
    """Fails where the loop stands still in a call that blocks; `free` then lets it go on, called by another thread."""
    over = threading.Event()
    late: list[str] = []

    def watch() -> None:
        if not over.wait(bound(15)):
            late.append("the loop was held up")
            free()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        assert not late, late


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Gives back what it gets, and ends when the other side has ended."""
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


async def within(wait: Awaitable[T], seconds: float = 10.0) -> T:
    return await asyncio.wait_for(wait, bound(seconds))
