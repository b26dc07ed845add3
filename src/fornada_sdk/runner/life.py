"""The life of one instance: load, warm up, serve, end. Runs on the main thread, where libraries expect to be loaded."""

from __future__ import annotations

import gc
import time
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Callable

from fornada_sdk.api import Model
from fornada_sdk.api_context import Context, Device, Instance
from fornada_sdk.runner import engines, reports
from fornada_sdk.runner.assignment import Assignment
from fornada_sdk.runner.capture import Output, end_lines
from fornada_sdk.runner.engines import Loaded, Target
from fornada_sdk.runner.invoke.inline import Inline
from fornada_sdk.runner.invoke.servable import Batching, Servable, servable, with_rest
from fornada_sdk.runner.invoke.threads import Threads
from fornada_sdk.runner.session import Session, State
from fornada_sdk.runner.sleeping import Sleeping
from fornada_sdk.runner.standby import Standby
from fornada_sdk.runner.streams import close
from fornada_sdk.wire.channel import Channel, Message
from fornada_sdk.wire.messages import Kind

if TYPE_CHECKING:
    import asyncio

GOODBYE_S = 5.0
"""How long the last messages may take to leave, or a control plane to come for them."""
FAILED_EXIT = 1


class Life:
    """One instance. `live` returns the process' exit code."""

    def __init__(self, keeper: Channel, assignment: Assignment, output: Output) -> None:
        self._assignment = assignment
        self._phase = "loading"
        self._loop: asyncio.AbstractEventLoop | None = None
        device = Device(assignment.device_id, assignment.device_kind, assignment.device_memory_bytes, self._allocate)
        self._instance = Instance(
            model=assignment.model,
            version=assignment.version,
            instance=assignment.instance,
            device=device,
            artifacts=assignment.artifacts,
            settings=assignment.settings,
            scratch=assignment.scratch,
            load_attempt=assignment.load_attempt,
            load_count=assignment.load_count,
            pid=assignment.pid,
            log=output.log,
            progress=self._progress,
        )
        self._context = Context(self._instance)
        self.session = Session(keeper, assignment, self._instance)
        self._standby = Standby(self.session)

    def live(self, messages: list[Message]) -> int:
        """`messages` came from the keeper together with ASSIGN."""
        for message in messages:
            self.session.hear(message)
        self._standby.start()
        self._standby.busy()
        try:
            serving = self.load()
        except BaseException as error:  # noqa: BLE001 - the boundary with model code
            return self._fail(error)
        self.serve(serving)
        self._standby.busy()  # somebody must still see the keeper go, and tell a successor that this is the end
        self.session.say_goodbye(GOODBYE_S)
        end_lines()
        return 0

    # ---- loading --------------------------------------------------------------------------------------------------------------

    def load(self) -> Servable:
        """The model, warmed up: READY is said. Raises what model code raises."""
        began = time.monotonic()
        loaded = engines.load(self._assignment, self._context)
        self._instance.outputs = loaded.outputs
        serving = servable(loaded.target)
        if isinstance(loaded.target, Model):
            self._settled(loaded.target.load(self._context))
            serving = with_rest(serving, loaded.target)
        load_s = time.monotonic() - began
        self._phase = "warming"
        self._warm_up(loaded.target, serving)
        # What was made while loading lives as long as the process: the collector need not look at it again.
        gc.collect()
        gc.freeze()
        self._standby.idle()
        self.session.sleeps = serving.sleeps
        self.session.enter(State.READY, Kind.READY, self._facts(loaded, serving, load_s, time.monotonic() - began - load_s))
        self._phase = ""
        return serving

    def _settled(self, value: Any) -> Any:
        """`value`, or what an awaitable comes to on the loop that will serve."""
        if not isinstance(value, Awaitable):
            return value
        return self._running_loop().run_until_complete(value)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            import asyncio  # 30 ms, which sync models don't need to spend

            self._loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self._loop)
        return self._loop

    def _warm_up(self, target: Target, serving: Servable) -> None:
        items = reports.warm_up(target, serving, self._assignment, self._context, self._settled)
        if items is not None:
            self._settled(_first_item(items))

    def _fail(self, error: BaseException) -> int:
        facts = reports.failed(error, phase=self._phase)
        self._standby.idle()
        session = self.session
        session.enter(State.FAILED, Kind.FAILED, facts)
        deadline = time.monotonic() + GOODBYE_S
        while not session.attached and time.monotonic() < deadline:
            session.poll(0.1)  # a successor may be on its way, and is to learn why
        session.say_goodbye(GOODBYE_S)
        return FAILED_EXIT

    # ---- serving --------------------------------------------------------------------------------------------------------------

    def serve(self, serving: Servable) -> None:
        """Until the session has ended."""
        given, session, instance = self._assignment, self.session, self._instance
        batching = Batching(given.max_batch, given.max_wait_ms / 1000)
        sleeping = Sleeping(session, serving, self._context, self._standby.hurry)
        if serving.is_async:
            from fornada_sdk.runner.invoke.asynchronous import Asynchronous

            loop = self._running_loop()
            loop.run_until_complete(Asynchronous(session, serving, instance, loop, given.concurrency, batching, sleeping).serve())
        elif given.concurrency > 1:
            Threads(session, serving, instance, given.concurrency, batching, self._rest_by(sleeping)).serve()
        else:
            Inline(session, serving, instance, self._standby, batching, self._rest_by(sleeping)).serve()

    def _rest_by(self, sleeping: Sleeping) -> Callable[[], None]:
        """On the main thread, which reads otherwise."""

        def carry_out() -> None:
            self._standby.busy()
            sleeping.carry_out(self._settled)
            self._standby.idle()

        return carry_out

    def _facts(self, loaded: Loaded, serving: Servable, load_s: float, warmup_s: float) -> dict[str, Any]:
        assignment = self._assignment
        inline = not serving.is_async and assignment.concurrency == 1
        ahead = max(reports.AHEAD, 2 * assignment.max_batch) if inline else assignment.concurrency * assignment.max_batch
        return reports.ready(loaded, serving, load_s=load_s, warmup_s=warmup_s, pipelining=ahead)

    # ---- what model code calls ------------------------------------------------------------------------------------------------

    def _progress(self, text: str, fraction: float | None) -> None:
        if self._phase:
            self.session.progress(self._phase, text, fraction)

    def _allocate(self, size: int, release_delay_s: float) -> None:
        self.session.bookings.book(self._assignment.device_id, size, release_delay_s, self._standby.hurry)


async def _first_item(items: Any) -> None:
    from fornada_sdk.runner.answers import encoded

    async for item in items:
        encoded(item)
        break
    aclose = getattr(items, "aclose", None)
    if aclose is None:
        close(items)
    else:
        await aclose()
