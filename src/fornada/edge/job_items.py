"""Items of jobs, answered by the doors that answer requests (core.jobs.ItemDoor).

An item goes through its dialect as a request would, so that it is checked, answered and refused alike; only nobody waits at a connection.
What it is answered is kept as JSON: an answer of another type as {"content_type", "base64"}.
"""

import base64
from collections.abc import Callable

import msgspec

from fornada.core.errors import BadRequest, FornadaError, InternalFault, ModelRaised
from fornada.core.jobs import ItemRequest, Outcome, Status
from fornada.core.keys import Role
from fornada.core.requests import Ticket
from fornada.core.resources import format_size
from fornada.edge.auth import Caller
from fornada.edge.calls import Target
from fornada.edge.headers import Facts
from fornada.edge.inner import InnerExchange
from fornada.edge.observer import Observer
from fornada.edge.problems import is_success, problem
from fornada.edge.targets import Targets

JSON = "application/json"
_TYPE_LINE = "content-type:"

ANSWER_BYTES = 192 * 1024 * 1024
"""What pieces of an answer may come to, which are kept as one: as many as a runner may send at once."""

Told = Callable[[Outcome | FornadaError], None]


class JobItems:
    """Over the doors of all dialects."""

    def __init__(self, *, targets: Targets, new_trace: Callable[[], str], observer: Observer) -> None:
        self._targets = targets
        self._new_trace = new_trace
        self._observer = observer

    def ask(self, item: ItemRequest, told: Told) -> Ticket:
        heard = _Item(item.request_id, told)
        heard.exchange = exchange = InnerExchange(
            facts=_facts(item),
            target=self._target(item),
            request_id=item.request_id,
            trace_id=self._new_trace(),
            body=item.body,
            heard=heard,
        )
        exchange.ask(self._observer)
        return exchange

    def refused(self, item: ItemRequest, error: FornadaError) -> Outcome:
        found = problem(error, self._target(item).style, self._new_trace(), from_model=True)
        return Outcome(Status.FAILED, found.status, found.body, item.request_id)

    def _target(self, item: ItemRequest) -> Target:
        found = self._targets.find(item.target.encode())
        if found is None:
            raise InternalFault("a job was accepted for a route that there is no more")
        return found


class _Item:
    """Puts together what the door says. It is told once what it came to."""

    exchange: InnerExchange

    def __init__(self, request_id: str, told: Told) -> None:
        self._request_id = request_id
        self._told = told
        self._lines = b""
        self._pieces: list[bytes] = []
        self._size = 0

    def whole(self, status: int, lines: bytes, body: bytes, run_s: float) -> None:
        self._told(Outcome(_status(is_success(status)), status, _as_json(lines, body), self._request_id))

    def refused(self, error: FornadaError, *, from_model: bool) -> None:
        self._told(error)

    def begins(self, lines: bytes) -> None:
        self._lines = lines
        if b"text/event-stream" in lines:
            self.exchange.give_up(BadRequest("an item of a job can't be streamed: leave out 'stream'"))

    def piece(self, data: bytes, count: int) -> None:
        self._size += len(data)
        if self._size > ANSWER_BYTES:
            self._pieces.clear()
            self.exchange.break_off(
                b"", ModelRaised(f"the answer takes more than {format_size(ANSWER_BYTES)}, which is the most for a job's")
            )
            return
        self._pieces.append(data)
        self.exchange.taken(count)

    def ends(self, run_s: float) -> None:
        self.whole(200, self._lines, b"".join(self._pieces), run_s)

    def breaks(self, data: bytes, error: FornadaError) -> None:
        self._told(error)


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
