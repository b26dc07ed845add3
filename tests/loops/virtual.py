"""Time that passes only when nothing else can happen: a test of minutes takes milliseconds, and never depends on luck."""

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

from fornada.core.names import Instant
from tests.bounds import bound

BEGINNING_WALL = 1_700_000_000.0


class _Selector(selectors.DefaultSelector):
    """Instead of waiting it lets time jump to where the loop would have woken up. Sockets come first."""

    time = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if events:
            return events
        if timeout is None:
            events = super().select(bound(10))
            assert events, "nothing will ever happen again"
            return events
        self.time += max(timeout, 0.0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock is its selector's."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.time

    def busy_until(self, instant: float) -> None:
        """A callback takes so long: no socket is read meanwhile."""
        self._virtual.time = instant

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":  # type: ignore[override]
        """At once, and not in a thread: time would pass for the loop alone while that works."""
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - it belongs to whoever awaits it
            done.set_exception(error)
        return done


class VirtualClock:
    """core.ports.Clock over the running VirtualLoop."""

    def now(self) -> Instant:
        return Instant(asyncio.get_running_loop().time())

    def wall(self) -> float:
        return BEGINNING_WALL + self.now()


def virtual(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs a coroutine as a test in virtual time. What the loop's callbacks raise fails the test."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        failures: list[dict[str, Any]] = []
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.get_loop().set_exception_handler(lambda _, context: failures.append(context))
            runner.run(test(*args, **kwargs))
        assert not failures, failures

    return run
