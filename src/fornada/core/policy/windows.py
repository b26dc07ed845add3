"""At most so many in an interval: a window that stands with the clock, and one that moves with the requests."""

from typing import Protocol

from fornada.core.gateway import GatewaySettings, Technique
from fornada.core.names import Instant
from fornada.core.policy.rates import Rate


class Window(Protocol):
    """Asked, then told, for each request that comes."""

    most: int
    window_s: float

    def wait_s(self, now: Instant) -> float:
        """How long until one more may come; 0: now."""

    def take(self, now: Instant) -> None:
        """One has come."""


class FixedWindow:
    """At most `most` between two multiples of `window_s`."""

    __slots__ = ("_begun", "_count", "most", "window_s")

    def __init__(self, most: int, window_s: float) -> None:
        self.most = most
        self.window_s = window_s
        self._begun = -1.0
        self._count = 0

    def wait_s(self, now: Instant) -> float:
        if self._begin(now) != self._begun or self._count < self.most:
            return 0.0
        return self._begun + self.window_s - now

    def take(self, now: Instant) -> None:
        begin = self._begin(now)
        if begin != self._begun:
            self._begun, self._count = begin, 0
        self._count += 1

    def _begin(self, now: Instant) -> float:
        return now // self.window_s * self.window_s


def window_of(settings: GatewaySettings) -> Window | None:
    """None: no limit."""
    interval_s, limit = settings.rate_limiting_interval, settings.rate_limiting_limit
    if not interval_s or not limit:
        return None
    if settings.rate_limiting_technique is Technique.SLIDING:
        return Rate(limit, float(interval_s))
    return FixedWindow(limit, float(interval_s))
