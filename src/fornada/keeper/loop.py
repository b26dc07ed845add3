"""The keeper's loop: one thread, epoll, timers, signals. Nothing called from here may wait."""

import heapq
import itertools
import os
import select
import signal
import socket
import time
from collections import deque
from collections.abc import Callable

READABLE = select.EPOLLIN
WRITABLE = select.EPOLLOUT
FAULTS_MOST, FAULTS_S = 20, 60.0
"""More faults than that within that time are no accident: the next one is raised."""
LONGEST_POLL_S = 3600.0
"""poll takes no more milliseconds than an int holds, 24 days; a setting may say more."""


class Timer:
    """A call that is to come. `cancel` may be called at any time."""

    __slots__ = ("call", "cancelled")

    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True
        self.call = _nothing  # what it would have called is let go of now, not when its time has come


class Loop:
    """Calls back what was asked for, until `stop`."""

    def __init__(self, *, failed: Callable[[Exception], None] | None = None) -> None:
        """`failed` is told what a callback has raised, a fault of ours; without it, that is raised."""
        self._failed = failed
        self._faults: deque[float] = deque(maxlen=FAULTS_MOST)
        """When the last ones were."""
        self._epoll = select.epoll()
        self._ready: dict[int, Callable[[], None]] = {}
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._signals: dict[int, Callable[[], None]] = {}
        self._stopped = False
        # Signals arrive as bytes here: the handlers themselves do nothing, so no callback is ever interrupted by one.
        self._bell, self._wakeup = socket.socketpair()
        self._bell.setblocking(False)
        self._wakeup.setblocking(False)
        signal.set_wakeup_fd(self._wakeup.fileno(), warn_on_full_buffer=False)
        self.watch(self._bell.fileno(), self._rung)

    def now(self) -> float:
        """Monotonic seconds."""
        return time.monotonic()

    def watch(self, descriptor: int, ready: Callable[[], None], events: int = READABLE) -> None:
        """Calls `ready` whenever the descriptor is, until `unwatch`."""
        self._ready[descriptor] = ready
        self._epoll.register(descriptor, events)

    def change(self, descriptor: int, events: int) -> None:
        """Other events for a watched descriptor."""
        self._epoll.modify(descriptor, events)

    def unwatch(self, descriptor: int) -> None:
        """Must come before the descriptor is closed: its number may be another file's at once."""
        if self._ready.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)

    def later(self, delay_s: float, call: Callable[[], None]) -> Timer:
        timer = Timer(call)
        heapq.heappush(self._timers, (self.now() + delay_s, next(self._order), timer))
        return timer

    def on_signal(self, number: int, call: Callable[[], None]) -> None:
        """Also needed by a process 1: a signal without a handler doesn't reach it."""
        self._signals[number] = call
        signal.signal(number, _noted)

    def stop(self) -> None:
        """`run` returns after the callback that is running."""
        self._stopped = True

    def run(self) -> None:
        while not self._stopped:
            # A descriptor's event may be stale when an earlier callback of the same turn closed it: callbacks only try.
            for descriptor, _ in self._epoll.poll(self._timeout_s()):
                ready = self._ready.get(descriptor)
                if ready is not None and not self._stopped:
                    self._call(ready)
            self._run_timers()

    def _timeout_s(self) -> float | None:
        while self._timers and self._timers[0][2].cancelled:
            heapq.heappop(self._timers)
        return min(max(0.0, self._timers[0][0] - self.now()), LONGEST_POLL_S) if self._timers else None

    def _run_timers(self) -> None:
        now = self.now()
        while self._timers and self._timers[0][0] <= now and not self._stopped:
            timer = heapq.heappop(self._timers)[2]
            if not timer.cancelled:
                call, timer.call = timer.call, _nothing
                self._call(call)

    def _rung(self) -> None:
        try:
            numbers = os.read(self._bell.fileno(), 4096)
        except BlockingIOError:
            return
        for number in sorted(set(numbers)):
            call = self._signals.get(number)
            if call is not None:
                self._answer(call)

    def _answer(self, call: Callable[[], None]) -> None:
        """A signal. After a fault it is called again: no other signal may come for what it hadn't come to."""
        if not self._call(call):
            self.later(0, lambda: self._answer(call))

    def _call(self, call: Callable[[], None]) -> bool:
        """Whether it went well."""
        try:
            call()
        except Exception as error:  # the boundary with what children say and do: a fault over one mustn't end all the others
            now = self.now()
            often = len(self._faults) == FAULTS_MOST and now - self._faults[0] < FAULTS_S
            if self._failed is None or often:
                raise
            self._faults.append(now)
            self._failed(error)
            return False
        return True


def _nothing() -> None:
    """A timer's that is over."""


def _noted(number: int, frame: object) -> None:
    """Python's own C handler has already written the number to the wakeup descriptor."""
