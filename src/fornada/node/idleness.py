"""When an instance has been without work for too long: one timer for an instance, not one for a request."""

import asyncio
from collections.abc import Callable

CHECK_LEAST_S = 0.02


class IdleWatch:
    """Looks how long it has been, comes again when it may be due, and calls `due` when it is."""

    def __init__(self, *, timeout_s: float, left_s: Callable[[], float], due: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
        """`left_s` are the seconds until it is due, 0 or less if it is; infinite while it can't be told."""
        self._timeout_s = timeout_s
        self._left_s = left_s
        self._due = due
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        self.end()
        self._come_again(self._timeout_s)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _come_again(self, seconds: float) -> None:
        self._timer = self._loop.call_later(max(seconds, CHECK_LEAST_S), self._look)

    def _look(self) -> None:
        self._timer = None
        left_s = self._left_s()
        if left_s > 0:
            self._come_again(min(left_s, self._timeout_s))
        else:
            self._due()
