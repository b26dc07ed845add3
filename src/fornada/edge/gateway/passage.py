"""One request on its way through a gateway.

    begin ─ rate ─► step 0 ─ kept? ─ yes ─► answered (HIT)
                      │ no
                      ▼            fails, may be tried again
                  attempt 1 ◄──────────── after a wait ─────────┐
                      │ fails ──────────────────────────────────┘   for good ─► the next step, or the refusal of the last one
                      ▼ begins to answer
                  passed on as it comes ─► whole: kept and written down (MISS)
    any ─ the caller leaves ─► the work is cancelled, and that is written down

Nothing of an attempt is passed on before its first byte, so until then another one may take its place.
"""

import copy
from collections.abc import Callable
from time import monotonic
from typing import Protocol

import msgspec

from fornada.core.errors import DeadlinePassed, FornadaError, Unauthorized, UnknownGateway
from fornada.core.gateway import Gateway, GatewayId, LogId, Rules, rules_of
from fornada.core.names import AccountId, parse_reference
from fornada.core.policy.gateway_cache import Kept, cache_key, may_be_kept
from fornada.core.policy.gateway_retries import timeout_ms, tries_again, wait_ms
from fornada.core.ports import CatalogPort, Clock, Resolved
from fornada.core.ports_gateway import GatewaysPort
from fornada.edge.calls import Exchange, Target
from fornada.edge.gateway.answers import TAIL_BYTES, tokens_of, type_of
from fornada.edge.gateway.records import Passed, Told, record_of, type_of_body
from fornada.edge.gateway.steps import JSON, Step, model_in, streams_in
from fornada.edge.headers import Facts
from fornada.edge.inner import InnerExchange
from fornada.edge.observer import Meter, Observer
from fornada.edge.problems import is_success, problem, status_of

GATHERED = 8 * 1024 * 1024
"""Bytes of a stream that are put together to be kept."""
LEFT_STATUS = 499
"""What a log says where the caller left before it was answered."""
_NO_RUN = (b"queueRequest", b'"request_id"')
"""In the body of what asks for a job or after one: its answer is another one each time."""


class Timer(Protocol):
    def cancel(self) -> None: ...


Later = Callable[[float, Callable[[], None]], Timer]
"""Calls something after so many seconds."""


class Passages:
    """What all passages share."""

    def __init__(
        self, *, gateways: GatewaysPort, catalog: CatalogPort, clock: Clock, observer: Observer, later: Later, most_log_body: int
    ) -> None:
        self.gateways = gateways
        self.catalog = catalog
        self.clock = clock
        self.observer = observer
        self.later = later
        self.most_log_body = most_log_body

    def authenticate(self, facts: Facts, *, account: AccountId, gateway: GatewayId) -> None:
        """Raises Unauthorized where the gateway asks for a token and none came, whatever the node asks for."""
        if facts.token:
            return
        try:
            asks = self.gateways.gateway(account, gateway).settings.authentication
        except UnknownGateway:
            return  # `begin` says so: what is wrong with the body comes first
        if asks:
            raise Unauthorized(f"the gateway '{gateway}' asks for a token: send a key of this node as 'cf-aig-authorization: Bearer KEY'")

    def begin(self, exchange: Exchange, *, account: AccountId, gateway: GatewayId, steps: tuple[Step, ...]) -> None:
        """Puts the request to the steps' doors, by the gateway's rules; the exchange is answered. Raises UnknownGateway."""
        found = self.gateways.gateway(account, gateway)
        exchange.meter = _ELSEWHERE
        Passage(self, exchange, found, steps).begin()


class _Elsewhere:
    """The attempts are counted, each for itself; what the caller gets of them isn't another request."""

    def done(self, outcome: str, total_s: float, run_s: float) -> None:
        pass

    def first_item(self, wait_s: float) -> None:
        pass


_ELSEWHERE: Meter = _Elsewhere()


