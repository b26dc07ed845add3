"""Items of jobs, answered by the doors that answer requests (core.jobs.ItemDoor).

An item goes through its dialect as a request would, so that it is checked, answered and refused alike; only nobody waits at a connection.
What it is answered is kept as JSON: an answer of another type as {"content_type", "base64"}.
"""

import base64
from collections.abc import Callable, Sequence
from time import monotonic

import msgspec

from fornada.core.errors import BadRequest, FornadaError, InternalFault
from fornada.core.jobs import ItemRequest, Outcome, Status
from fornada.core.keys import Role
from fornada.core.requests import Ticket
from fornada.edge.auth import Caller
from fornada.edge.calls import Target
from fornada.edge.headers import Facts
from fornada.edge.observer import LEFT, OK, Meter, Observer, outcome_of
from fornada.edge.problems import is_success, problem
from fornada.edge.targets import Targets

JSON = "application/json"
REFUSED_BY_MODEL = "refused_by_model"
_TYPE_LINE = "content-type:"

Told = Callable[[Outcome | FornadaError], None]


class JobItems:
    """Over the doors of all dialects."""

    def __init__(self, *, targets: Targets, new_trace: Callable[[], str], observer: Observer) -> None:
        self._targets = targets
        self._new_trace = new_trace
        self._observer = observer

    def ask(self, item: ItemRequest, told: Told) -> Ticket:
        exchange = ItemExchange(item, self._target(item), self._new_trace(), told)
        try:
            if exchange.target.error is not None:
                raise exchange.target.error
            exchange.target.door.handle(exchange)
        except FornadaError as error:
            exchange.fail(error)
        except Exception as error:  # noqa: BLE001 - a bug of ours: the other items of the job are still answered
            self._observer.failed(where=item.target, request_id=item.request_id, error=error)
            exchange.fail(InternalFault("the server failed; its log says more"))
        return exchange

    def refused(self, item: ItemRequest, error: FornadaError) -> Outcome:
        found = problem(error, self._target(item).style, self._new_trace(), from_model=True)
        return Outcome(Status.FAILED, found.status, found.body, item.request_id)

    def _target(self, item: ItemRequest) -> Target:
        found = self._targets.find(item.target.encode())
        if found is None:
            raise InternalFault("a job was accepted for a route that there is no more")
        return found


class ItemExchange:
    """An edge.calls.Exchange without a connection, and the job's hold on the item. It is told once what it came to."""

    def __init__(self, item: ItemRequest, target: Target, trace_id: str, told: Told) -> None:
        self.facts = _facts(item)
        self.target = target
        self.request_id = item.request_id
        self.trace_id = trace_id
        self.meter: Meter | None = None
        self.size = len(item.body)
        self._body = item.body
        self._told: Told | None = told
        """None: it was told, or nobody waits for it any more."""
        self._ticket: Ticket | None = None
        self._began = monotonic()
        self._lines = b""
        self._pieces: list[bytes] = []

    # ---- edge.calls.Exchange

    def body(self) -> bytes:
        return self._body

    def pieces(self) -> Sequence[bytes]:
        return (self._body,)

    def hold(self, ticket: Ticket) -> None:
        if self._told is None:
            ticket.leave()
        else:
            self._ticket = ticket

    def reply(self, status: int, lines: bytes, parts: tuple[bytes | memoryview, ...], run_s: float) -> None:
        fine = is_success(status)
        kept = _as_json(lines, b"".join(parts))
        self._end(OK if fine else REFUSED_BY_MODEL, run_s, Outcome(_status(fine), status, kept, self.request_id))

    def fail(self, error: FornadaError, *, from_model: bool = False) -> None:
        self._end(outcome_of(error), 0.0, error)

    def give_up(self, error: FornadaError) -> None:
        ticket = self._ticket
        self.fail(error)
        if ticket is not None:
            ticket.leave()

    def took(self, count: int) -> None:
        if self._ticket is not None:
            self._ticket.taken(count)

    def begin(self, lines: bytes) -> None:
        self._lines = lines
        if b"text/event-stream" in lines:
            self.give_up(BadRequest("an item of a job can't be streamed: leave out 'stream'"))

    def write(self, data: bytes, count: int) -> None:
        if self._told is not None:
            self._pieces.append(data)
            self.took(count)

    def end(self, run_s: float) -> None:
        self.reply(200, self._lines, tuple(self._pieces), run_s)

    def break_off(self, data: bytes, error: FornadaError) -> None:
        self.give_up(error)

    # ---- core.requests.Ticket

    def leave(self) -> None:
        if self._told is None:
            return
        self._told = None
        if self.meter is not None:
            self.meter.done(LEFT, monotonic() - self._began, 0.0)
        if self._ticket is not None:
            self._ticket.leave()

    def taken(self, count: int) -> None:
        """Nothing to take: the whole answer is told at once."""

    def _end(self, outcome: str, run_s: float, said: Outcome | FornadaError) -> None:
        told, self._told = self._told, None
        self._ticket = None
        if told is None:
            return
        if self.meter is not None:
            self.meter.done(outcome, monotonic() - self._began, run_s)
        told(said)


def _facts(item: ItemRequest) -> Facts:
    facts = Facts(())
    facts.caller = Caller(item.account, Role.USER, item.caller, paced=False)
    facts.content_type = facts.media_type = JSON
    facts.priority = item.priority
    return facts


def _status(fine: bool) -> Status:
    return Status.COMPLETED if fine else Status.FAILED


def _as_json(lines: bytes, body: bytes) -> bytes:
    named = next((line for line in lines.decode("latin-1").split("\r\n") if line.lower().startswith(_TYPE_LINE)), "")
    type = named[len(_TYPE_LINE) :].strip()
    if type.partition(";")[0].strip().lower() == JSON:
        return body
    return msgspec.json.encode({"content_type": type, "base64": base64.b64encode(body).decode()})
