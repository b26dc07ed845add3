"""Carries out SLEEP and WAKE, on the thread that runs the model: gives its device memory back, and takes it again.

SLEEP -> falling -> the model's sleep -> asleep, SLEPT         WAKE -> waking -> the model's wake, bookings -> ready, WOKEN
         what one of them raises -> SLEPT or WOKEN with `failed` -> the end: half asleep it is of no use
"""

from __future__ import annotations

import time
from typing import Any, Callable

from fornada_sdk.api_context import Context
from fornada_sdk.runner.answers import describe, print_traceback
from fornada_sdk.runner.capture import end_lines
from fornada_sdk.runner.heap import give_back
from fornada_sdk.runner.invoke.servable import Servable
from fornada_sdk.runner.session import Session, State
from fornada_sdk.wire.messages import Kind


class Sleeping:
    """Of one instance. The session says in `wish` that there is something to do."""

    def __init__(self, session: Session, servable: Servable, context: Context, hurry: Callable[[], None]) -> None:
        """`hurry` gets answers to bookings read soon."""
        self._session = session
        self._servable = servable
        self._context = context
        self._hurry = hurry

    def carry_out(self, settled: Callable[[Any], Any]) -> None:
        """What is wished. `settled` gives what an awaitable comes to."""
        step = self._begin()
        if step is None:
            return
        try:
            settled(step.run(self._context))
            step.finish()
        except BaseException as error:  # noqa: BLE001 - the boundary with model code
            step.fail(error)

    async def carry_out_on_loop(self) -> None:
        """The same, for async code."""
        step = self._begin()
        if step is None:
            return
        try:
            value = step.run(self._context)
            if hasattr(value, "__await__"):
                await value
            if step.books:
                import asyncio

                # The answer to a booking is heard by another thread, but this one may not wait for it: the loop is everybody's.
                await asyncio.get_running_loop().run_in_executor(None, step.finish)
            else:
                step.finish()
        except BaseException as error:  # noqa: BLE001 - the boundary with model code
            step.fail(error)

    def _begin(self) -> _Step | None:
        wish, self._session.wish = self._session.wish, None
        run = self._servable.wake if wish == Kind.WAKE else self._servable.sleep
        return None if wish is None or run is None else _Step(self._session, wish, run, self._hurry)


class _Step:
    """One way, down or up."""

    def __init__(self, session: Session, wish: Kind, run: Callable[[Context], Any], hurry: Callable[[], None]) -> None:
        self.run = run
        self.books = wish == Kind.WAKE
        self._session = session
        self._hurry = hurry
        self._began = time.monotonic()

    def finish(self) -> None:
        """The model has done its part. Raises OutOfDeviceMemory."""
        session = self._session
        if self.books:
            session.bookings.restore(self._hurry)
            session.rest(State.READY, Kind.WOKEN, {"wake_s": round(time.monotonic() - self._began, 6)})
        else:
            give_back()
            session.rest(State.ASLEEP, Kind.SLEPT, {"sleep_s": round(time.monotonic() - self._began, 6)})

    def fail(self, error: BaseException) -> None:
        print_traceback(error)
        end_lines()
        kind = Kind.WOKEN if self.books else Kind.SLEPT
        self._session.rest(State.STOPPING, kind, {"failed": describe(error)})
        self._session.stop(0.0)