class Passage:
    """See the module's docstring. It is the caller's hold on the work (core.requests.Ticket), whichever attempt that is."""

    def __init__(self, shared: Passages, outer: Exchange, gateway: Gateway, steps: tuple[Step, ...]) -> None:
        self._shared = shared
        self._outer = outer
        self._gateway = gateway
        self._steps = steps
        self._number = 0
        self._step = steps[0]
        self._rules: Rules = rules_of(gateway.settings, steps[0].asked)
        self._resolved: Resolved | None = None
        self._key: bytes | None = None
        """Of what may be kept; None: nothing may."""
        self._tries = 0
        self._attempt: _Attempt | None = None
        self._timer: Timer | None = None
        self._began = monotonic()
        self._created = shared.clock.wall()
        self._log_id: LogId | None = None
        self._over = False

    def begin(self) -> None:
        self._enter(0)
        self._outer.hold(self)
        if self._over:  # the caller had gone
            return
        try:
            self._shared.gateways.admit(self._gateway)
        except FornadaError as error:
            self._refuse(error, from_model=False)
            return
        self._ask()

    # ---- core.requests.Ticket

    def leave(self) -> None:
        if self._over:
            return
        self._stop()
        self._write_down(Told(LEFT_STATUS, "", b"", 0, success=False))

    def taken(self, count: int) -> None:
        if self._attempt is not None:
            self._attempt.exchange.taken(count)

    # ---- steps and attempts

    def _enter(self, number: int) -> None:
        self._number = number
        self._step = step = self._steps[number]
        self._rules = rules_of(self._gateway.settings, step.asked)
        self._tries = 0
        self._resolved = self._look_up(step)
        self._key = self._key_of(step)
        if self._rules.logged and self._log_id is None:
            self._log_id = self._shared.gateways.new_log_id()

    def _ask(self) -> None:
        kept = self._kept()
        if kept is not None:
            self._hit(kept)
        else:
            self._try()

    def _try(self) -> None:
        self._timer = None
        self._tries += 1
        step = self._step
        attempt = _Attempt(self)
        facts = step.facts
        left_s = self._left_s()
        if left_s is not None and self._tries + self._number > 1:
            if left_s <= 0:
                self._out_of_time()
                return
            facts = copy.copy(facts)
            facts.timeout_s = left_s
        attempt.exchange = InnerExchange(
            facts=facts,
            target=step.target,
            request_id=self._outer.request_id,
            trace_id=self._outer.trace_id,
            body=step.body,
            heard=attempt,
        )
        self._attempt = attempt
        limit_ms = timeout_ms(self._rules, self._tries)
        if limit_ms is not None:
            self._timer = self._shared.later(limit_ms / 1000, self._too_slow)
        attempt.exchange.ask(self._shared.observer)

    def _out_of_time(self) -> None:
        self._timer = None
        self._refuse(DeadlinePassed("the request's deadline went by between two attempts of its gateway"), from_model=False)

    def _left_s(self) -> float | None:
        """Until the caller's deadline, which holds over all attempts."""
        timeout_s = self._step.facts.timeout_s
        return None if timeout_s is None else timeout_s - (monotonic() - self._began)

    def _too_slow(self) -> None:
        self._timer = None
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.exchange.leave()
        text = f"the gateway's request timeout of {self._rules.timeout_ms} ms went by before the first byte of an answer"
        self._failed(None, DeadlinePassed(text, begun=True), from_model=False)

    def failed(self, attempt: "_Attempt", error: FornadaError, *, from_model: bool) -> None:
        """An attempt was refused."""
        if self._attempt is attempt:
            self._drop_timer()
            self._attempt = None
            self._failed(error, error, from_model=from_model)

    def _failed(self, cause: FornadaError | None, error: FornadaError, *, from_model: bool) -> None:
        if tries_again(self._rules, self._tries, cause):
            wait_s = wait_ms(self._rules, self._tries) / 1000
            left_s = self._left_s()
            if left_s is not None and left_s <= wait_s:
                # Not another attempt at the last moment: a timer may fire a little early, and what is left would go into attempts.
                self._timer = self._shared.later(max(left_s, 0.0), self._out_of_time)
            else:
                self._timer = self._shared.later(wait_s, self._try)
        elif self._number + 1 < len(self._steps):
            self._enter(self._number + 1)
            self._ask()
        else:
            self._refuse(error, from_model=from_model)

    # ---- answers

    def whole(self, attempt: "_Attempt", status: int, lines: bytes, body: bytes, run_s: float) -> None:
        if self._attempt is not attempt:
            return
        self._drop_timer()
        self._attempt = None
        fine = is_success(status)
        if not fine and self._number + 1 < len(self._steps):
            self._enter(self._number + 1)
            self._ask()
            return
        self._finish()
        type = type_of(lines)
        tokens = tokens_of(type, body)
        if fine:
            self._keep(type, lines, body, tokens)
        self._write_down(Told(status, type, body, len(body), success=fine, tokens=tokens, run_s=run_s))
        self._outer.reply(status, lines + self._lines(), (body,), run_s)

    def first_piece(self, attempt: "_Attempt") -> bool:
        """Whether what it says is still wanted. From here on it is this attempt or none."""
        if self._attempt is not attempt:
            return False
        if not attempt.told:
            attempt.told = True
            self._drop_timer()
            self._outer.begin(attempt.lines + self._lines())
        return True

    def write(self, data: bytes, count: int) -> None:
        self._outer.write(data, count)

    def ended(self, attempt: "_Attempt", run_s: float) -> None:
        if not self.first_piece(attempt):
            return
        self._finish()
        type = type_of(attempt.lines)
        tokens = tokens_of(type, attempt.tail)
        body = attempt.gathered()
        if body is not None:
            self._keep(type, attempt.lines, body, tokens)
        self._write_down(Told(200, type, attempt.head(), attempt.size, success=True, tokens=tokens, run_s=run_s))
        self._outer.end(run_s)

    def broke(self, attempt: "_Attempt", data: bytes, error: FornadaError) -> None:
        """A stream failed of which the caller has a part."""
        if self._attempt is not attempt:
            return
        self._finish()
        status = status_of(type(error), self._step.target.style)
        self._write_down(Told(status, type_of(attempt.lines), attempt.head(), attempt.size, success=False))
        self._outer.break_off(data, error)

    def _hit(self, kept: Kept) -> None:
        self._finish()
        tokens = (kept.tokens_in, kept.tokens_out)
        self._write_down(Told(200, kept.type, kept.body, len(kept.body), success=True, cached=True, tokens=tokens))
        self._outer.reply(200, kept.lines + self._lines(hit=True), (kept.body,), 0.0)

    def _refuse(self, error: FornadaError, *, from_model: bool) -> None:
        self._finish()
        outer = self._outer
        told = problem(error, outer.target.style, outer.trace_id, from_model=from_model)
        self._write_down(Told(told.status, JSON, told.body, len(told.body), success=False))
        self._outer.more = self._lines()
        self._outer.fail(error, from_model=from_model)

    def _finish(self) -> None:
        self._over = True
        self._attempt = None
        self._drop_timer()

    def _stop(self) -> None:
        attempt = self._attempt
        self._finish()
        if attempt is not None:
            attempt.exchange.leave()

    def _drop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _lines(self, *, hit: bool = False) -> bytes:
        trace_id = self._outer.trace_id
        log = f"cf-aig-log-id: {self._log_id}\r\n" if self._log_id is not None else ""
        event = self._step.asked.event_id
        return (
            f"cf-aig-cache-status: {'HIT' if hit else 'MISS'}\r\n{log}cf-aig-step: {self._number}\r\n"
            f"cf-aig-request-id: {trace_id}\r\ncf-aig-event-id: {event or self._log_id or trace_id}\r\n"
        ).encode("latin-1", "replace")

    # ---- what is kept

    def _look_up(self, step: Step) -> Resolved | None:
        target = step.target
        try:
            reference = target.reference if target.reference is not None else parse_reference(model_in(step.body))
            return self._shared.catalog.resolve(reference, self._gateway.account)
        except FornadaError:
            return None  # its door says why

    def _key_of(self, step: Step) -> bytes | None:
        resolved = self._resolved
        if not self._rules.ttl_s or resolved is None or step.target.queued or any(word in step.body for word in _NO_RUN):
            return None
        if not self._may_run(resolved):
            return None
        entry = resolved.entry
        version = resolved.version or entry.answering.digest
        return cache_key(
            account=self._gateway.account,
            gateway=self._gateway.id,
            provider=step.provider,
            endpoint=_place_of(step.target),
            version=version,
            media_type=type_of_body(step),
            body=step.body,
            headers=msgspec.json.decode(step.facts.forwarded, type=dict[str, str]),
            form=_form_of(step),
            rules=self._rules,
        )

    def _kept(self) -> Kept | None:
        key = self._key
        if key is None:
            return None
        kept = self._usable(key)
        self._shared.observer.looked_up("miss" if kept is None else "hit")
        return kept

    def _usable(self, key: bytes) -> Kept | None:
        kept = self._shared.gateways.kept(self._gateway, key)
        if kept is None:
            return None
        try:  # of a key that the caller names the answer may be any model's
            resolved = self._shared.catalog.resolve(parse_reference(kept.model), self._gateway.account)
        except FornadaError:
            self._shared.gateways.forget(self._gateway, key)
            return None
        return kept if self._may_run(resolved) else None

    def _may_run(self, resolved: Resolved) -> bool:
        models = self._step.facts.caller.models
        return models is None or resolved.entry.name in models

    def _keep(self, type: str, lines: bytes, body: bytes, tokens: tuple[int, int]) -> None:
        resolved = self._resolved
        if self._key is None or resolved is None or not may_be_kept(type):
            return
        version = resolved.version or resolved.entry.answering.digest
        kept = Kept(resolved.entry.name, version, type, lines, body, *tokens)
        self._shared.gateways.keep(self._gateway, self._key, kept, ttl_s=self._rules.ttl_s)

    @property
    def gathers(self) -> int:
        """Bytes of a stream that somebody wants to have together."""
        if self._key is not None:
            return GATHERED
        return self._shared.most_log_body if self._log_id is not None and self._rules.payload else 0

    # ---- what is written down

    def _write_down(self, told: Told) -> None:
        if self._log_id is None:
            return
        seconds = monotonic() - self._began
        passed = Passed(self._gateway, self._step, self._number, len(self._steps), self._resolved, self._tries, self._created, seconds)
        most = self._shared.most_log_body if self._rules.payload else 0
        self._shared.gateways.record(self._gateway, *record_of(self._log_id, passed, told, most=most))


