"""What the edge tells about its work: counts, times, refusals. Never inputs, outputs or keys.

Metrics are counted by plain attributes that are looked up once a model, since every request passes here.
"""

import re
import traceback
from typing import Protocol

from fornada.core.errors import FornadaError, InternalFault, ModelFault
from fornada.edge.auth import Caller
from fornada.telemetry import Metrics, Telemetry

OK = "ok"
LEFT = "left"
"""The caller went before it was answered."""
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")


def outcome_of(error: FornadaError) -> str:
    """A refusal's name as a label: `runner_died`."""
    return _WORD.sub("_", type(error).__name__).lower()


class Meter(Protocol):
    """Counts the requests of one model."""

    def done(self, outcome: str, total_s: float, run_s: float) -> None:
        """A request ended. `run_s`: seconds in the model's own code, 0 where it is not known."""

    def first_item(self, wait_s: float) -> None:
        """A stream's first item went out, so long after the request had arrived."""


class Observer(Protocol):
    """Where the edge's numbers and events go."""

    verbose: bool
    """Whether `answered` wants to hear of successes of hot routes, too."""

    def meter(self, model: str) -> Meter:
        """The counter of a model of the catalogue. Called once a model and kept; "" counts what named none."""

    def answered(
        self, *, request_id: str, trace_id: str, method: str, route: str, status: int, error: FornadaError | None, seconds: float
    ) -> None:
        """A request has its answer. `route`: the model of a hot route, else the path."""

    def acted(self, *, action: str, path: str, caller: Caller, status: int, request_id: str) -> None:
        """Somebody with a key, or anybody in open mode, has changed something of the node, or tried to. `action`: the operation's id.
        `status` 0: the caller left before the answer."""

    def looked_up(self, outcome: str) -> None:
        """A gateway has looked for a kept answer: `hit` or `miss`."""

    def failed(self, *, where: str, request_id: str, error: BaseException) -> None:
        """A bug of ours met a request."""

    def render(self) -> bytes:
        """All metrics of the node in Prometheus' text format."""


class Told:
    """An Observer over the node's telemetry."""

    def __init__(self, telemetry: Telemetry, *, verbose: bool = False) -> None:
        self.verbose = verbose
        self._log = telemetry.log
        self._audit = telemetry.audit
        self._metrics = telemetry.metrics

    def meter(self, model: str) -> Meter:
        return _Counted(self._metrics, model)

    def answered(
        self, *, request_id: str, trace_id: str, method: str, route: str, status: int, error: FornadaError | None, seconds: float
    ) -> None:
        ours = isinstance(error, ModelFault | InternalFault)
        tell = self._log.warning if ours else self._log.debug
        tell(
            "http.answered",
            request_id=request_id,
            trace_id=trace_id,
            method=method,
            route=route,
            status=status,
            code=error.code if error else 0,
            seconds=round(seconds, 6),
        )

    def acted(self, *, action: str, path: str, caller: Caller, status: int, request_id: str) -> None:
        self._audit.info(
            "audit",
            action=action,
            path=path,
            account=caller.account or "",
            key=caller.key,
            role=caller.role.name.lower(),
            status=status,
            request_id=request_id,
        )

    def looked_up(self, outcome: str) -> None:
        self._metrics.gateway_lookups.at(outcome).value += 1

    def failed(self, *, where: str, request_id: str, error: BaseException) -> None:
        # The places alone: an exception's text may quote the request.
        frames = traceback.extract_tb(error.__traceback__)[-8:]
        places = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
        self._log.error("http.failed", where=where, request_id=request_id, error=type(error).__name__, places=places)

    def render(self) -> bytes:
        return self._metrics.render()


class Unobserved:
    """Nobody listens: for tests of other things."""

    verbose = False

    def meter(self, model: str) -> Meter:
        return _Uncounted()

    def answered(
        self, *, request_id: str, trace_id: str, method: str, route: str, status: int, error: FornadaError | None, seconds: float
    ) -> None:
        pass

    def acted(self, *, action: str, path: str, caller: Caller, status: int, request_id: str) -> None:
        pass

    def looked_up(self, outcome: str) -> None:
        pass

    def failed(self, *, where: str, request_id: str, error: BaseException) -> None:
        pass

    def render(self) -> bytes:
        return b""


class _Counted:
    __slots__ = ("_first", "_metrics", "_model", "_ok", "_run", "_total")

    def __init__(self, metrics: Metrics, model: str) -> None:
        self._metrics = metrics
        self._model = model
        self._ok = metrics.requests.at(model, OK)
        self._total = metrics.request_seconds.at(model, "total")
        self._run = metrics.request_seconds.at(model, "run")
        self._first = metrics.request_seconds.at(model, "first_item")

    def done(self, outcome: str, total_s: float, run_s: float) -> None:
        count = self._ok if outcome == OK else self._metrics.requests.at(self._model, outcome)
        count.value += 1
        self._total.observe(total_s)
        if run_s:
            self._run.observe(run_s)

    def first_item(self, wait_s: float) -> None:
        self._first.observe(wait_s)


class _Uncounted:
    def done(self, outcome: str, total_s: float, run_s: float) -> None:
        pass

    def first_item(self, wait_s: float) -> None:
        pass
