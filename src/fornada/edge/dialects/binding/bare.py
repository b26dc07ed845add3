"""An Exchange whose answers go out without the envelope that the Workers AI door puts around them.

{"result": X, "success": true, …}       X, as application/json
events, pictures, sound                 as they are
a refusal that model code wrote         the binding's error body, with the same status
"""

from collections.abc import Sequence

import msgspec

from fornada.core.errors import FornadaError
from fornada.core.requests import Ticket
from fornada.edge.calls import JSON_TYPE, Exchange, Target
from fornada.edge.dialects.workers_ai.answer import CLOSE, CLOSE_NONFINITE, CLOSE_REFUSED, OPEN
from fornada.edge.observer import Meter
from fornada.edge.problems import binding_refusal, is_success

NONFINITE = b"x-fornada-nonfinite: true\r\n"
"""What stands beside a result in the envelope has no place in a bare one."""


class BareExchange:
    """The same request of another target, perhaps with another body."""

    def __init__(self, given: Exchange, target: Target, body: bytes | None = None) -> None:
        """`body` takes the place of what came."""
        self._given = given
        self._body = body
        self._enveloped = False
        self._kept: bytes | None = None
        self.target = target
        self.facts = given.facts
        self.request_id = given.request_id
        self.trace_id = given.trace_id
        self.size = given.size if body is None else len(body)
        self.more = b""

    @property
    def meter(self) -> Meter | None:
        return self._given.meter

    @meter.setter
    def meter(self, meter: Meter | None) -> None:
        self._given.meter = meter

    def body(self) -> bytes:
        return self._given.body() if self._body is None else self._body

    def pieces(self) -> Sequence[bytes]:
        return self._given.pieces() if self._body is None else (self._body,)

    def hold(self, ticket: Ticket) -> None:
        self._given.hold(ticket)

    def reply(self, status: int, lines: bytes, parts: tuple[bytes | memoryview, ...], run_s: float) -> None:
        if not lines.startswith(JSON_TYPE):
            self._given.reply(status, lines, parts, run_s)
        elif not is_success(status) and parts[-1] == CLOSE_REFUSED:
            body = binding_refusal(status, msgspec.json.decode(parts[-2])[0]["message"], self.trace_id)
            self._given.reply(status, JSON_TYPE, (body,), run_s)
        elif parts[0] == OPEN:
            more = NONFINITE if parts[-1] == CLOSE_NONFINITE else b""
            self._given.reply(status, lines + more, parts[1:-1], run_s)
        else:  # put together from many pieces
            whole = b"".join(parts)
            self._given.reply(status, lines, (whole.removeprefix(OPEN).removesuffix(CLOSE),), run_s)

    def fail(self, error: FornadaError, *, from_model: bool = False) -> None:
        self._given.fail(error, from_model=from_model)

    def give_up(self, error: FornadaError) -> None:
        self._given.give_up(error)

    def took(self, count: int) -> None:
        self._given.took(count)

    def begin(self, lines: bytes) -> None:
        self._enveloped = lines == JSON_TYPE
        self._given.begin(lines)

    def write(self, data: bytes, count: int) -> None:
        if not self._enveloped:
            self._given.write(data, count)
            return
        # A long one: what may be the envelope's end is kept back until it is.
        if self._kept is None:
            self._kept, data = b"", data.removeprefix(OPEN)
        data = self._kept + data
        self._kept = data[-len(CLOSE) :]
        self._given.write(data[: -len(CLOSE)], count)

    def end(self, run_s: float) -> None:
        if self._kept:
            self._given.write(self._kept.removesuffix(CLOSE), 0)
        self._given.end(run_s)

    def break_off(self, data: bytes, error: FornadaError) -> None:
        self._given.break_off(data, error)
