"""Asking a door from within: what a connection's request would be answered, without a connection (edge.calls.Exchange).

    InnerExchange ── ask ──► the target's door          whoever asks keeps the exchange: it is his hold on the work (core.requests.Ticket)
         └── what the door says ──► Heard               `whole` or `refused` once, or `begins`, any number of `piece`s and `ends` | `breaks`

Items of jobs and the attempts of a gateway come this way, so that they are checked, counted, answered and refused as everybody's requests.
"""

from collections.abc import Sequence
from time import monotonic
from typing import Protocol

from fornada.core.errors import FornadaError, InternalFault
from fornada.core.requests import Ticket
from fornada.edge.calls import Target
from fornada.edge.headers import Facts
from fornada.edge.observer import LEFT, OK, Meter, Observer, outcome_of
from fornada.edge.problems import is_success

REFUSED_BY_MODEL = "refused_by_model"
"""Outcome of an answer for which model code chose a refusal's status."""


class Heard(Protocol):
    """Who hears what the door says. Nothing more comes after `leave`."""

    def whole(self, status: int, lines: bytes, body: bytes, run_s: float) -> None:
        """The whole answer, which may be a refusal of the model's own."""

    def refused(self, error: FornadaError, *, from_model: bool) -> None:
        """No answer."""

    def begins(self, lines: bytes) -> None:
        """A streamed answer. It may still be refused, as long as no piece has come."""

    def piece(self, data: bytes, count: int) -> None:
        """`count` bytes are to be given back by `taken`."""

    def ends(self, run_s: float) -> None: ...

    def breaks(self, data: bytes, error: FornadaError) -> None:
        """The stream failed after a piece of it; `data` says so to the caller."""


class InnerExchange:
    """See the module's docstring."""

    def __init__(self, *, facts: Facts, target: Target, request_id: str, trace_id: str, body: bytes, heard: Heard) -> None:
        self.facts = facts
        self.target = target
        self.request_id = request_id
        self.trace_id = trace_id
        self.meter: Meter | None = None
        self.size = len(body)
        self.more = b""
        self._body = body
        self._heard: Heard | None = heard
        """None: all was said, or nobody listens any more."""
        self._ticket: Ticket | None = None
        self._began = monotonic()
        self._lines: bytes | None = None
        """Of a stream of which no piece has come."""
        self._begun = False
        """What begins to stream is ended by `end` or `break_off` alone, as on a connection: a door that gives up says so by both."""
        self._owed = 0
        """Bytes taken before there was a ticket."""

    def ask(self, observer: Observer) -> None:
        """Hands it to its door, which may answer before this returns."""
        try:
            if self.target.error is not None:
                raise self.target.error
            self.target.door.handle(self)
        except FornadaError as error:
            self.fail(error)
        except Exception as error:  # noqa: BLE001 - a bug of ours: whoever asked still has others to answer
            observer.failed(where=self.target.name, request_id=self.request_id, error=error)
            self.fail(InternalFault("the server failed; its log says more"))

    # ---- edge.calls.Exchange

    def body(self) -> bytes:
        return self._body

    def pieces(self) -> Sequence[bytes]:
        return (self._body,)

    def hold(self, ticket: Ticket) -> None:
        if self._heard is None:
            ticket.leave()
            return
        self._ticket = ticket
        if self._owed:
            owed, self._owed = self._owed, 0
            ticket.taken(owed)

    def reply(self, status: int, lines: bytes, parts: tuple[bytes | memoryview, ...], run_s: float) -> None:
        heard = self._end(OK if is_success(status) else REFUSED_BY_MODEL, run_s)
        if heard is not None:
            heard.whole(status, lines, b"".join(parts), run_s)

    def fail(self, error: FornadaError, *, from_model: bool = False) -> None:
        if self._begun:
            return
        heard = self._end(outcome_of(error), 0.0)
        if heard is not None:
            heard.refused(error, from_model=from_model)

    def give_up(self, error: FornadaError) -> None:
        ticket = self._ticket
        self.fail(error, from_model=True)
        if ticket is not None:
            ticket.leave()

    def took(self, count: int) -> None:
        self.taken(count)

    def begin(self, lines: bytes) -> None:
        if self._heard is not None:
            self._lines = lines
            self._heard.begins(lines)
            self._begun = True

    def write(self, data: bytes, count: int) -> None:
        heard = self._heard
        if heard is None:
            return
        if self._lines is not None and data:
            self._lines = None
            if self.meter is not None:
                self.meter.first_item(monotonic() - self._began)
        heard.piece(data, count)

    def end(self, run_s: float) -> None:
        heard = self._end(OK, run_s)
        if heard is not None:
            heard.ends(run_s)

    def break_off(self, data: bytes, error: FornadaError) -> None:
        ticket = self._ticket
        heard = self._end(outcome_of(error), 0.0)
        if ticket is not None:
            ticket.leave()
        if heard is None:
            return
        if self._lines is not None:  # nothing was said yet: it can still be a refusal
            heard.refused(error, from_model=True)
        else:
            heard.breaks(data, error)

    # ---- core.requests.Ticket

    def leave(self) -> None:
        ticket = self._ticket
        if self._end(LEFT, 0.0) is not None and ticket is not None:
            ticket.leave()

    def taken(self, count: int) -> None:
        if self._ticket is not None:
            self._ticket.taken(count)
        elif self._heard is not None:
            self._owed += count

    def _end(self, outcome: str, run_s: float) -> Heard | None:
        heard, self._heard = self._heard, None
        self._ticket = None
        if heard is not None and self.meter is not None:
            self.meter.done(outcome, monotonic() - self._began, run_s)
        return heard
