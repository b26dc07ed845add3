"""What a passage through a gateway came to, as its log says it."""

from typing import NamedTuple

from fornada.core.gateway import Gateway, Log, LogId, Payload
from fornada.core.ports import Resolved
from fornada.edge.gateway.answers import cost_of
from fornada.edge.gateway.steps import JSON, Step, model_in

LONGEST_TEXT = 256
"""Characters of a name in a log."""
_AS_JSON = ("", "application/json", "application/x-www-form-urlencoded", "text/plain")
_PAYLOAD_TYPES = ("application/json", "text/")


class Passed(NamedTuple):
    """Where a passage ended."""

    gateway: Gateway
    step: Step
    number: int
    """Of the step."""
    steps: int
    resolved: Resolved | None
    tries: int
    created: float
    """Seconds since 1970."""
    seconds: float


class Told(NamedTuple):
    """What the caller was told there."""

    status: int
    type: str
    body: bytes
    """Or its beginning."""
    size: int
    success: bool
    cached: bool = False
    tokens: tuple[int, int] = (0, 0)
    run_s: float = 0.0


def type_of_body(step: Step) -> str:
    """JSON is sent under many names: curl calls it a form, and doors take it for what it is."""
    plain = step.facts.media_type in _AS_JSON
    return JSON if plain and step.body.lstrip()[:1] in (b"{", b"", b"[") else step.facts.content_type or JSON


def record_of(id: LogId, passed: Passed, told: Told, *, most: int) -> tuple[Log, Payload]:
    """The log, and at most `most` bytes of each body: of texts and JSON."""
    step, resolved = passed.step, passed.resolved
    asked_type = type_of_body(step)
    payload = Payload(
        step.body[:most] if asked_type.startswith(_PAYLOAD_TYPES) else b"",
        told.body[:most] if told.type.startswith(_PAYLOAD_TYPES) else b"",
    )
    custom = step.asked.custom_cost
    log = Log(
        id=id,
        account=passed.gateway.account,
        gateway=passed.gateway.id,
        created=passed.created,
        provider=step.provider[:LONGEST_TEXT],
        model=(step.target.name or model_in(step.body))[:LONGEST_TEXT],
        model_type=resolved.spec.task if resolved is not None else "",
        path=step.endpoint[:LONGEST_TEXT],
        request_type="universal" if passed.steps > 1 else "direct",
        request_content_type=asked_type[:LONGEST_TEXT],
        response_content_type=told.type[:LONGEST_TEXT],
        status_code=told.status,
        success=told.success,
        cached=told.cached,
        duration_ms=round(passed.seconds * 1000),
        tokens_in=told.tokens[0],
        tokens_out=told.tokens[1],
        cost=0.0 if told.cached else cost_of(custom, resolved.spec if resolved else None, told.tokens, told.run_s),
        custom_cost=custom is not None,
        step=passed.number,
        attempts=passed.tries,
        metadata=step.asked.metadata,
        event_id=step.asked.event_id or id,
        request_size=len(step.body),
        response_size=told.size,
        request_complete=len(payload.request) == len(step.body),
        response_complete=len(payload.response) == told.size,
        key=step.facts.caller.key,
        user_agent=(step.facts.get(b"user-agent") or b"").decode("latin-1")[:LONGEST_TEXT],
    )
    return log, payload
