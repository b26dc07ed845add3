"""The answers of one connection, in the order of its requests, and how much may lie in memory.

    take ─may start─► running ─answered, and all before it─► written
      └─otherwise─► parked ─an answer made room─► running

Inference requests of one connection run side by side; any other request waits for those before it, and those behind wait for
it. What is answered out of turn is held until its turn.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from fornada.edge.server.bodies import Hold
from fornada.edge.server.unsent import Unsent

AHEAD = 64
"""Requests of one connection that run at the same time; further ones wait, already read."""
PARKED = 64
PARKED_BYTES = 16 * 1024 * 1024
"""Waiting requests, and bytes of their bodies, at which reading stops."""
WRITE_HIGH, WRITE_LOW = 64 * 1024, 16 * 1024
"""Unsent bytes of a connection at which a stream is held back, and at which it goes on."""
UNREAD = 4 * 1024 * 1024
"""Unsent bytes of finished answers at which no further requests are read."""


class Turn(Protocol):
    """What the pipeline needs of an exchange."""

    keep_alive: bool
    size: int
    """Bytes of the request's body."""
    room: Hold | None
    """Its share of what all bodies together may hold: nobody's once it is answered."""
    exclusive: bool
    """Must run alone: what an operator's requests do depends on their order."""
    changing: bool
    """It may change what the node is to be."""
    output: list[bytes] | None
    """Bytes of its answer that came before its turn."""

    @property
    def finished(self) -> bool:
        """Whether the whole answer is told."""

    @property
    def under_way(self) -> bool:
        """Whether a part of the answer is told."""

    def start(self) -> None: ...

    def settle(self) -> None:
        """The transport takes more."""

    def leave(self) -> None: ...


class Pipeline:
    """See the module's docstring."""

    __slots__ = (
        "_advancing",
        "_on_close",
        "_on_idle",
        "_parked_bytes",
        "_unsent",
        "ending",
        "parked",
        "paused",
        "reading",
        "running",
        "transport",
    )

    def __init__(self, *, on_close: Callable[[], None], on_idle: Callable[[], None]) -> None:
        """`on_close`: an answer that ends the connection was written. `on_idle`: nothing is left to answer, where `ending` asks for it."""
        self.transport: asyncio.Transport | None = None
        self.running: deque[Turn] = deque()
        self.parked: deque[Turn] = deque()
        self.paused = False
        """The transport has more to send than it likes."""
        self.reading = True
        self.ending = False
        """Once nothing is left to answer, `on_idle` is to be called."""
        self._advancing = False
        self._parked_bytes = 0
        self._unsent = Unsent()
        self._on_close = on_close
        self._on_idle = on_idle

    def open(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        transport.set_write_buffer_limits(high=WRITE_HIGH, low=WRITE_LOW)

    @property
    def empty(self) -> bool:
        return not self.running and not self.parked

    @property
    def changes(self) -> bool:
        """Whether a request that waits or runs may change what the node is to be."""
        return any(turn.changing for turn in (*self.running, *self.parked))

    @property
    def follows(self) -> bool:
        """What runs must be alone, and a part of its answer is told."""
        return bool(self.running) and self.running[0].exclusive and self.running[0].under_way

    def take(self, turn: Turn) -> None:
        """A request is complete: starts it, or lets it wait."""
        if self.parked or not self._may_start(turn):
            self.parked.append(turn)
            self._parked_bytes += turn.size
            if len(self.parked) >= PARKED or self._parked_bytes >= PARKED_BYTES:
                self.read_no_further()
            return
        self.running.append(turn)
        turn.start()
        if self.paused and self.transport is not None and self.transport.get_write_buffer_size() > UNREAD:
            self.read_no_further()

    def answered(self, turn: Turn, data: bytes) -> None:
        """The last (perhaps the only) bytes of an answer."""
        running = self.running
        transport = self.transport
        if transport is None or not running:
            return
        if running[0] is not turn:
            _held(turn).append(data)
            return
        running.popleft()
        if turn.room is not None:
            turn.room = None
        if turn.output:
            data = b"".join((*turn.output, data))
        transport.write(data)
        if not turn.keep_alive:
            self._on_close()
        elif running or self.parked:
            self._advance()
        elif self.ending:
            self._on_idle()

    def wrote(self, turn: Turn, data: bytes) -> bool:
        """A piece of a streamed answer. Says whether the transport takes more."""
        running = self.running
        if self.transport is None or not running:
            return False
        if running[0] is not turn:
            _held(turn).append(data)
            return False
        self.transport.write(data)
        return not self.paused

    def leave(self) -> None:
        """The caller has gone."""
        for turn in (*self.running, *self.parked):
            turn.room = None
            turn.leave()
        self.running.clear()
        self.parked.clear()
        self._parked_bytes = 0

    def break_down(self) -> bool:
        """Drops everything after a bug of ours. Says whether a part of an answer has been sent."""
        half = bool(self.running) and self.running[0].under_way
        self.leave()
        return half

    def pause(self) -> None:
        """The transport is full."""
        self.paused = True
        self._unsent.forget()

    def resume(self) -> None:
        """The transport takes more."""
        self.paused = False
        self._unsent.forget()
        if self.running:
            self.running[0].settle()
        self._read_on()

    def stalled(self, now: float) -> bool:
        """Whether the caller has taken nothing of what is left for it for too long. To be asked every tick."""
        return self.transport is not None and self._unsent.stalled(self.transport, now, full=self.paused)

    def read_anyway(self) -> None:
        """Reads on whatever lies in memory: what comes will be thrown away."""
        if not self.reading and self.transport is not None:
            self.reading = True
            self.transport.resume_reading()

    def read_no_further(self) -> None:
        """What comes waits in the socket."""
        if self.reading and self.transport is not None:
            self.reading = False
            self.transport.pause_reading()

    def _may_start(self, turn: Turn) -> bool:
        running = self.running
        if not running:
            return True
        return len(running) < AHEAD and not turn.exclusive and not running[-1].exclusive

    def _advance(self) -> None:
        """Writes what was held and is due now, then starts what was parked. Not recursive: a start may answer at once."""
        if self._advancing:
            return
        self._advancing = True
        running, parked, transport = self.running, self.parked, self.transport
        while transport is not None and (running or parked):
            if running and (front := running[0]).output:
                transport.write(b"".join(front.output))
                front.output = []
                if not self.paused:
                    front.settle()
                if front.finished:
                    front.room = None
                    running.popleft()
                    if not front.keep_alive:
                        self._on_close()
                    continue
            if not parked or not self._may_start(parked[0]):
                break
            turn = parked.popleft()
            self._parked_bytes -= turn.size
            running.append(turn)
            turn.start()
        self._advancing = False
        self._read_on()
        if self.ending and not running and not parked:
            self._on_idle()

    def _read_on(self) -> None:
        few = len(self.parked) < PARKED // 2 and self._parked_bytes < PARKED_BYTES
        if few and not self.reading and not self.paused and self.transport is not None:
            self.reading = True
            self.transport.resume_reading()


def _held(turn: Turn) -> list[bytes]:
    if turn.output is None:
        turn.output = []
    return turn.output
