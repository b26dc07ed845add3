"""A request of a hot route and its answer, as the dialects see it (edge.calls.Exchange).

RECEIVING ─complete─► STARTED ─reply/fail──────────────────► DONE
                         └─begin─► STREAMING ─end/break_off──┘
any ─the caller leaves─► LEFT          (what is told to it then is dropped)
"""

import enum
from collections.abc import Sequence
from time import monotonic

from fornada.core.errors import FornadaError, InternalFault
from fornada.core.keys import Role
from fornada.core.requests import Ticket
from fornada.edge.auth import Caller
from fornada.edge.calls import JSON_TYPE, Target
from fornada.edge.headers import Facts
from fornada.edge.inner import REFUSED_BY_MODEL
from fornada.edge.observer import LEFT, OK, Meter, outcome_of
from fornada.edge.problems import is_success, problem
from fornada.edge.server.bodies import Hold
from fornada.edge.server.lines import CHUNKED, CLOSE, KEEP_OLD, LAST_CHUNK, chunk, header_lines
from fornada.edge.server.pipeline import Pipeline
from fornada.edge.server.shared import Shared

PIECE_BYTES = 16 * 1024
"""On average: each piece costs who passes it on, so that a body in small ones is put together first."""


class State(enum.Enum):
    """See the module's docstring."""

    RECEIVING = enum.auto()
    STARTED = enum.auto()
    STREAMING = enum.auto()
    DONE = enum.auto()
    LEFT = enum.auto()


# The names of an enum's members cost a lookup each; the hot path does this several times a request.
_STARTED, _STREAMING, _DONE, _LEFT = State.STARTED, State.STREAMING, State.DONE, State.LEFT


