"""Work that many ask for and that is done once."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Generic, TypeVar

from fornada.core.ports import ProgressSink, Step

Result = TypeVar("Result")
Work = Callable[[ProgressSink], Awaitable[Result]]


class Flights(Generic[Result]):
    """Runs work by key: whoever asks for a key under way joins it and sees its progress. The last one to leave cancels it."""

    def __init__(self) -> None:
        self._flights: dict[str, _Flight[Result]] = {}
        self._tasks: set[asyncio.Task[Result]] = set()

    def __contains__(self, key: str) -> bool:
        return key in self._flights

    def __len__(self) -> int:
        return len(self._tasks)

    async def join(self, key: str, work: Work[Result], progress: ProgressSink) -> Result:
        """The result of `work`, ours or of who asked before. Raises what it raises."""
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = self._start(key, work)
        with flight.watched_by(progress):
            try:
                return await asyncio.shield(flight.task)
            finally:
                if len(flight.watchers) == 1 and not flight.task.done():
                    # Who asks from now on starts anew; this one only cleans up after itself.
                    self._forget(key, flight)
                    flight.task.cancel()

    async def close(self) -> None:
        """Cancels all and waits for their cleaning up."""
        self._flights.clear()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _start(self, key: str, work: Work[Result]) -> "_Flight[Result]":
        flight: _Flight[Result] = _Flight()

        async def fly() -> Result:
            try:
                return await work(flight.tell)
            finally:
                self._forget(key, flight)

        flight.task = asyncio.create_task(fly(), name=f"provision {key[:12]}")
        self._tasks.add(flight.task)
        flight.task.add_done_callback(self._ended)
        return flight

    def _forget(self, key: str, flight: "_Flight[Result]") -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]

    def _ended(self, task: "asyncio.Task[Result]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # looked at: those who waited have it, and all may have left


class _Flight(Generic[Result]):
    def __init__(self) -> None:
        self.task: asyncio.Task[Result]
        self.watchers: list[ProgressSink] = []
        self.last: Step | None = None

    def tell(self, step: Step) -> None:
        self.last = step
        for watcher in list(self.watchers):
            watcher(step)

    @contextlib.contextmanager
    def watched_by(self, progress: ProgressSink) -> Iterator[None]:
        self.watchers.append(progress)
        if self.last:
            progress(self.last)
        try:
            yield
        finally:
            self.watchers.remove(progress)
