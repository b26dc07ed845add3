"""One connection out of a model's process: found, checked, made, carried, ended.

look up ──> judge ──> connect to an address that was judged ──> {} ──> bytes both ways ──> End
   └── FAILED   └── REFUSED     └── FAILED
"""

import asyncio
import enum
import os
import socket

from fornada.core.policy.outbound import Permitted, Place, Refused
from fornada.node.outbound.way_out import WayOut
from fornada.telemetry.metrics import Count
from fornada_sdk.wire.outbound import Answer, Flow, Outcome, answer_line

ADDRESSES_MOST = 4
"""Of one name that are tried."""
ADDRESS_S = 5.0
"""For one of them, where there are others."""
EMPTY_TURNS_MOST = 1000
"""In a row: a socket that always has something to read and never gives it would keep this process busy for ever."""


class End(enum.Enum):
    """How it came to its end; the value is the log's and the metric's word."""

    CLOSED = "closed"
    """Both sides had said all."""
    BROKEN = "broken"
    """A side went in the middle."""
    IDLE = "idle"
    STOPPED = "stopped"
    """The instance ended, or this control plane."""
    REFUSED = "refused"
    FAILED = "failed"
    BUSY = "busy"


class Crossing:
    """Owns `stream`, the model's side. `run` is called once."""

    def __init__(self, wanted: Place, stream: socket.socket, way: WayOut, *, sent: Count, received: Count) -> None:
        """`sent` and `received` grow with the bytes as they pass."""
        self.wanted = wanted
        self.end = End.STOPPED
        self.why = ""
        """For the node's own log: what the model isn't told."""
        self.sent_bytes = 0
        self.received_bytes = 0
        self._stream = stream
        self._way = way
        self._counts = (sent, received)

    async def run(self) -> None:
        """To the end, which is in `end`. Never raises but for a cancellation."""
        far = await self._connect()
        if far is not None:
            with far:
                self.end = await _Carrying(self, self._stream, far, self._way).over()

    def close(self) -> None:
        """After `run`, also where that was cancelled before it began."""
        self._stream.close()

    def passed(self, sent: int, received: int) -> None:
        """So many bytes more."""
        self.sent_bytes += sent
        self.received_bytes += received
        self._counts[0].value += sent
        self._counts[1].value += received

    async def _connect(self) -> socket.socket | None:
        try:
            async with asyncio.timeout(self._way.connect_s):
                addresses = list(await self._way.addresses(self.wanted))
                verdict = self._way.policy.judge(self.wanted, addresses, own=self._way.own_among(addresses))
                match verdict:
                    case Permitted(permitted):
                        return await self._reach(permitted[:ADDRESSES_MOST])
                    case Refused(reason):
                        self.why = reason
        except TimeoutError:
            self._fail(f"no connection within {self._way.connect_s:g} s")
            return None
        except OSError as error:
            self._fail(_words(error))
            return None
        self.end = End.REFUSED
        # Where it lies is not told: a model would learn what the names of this network are.
        text = "is at an address that isn't public or is the node's own, and [outbound] allow_private of the node doesn't name it"
        refuse(self._stream, Outcome.REFUSED, f"{self.wanted} {text}")
        return None

    async def _reach(self, addresses: tuple[str, ...]) -> socket.socket:
        """Raises OSError."""
        for address in addresses[:-1]:
            try:
                async with asyncio.timeout(ADDRESS_S):
                    return await self._reach_one(address)
            except (OSError, TimeoutError):
                continue
        return await self._reach_one(addresses[-1])

    async def _reach_one(self, address: str) -> socket.socket:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        far = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            await self._way.loop.sock_connect(far, (address, self.wanted.port))
            far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # whoever sends small pieces means it
        except BaseException:
            far.close()
            raise
        return far

    def _fail(self, reason: str) -> None:
        self.end = End.FAILED
        self.why = reason
        refuse(self._stream, Outcome.FAILED, f"{self.wanted} can't be reached: {reason}")


