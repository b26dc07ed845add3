"""Who awaits the next announcement of an instance."""

import asyncio

from fornada.core.errors import FornadaError
from fornada.core.lifecycle.events import Outcome


class Waiters:
    """Everybody is told of every outcome, in the order in which they came."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: set[asyncio.Future[Outcome]] = set()

    async def next(self, within_s: float) -> Outcome:
        """The next announcement. Raises TimeoutError, or what `refuse` is told."""
        waiter: asyncio.Future[Outcome] = self._loop.create_future()
        self._waiting.add(waiter)
        try:
            async with asyncio.timeout(max(0.0, within_s)):
                return await waiter
        finally:
            self._waiting.discard(waiter)

    def tell(self, outcome: Outcome) -> None:
        waiting, self._waiting = self._waiting, set()
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(outcome)

    def refuse(self, error: FornadaError) -> None:
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(error)
