"""Who awaits what becomes of an instance: its next announcement, that it is ready, that nothing of it runs."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from fornada.core.errors import Conflict, FornadaError
from fornada.core.lifecycle.events import Outcome
from fornada.core.lifecycle.states import RESTING, State
from fornada.core.names import Instant, ModelName


class Awaited(Protocol):
    """The instance, as who waits for it sees it."""

    model: ModelName

    @property
    def state(self) -> State: ...

    def wanted(self) -> None:
        """It is to be ready."""

    def refusal(self, now: Instant) -> FornadaError | None:
        """What prevents that for now; None: nothing."""

    async def outcome(self, deadline: Instant) -> Outcome:
        """The next announcement. Raises DeadlinePassed, and why nobody can wait for it."""


async def until_ready(instance: Awaited, deadline: Instant, *, now: Callable[[], Instant]) -> None:
    """Wants it, and returns when it is. Raises what prevents it, Conflict where somebody else wants it gone, or DeadlinePassed."""
    while instance.state is not State.READY:
        if refusal := instance.refusal(now()):
            raise refusal
        instance.wanted()
        outcome = await instance.outcome(deadline)
        if outcome is Outcome.STOPPED and instance.state in RESTING:
            raise Conflict(f"{instance.model} was unloaded while it was being loaded")


async def until_at_rest(instance: Awaited, deadline: Instant) -> None:
    """Returns when nothing of it runs. Raises DeadlinePassed."""
    while instance.state not in RESTING:
        if await instance.outcome(deadline) not in (Outcome.READY, Outcome.ASLEEP):
            return


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