def _words(error: OSError) -> str:
    """Without the address, which asyncio puts into its text."""
    if error.errno is not None and error.errno > 0 and not isinstance(error, socket.gaierror):
        return os.strerror(error.errno)
    return error.strerror or str(error)


def refuse(stream: socket.socket, outcome: Outcome, message: str) -> None:
    """One line on the model's side of a connection that doesn't come to be. Whether it is read is the model's business."""
    try:
        stream.send(answer_line(Answer(outcome, message)), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
    except OSError:
        pass


class _Carrying:
    """Bytes both ways, as the loop says that they can be read and written."""

    def __init__(self, crossing: Crossing, stream: socket.socket, far: socket.socket, way: WayOut) -> None:
        self._crossing = crossing
        self._loop = loop = way.loop
        self._idle_s = way.idle_s
        self._up = Flow(stream, far)
        self._down = Flow(far, stream, begun=answer_line(Answer(Outcome.MADE)))
        self._told = len(answer_line(Answer(Outcome.MADE)))
        """Bytes of the flows that are counted, or are ours."""
        self._watched: dict[tuple[socket.socket, bool], bool] = {}
        self._empty = 0
        self._active_at = loop.time()
        self._end: asyncio.Future[End] = loop.create_future()
        self._patience = loop.call_later(way.idle_s, self._look)

    async def over(self) -> End:
        try:
            self._turn(None, reads=False)
            return await self._end
        finally:
            self._patience.cancel()
            self._end.cancel()
            self._watch()

    def _turn(self, sock: socket.socket | None, *, reads: bool) -> None:
        if self._end.done():
            return
        up, down = self._up, self._down
        before = up.passed, down.passed
        moved = False
        try:
            for flow in (up, down):
                if reads and sock is flow.source and flow.wants_read:
                    moved |= flow.read()
                elif not reads and (sock is None or sock is flow.sink) and flow.wants_write:
                    moved |= flow.write()
        except OSError:
            self._end.set_result(End.BROKEN)
        sent, received = up.passed - before[0], down.passed - before[1]
        if self._told:
            ours = min(self._told, received)
            self._told -= ours
            received -= ours
        self._crossing.passed(sent, received)
        if moved:
            self._empty = 0
            self._active_at = self._loop.time()
        else:
            self._empty += 1
        if not self._end.done():
            if up.over and down.over:
                self._end.set_result(End.CLOSED)
            elif self._empty > EMPTY_TURNS_MOST:
                self._end.set_result(End.BROKEN)
        self._watch()

    def _watch(self) -> None:
        """Makes the loop look for what the flows want now, and for nothing once it is over.

        Before a socket is closed it must be unwatched: the sender's copy would keep it alive in the kernel's list.
        """
        live = not self._end.done()
        for flow in (self._up, self._down):
            wanted = live and flow.wants_read
            if wanted != self._watched.get((flow.source, True), False):
                self._watched[flow.source, True] = wanted
                if wanted:
                    self._loop.add_reader(flow.source, self._readable, flow.source)
                else:
                    self._loop.remove_reader(flow.source)
            wanted = live and flow.wants_write
            if wanted != self._watched.get((flow.sink, False), False):
                self._watched[flow.sink, False] = wanted
                if wanted:
                    self._loop.add_writer(flow.sink, self._writable, flow.sink)
                else:
                    self._loop.remove_writer(flow.sink)

    def _readable(self, sock: socket.socket) -> None:
        self._turn(sock, reads=True)

    def _writable(self, sock: socket.socket) -> None:
        self._turn(sock, reads=False)

    def _look(self) -> None:
        left_s = self._active_at + self._idle_s - self._loop.time()
        if left_s <= 0:
            if not self._end.done():
                self._end.set_result(End.IDLE)
        else:
            self._patience = self._loop.call_later(left_s, self._look)
