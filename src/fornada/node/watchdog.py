"""Notices a process that doesn't give a place back: model code that heeds no cancellation, in C perhaps, and holds the interpreter meanwhile."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fornada.core.names import Instant
from fornada.core.policy.hanging import Bounds, Held, Look, look
from fornada.node.call import ABANDONED
from fornada.node.link import TURN_S, Link


@dataclass(frozen=True, slots=True)
class Stuck:
    """requests: as the log names them; left_s: how long ago the first of them was given up."""

    requests: tuple[str, ...]
    left_s: float
    others: bool
    """Somebody waits for what the process may still answer."""


class Watchdog:
    """Of one process. Costs nothing until a caller leaves it at work; then it looks now and then, until no such request is left."""

    def __init__(
        self,
        link: Link,
        bounds: Bounds,
        *,
        hung: Callable[[Stuck], None],
        decides: Callable[[], bool],
        now: Callable[[], Instant],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`hung` is told once. What happens while this control plane doesn't decide about the process doesn't count."""
        self._link = link
        self._bounds = bounds
        self._hung = hung
        self._decides = decides
        self._now = now
        self._loop = loop
        self._since: Mapping[int, Instant] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._over = not bounds.cancel_s

    def left(self) -> None:
        """A caller has left what the process works on."""
        if self._timer is None and not self._over:
            self._look()

    def end(self) -> None:
        self._over = True
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        now = self._now()
        seen = look(self._held(), self._since, self._bounds, now=now)
        decides = self._decides()
        if seen.hung and decides:
            # It may have given the place back a moment ago, and begun what would be taken back: that would run twice.
            self._link.hear_out(until=Instant(now + TURN_S))
            seen = look(self._held(), self._since, self._bounds, now=now)
        self._since = seen.since if decides else {}
        if self._over:
            return  # what it said was its end
        if seen.hung and decides:
            self._over = True
            self._hung(self._stuck(seen, now))
        elif seen.again_at < float("inf"):
            self._timer = self._loop.call_later(seen.again_at - now, self._look)

    def _held(self) -> list[Held]:
        """Those of a predecessor came first; when, nobody knows."""
        link, now = self._link, self._now()
        before = [Held(request, self._since.get(request, now), waited_for=False) for request in link.foreign]
        return before + [Held(call.id, call.sent_at, waited_for=call.state is not ABANDONED) for call in link.calls.values()]

    def _stuck(self, seen: Look, now: Instant) -> Stuck:
        calls = self._link.calls
        names = tuple(calls[request].request.request_id if request in calls else str(request) for request in seen.hung)
        return Stuck(names, now - min(seen.since[request] for request in seen.hung), seen.others)
