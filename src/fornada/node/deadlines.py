"""Deadlines of requests: one timer for all of them.

A timer for each request would cost more than the request. Requests lie in buckets of a tick's width instead; nearly all are
taken out again long before their bucket's time comes, so putting in and taking out are a set's own operations.
"""

import asyncio
import heapq
from collections.abc import Callable
from typing import Protocol

from fornada.core.names import Instant
from fornada.node.faults import Faults

TICKS_A_SECOND = 50
AT_LEAST_S = 0.001
"""A timer may fire a little early; asking for less than the clock can tell would make it fire without end."""
FARTHEST_S = 1e7
"""A deadline beyond this many seconds is as good as none."""


class Expiring(Protocol):
    """What lies in a wheel. `tick` belongs to the wheel."""

    tick: int

    def expire(self, now: Instant) -> None:
        """Its deadline has passed, by a tick at most."""


class Wheel:
    """Holds things until their deadline or until they are taken out. One that fails over its end costs none of the others theirs."""

    def __init__(self, *, now: Callable[[], Instant], loop: asyncio.AbstractEventLoop, faults: Faults) -> None:
        self._now = now
        self._faults = faults
        self._loop = loop
        self._buckets: dict[int, set[Expiring]] = {}
        self._ticks: list[int] = []
        """A heap of the keys of `_buckets`."""
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for = 0

    def add(self, item: Expiring, deadline: Instant, now: Instant) -> None:
        tick = int(min(deadline, now + FARTHEST_S) * TICKS_A_SECOND) + 1
        item.tick = tick
        bucket = self._buckets.get(tick)
        if bucket is None:
            bucket = self._buckets[tick] = set()
            heapq.heappush(self._ticks, tick)
            if self._timer is None or tick < self._armed_for:
                self._arm(now)
        bucket.add(item)

    def discard(self, item: Expiring) -> None:
        """Nothing happens where it has expired already."""
        bucket = self._buckets.get(item.tick)
        if bucket is not None:
            bucket.discard(item)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._buckets.clear()
        self._ticks.clear()

    def _arm(self, now: Instant) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed_for = self._ticks[0]
        self._timer = self._loop.call_later(max(AT_LEAST_S, self._armed_for / TICKS_A_SECOND - now), self._turn)

    def _turn(self) -> None:
        self._timer = None
        now = self._now()
        try:
            while self._ticks and self._ticks[0] <= now * TICKS_A_SECOND:
                bucket = self._buckets.pop(heapq.heappop(self._ticks))
                while bucket:
                    with self._faults.contained("deadline"):
                        bucket.pop().expire(now)
        finally:
            if self._ticks and self._timer is None:
                self._arm(now)