class HotExchange:
    """One request. Its connection's pipeline keeps answers in the order of requests."""

    # Attributes that most requests never change stay on the class: making the object is on the way of every request.
    exclusive = False
    """Whether it must be alone on its connection (see ColdExchange)."""
    changing = False
    state = State.RECEIVING
    size = 0
    room: Hold | None = None
    """Its share of what all bodies together may hold."""
    started = 0.0
    meter: Meter | None = None
    ticket: Ticket | None = None
    more = b""
    """Header lines for a refusal, beyond its own."""
    early: FornadaError | None = None
    """Refused before the body was read."""
    held = b""
    """The head of a stream whose first piece hasn't come yet."""
    output: list[bytes] | None = None
    """What waits for the answers of earlier requests of the connection."""
    owed = 0
    """Bytes of the stream that the ticket hasn't been told of yet."""
    unwanted = False
    """The caller was refused while the work goes on."""

    def __init__(
        self, shared: Shared, pipeline: Pipeline, facts: Facts, target: Target, trace_id: str, keep_alive: bool, *, old: bool = False
    ) -> None:
        """`old`: HTTP/1.0."""
        self.shared = shared
        self.pipeline = pipeline
        self.facts = facts
        self.target = target
        self.trace_id = trace_id
        self.request_id = facts.request_id or trace_id
        self.keep_alive = keep_alive
        self.old = old
        self.usual = keep_alive and not old and not facts.cors
        """Its answer needs no header lines of its own."""
        self.chunks: list[bytes] = []

    def start(self) -> None:
        """The request is complete, or refused early: hands it to its door."""
        self.started = monotonic()
        self.state = _STARTED
        if self.early is not None:
            self.fail(self.early)
            return
        try:
            self.target.door.handle(self)
        except Exception as error:  # noqa: BLE001 - a bug of ours: what came before it on the connection is still answered
            self.shared.observer.failed(where=self.target.name, request_id=self.request_id, error=error)
            self.keep_alive = False
            self.fail(InternalFault("the server failed; its log says more"))

    def admit(self, caller: Caller) -> None:
        """Raises Unauthorized, Forbidden."""
        caller.require(Role.USER)
        caller.acting_for(self.target.account)

    def limit(self) -> int:
        """Bytes that the body may have. Raises what the door raises."""
        limit: int = self.target.door.limit(self.target)
        return limit

    def body(self) -> bytes:
        chunks = self.chunks
        self.chunks = []
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def pieces(self) -> Sequence[bytes]:
        count = len(self.chunks)
        if count != 1 and self.size < max(count, 1) * PIECE_BYTES:
            return (self.body(),)
        pieces, self.chunks = self.chunks, []
        return pieces

    @property
    def finished(self) -> bool:
        """Whether the whole answer is told."""
        return self.state is _DONE

    def hold(self, ticket: Ticket) -> None:
        """Keeps the caller's hold on the submitted request until it is answered; longer, the two would keep one another alive."""
        if self.state is _LEFT or self.unwanted:
            ticket.leave()
        elif self.state is not _DONE:
            self.ticket = ticket
            if self.owed:
                self.settle()

    def reply(self, status: int, lines: bytes, parts: tuple[bytes | memoryview, ...], run_s: float) -> None:
        if self.state is not _STARTED:
            return
        self.state = _DONE
        self.ticket = None
        shared = self.shared
        if self.meter is not None:
            self.meter.done(OK if status == 200 or is_success(status) else REFUSED_BY_MODEL, monotonic() - self.started, run_s)
        if shared.verbose:
            self._tell(status, None)
        size = 0
        for part in parts:
            size += len(part)
        trace_id = self.trace_id
        if lines is JSON_TYPE and status == 200 and self.request_id is trace_id and self.usual and shared.lasting:
            trace = trace_id.encode()
            head = b"%bcf-ai-req-id: %b\r\nx-request-id: %b\r\ncontent-length: %d\r\n\r\n" % (shared.lines.ok_json, trace, trace, size)
        else:
            head = b"%bcontent-length: %d\r\n\r\n" % (self._head(status, lines), size)
        self.pipeline.answered(self, b"".join((head, *parts)))

    def fail(self, error: FornadaError, *, from_model: bool = False) -> None:
        if self.state is not _STARTED:
            return
        self.state = _DONE
        self.ticket = None
        found = problem(error, self.target.style, self.trace_id, from_model=from_model)
        if found.close:
            self.keep_alive = False
        self._count(error)
        self._tell(found.status, error)
        lines = JSON_TYPE + header_lines(found.headers) + self.more
        self.pipeline.answered(self, b"%bcontent-length: %d\r\n\r\n%b" % (self._head(found.status, lines), len(found.body), found.body))

    @property
    def under_way(self) -> bool:
        """Whether a part of the answer is told."""
        return self.state is _STREAMING and not self.held

    def give_up(self, error: FornadaError) -> None:
        ticket = self.ticket
        self.unwanted = True
        self.fail(error, from_model=True)
        if ticket is not None:
            ticket.leave()

    def begin(self, lines: bytes) -> None:
        if self.state is not _STARTED:
            return
        self.state = _STREAMING
        if self.old:
            self.keep_alive = False  # HTTP/1.0 knows no chunks: the end of the connection ends the body
        self.held = self._head(200, lines) + (b"\r\n" if self.old else CHUNKED)

    def write(self, data: bytes, count: int) -> None:
        if self.state is not _STREAMING:
            return
        count += self.owed
        self.owed = count
        if not data:  # an empty chunk would end the body
            return
        # lines.chunk, written out: this is done for every token.
        piece = data if self.old else b"%x\r\n%b\r\n" % (len(data), data)
        if self.held:
            piece, self.held = self.held + piece, b""
            if self.meter is not None:
                self.meter.first_item(monotonic() - self.started)
        ticket = self.ticket
        if self.pipeline.wrote(self, piece) and ticket is not None:
            self.owed = 0
            ticket.taken(count)

    def took(self, count: int) -> None:
        self.owed += count
        self.settle()

    def settle(self) -> None:
        """What was written has left, or is on its way within the transport's bound: lets the runner send as much again."""
        count = self.owed
        if count and self.ticket is not None:
            self.owed = 0
            self.ticket.taken(count)

    def end(self, run_s: float) -> None:
        if self.state is not _STREAMING:
            return
        self.state = _DONE
        self.ticket = None
        if self.meter is not None:
            self.meter.done(OK, monotonic() - self.started, run_s)
        if self.shared.verbose:
            self._tell(200, None)
        self.pipeline.answered(self, self.held + (b"" if self.old else LAST_CHUNK))

    def break_off(self, data: bytes, error: FornadaError) -> None:
        if self.state is not _STREAMING:
            return
        ticket, self.ticket = self.ticket, None
        if ticket is not None:
            ticket.leave()  # nothing where the node broke it off: that call is over
        if self.held:  # nothing has been sent: the failure can still have a status
            self.state = _STARTED
            self.fail(error, from_model=True)
            return
        self.state = _DONE
        self._count(error)
        self.keep_alive = False
        self.pipeline.answered(self, data if self.old or not data else chunk(data))

    def leave(self) -> None:
        """The caller has gone."""
        if self.state in (_DONE, _LEFT):
            return
        self.state = _LEFT
        if self.meter is not None:
            self.meter.done(LEFT, monotonic() - self.started, 0.0)
        if self.ticket is not None:
            self.ticket.leave()
            self.ticket = None

    def _head(self, status: int, lines: bytes) -> bytes:
        shared = self.shared
        trace = self.trace_id.encode()
        request = trace if self.request_id is self.trace_id else self.request_id.encode()
        if shared.ending:
            self.keep_alive = False
        persistence = b"" if self.keep_alive and not self.old else (KEEP_OLD if self.keep_alive else CLOSE)
        return b"%b%bcf-ai-req-id: %b\r\nx-request-id: %b\r\n%b%b" % (
            shared.lines.of(status),
            lines,
            trace,
            request,
            self.facts.cors,
            persistence,
        )

    def _tell(self, status: int, error: FornadaError | None) -> None:
        self.shared.observer.answered(
            request_id=self.request_id,
            trace_id=self.trace_id,
            method="POST",
            route=self.target.name,
            status=status,
            error=error,
            seconds=monotonic() - self.started,
        )

    def _count(self, error: FornadaError) -> None:
        meter = self.meter or self.shared.unnamed
        meter.done(outcome_of(error), monotonic() - self.started, 0.0)