def _place_of(target: Target) -> str:
    """All that the path and the query said: a door may have several verbs, and inputs in the query."""
    told = msgspec.json.encode((target.name, target.query), order="deterministic").decode()
    return f"{target.door.__class__.__name__} {told}"


def _form_of(step: Step) -> str:
    """What shape of answer the caller can read: whose API it is, and whether it comes in events."""
    streams = step.target.query.get("stream") == "true" or streams_in(step.body)
    return f"{step.target.door.__class__.__name__} {'events' if streams else 'whole'}"


class _Attempt:
    """Hears one attempt (edge.inner.Heard)."""

    exchange: InnerExchange

    def __init__(self, passage: Passage) -> None:
        self._passage = passage
        self.lines = b""
        self.told = False
        """A part of it has been passed on."""
        self.size = 0
        self.tail = b""
        self._pieces: list[bytes] = []
        self._held = 0
        self._most = passage.gathers

    def whole(self, status: int, lines: bytes, body: bytes, run_s: float) -> None:
        self._passage.whole(self, status, lines, body, run_s)

    def refused(self, error: FornadaError, *, from_model: bool) -> None:
        self._passage.failed(self, error, from_model=from_model)

    def begins(self, lines: bytes) -> None:
        self.lines = lines

    def piece(self, data: bytes, count: int) -> None:
        if not data:
            self.exchange.taken(count)
            return
        if not self._passage.first_piece(self):
            return
        self.size += len(data)
        self.tail = (self.tail + data)[-TAIL_BYTES:]
        if self._held < self._most:
            self._pieces.append(data)
            self._held += len(data)
        self._passage.write(data, count)

    def ends(self, run_s: float) -> None:
        self._passage.ended(self, run_s)

    def breaks(self, data: bytes, error: FornadaError) -> None:
        self._passage.broke(self, data, error)

    def gathered(self) -> bytes | None:
        """All of the stream; None where that was too much."""
        return b"".join(self._pieces) if self._held == self.size else None

    def head(self) -> bytes:
        """What there is of its beginning."""
        return b"".join(self._pieces)
