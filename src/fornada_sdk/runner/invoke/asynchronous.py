"""Async model code: a task for each request on the main thread's loop, up to `concurrency` of them; another thread reads the wire."""

from __future__ import annotations

import asyncio
import collections
import time
import types
from collections.abc import Iterator
from typing import Any

from fornada_sdk.api_context import CURRENT, Context, Instance
from fornada_sdk.runner.answers import cancelled_frames, error_frames, ok_frames
from fornada_sdk.runner.attachment import Attachment
from fornada_sdk.runner.batch import BatchContext
from fornada_sdk.runner.call import Call
from fornada_sdk.runner.invoke.servable import Batching, Servable, checked_outputs, settled
from fornada_sdk.runner.long_answer import Outgoing
from fornada_sdk.runner.reading import start_reader
from fornada_sdk.runner.session import Session, State
from fornada_sdk.runner.sleeping import Sleeping
from fornada_sdk.runner.streams import CREDIT_WAIT_S, Stream, close, is_stream


class Asynchronous:
    """Serves on `loop` until the session has ended."""

    def __init__(
        self,
        session: Session,
        servable: Servable,
        instance: Instance,
        loop: asyncio.AbstractEventLoop,
        concurrency: int,
        batching: Batching,
        sleeping: Sleeping,
    ) -> None:
        self._sleeping = sleeping
        self._session = session
        self._servable = servable
        self._instance = instance
        self._loop = loop
        self._concurrency = concurrency
        self._max_batch = batching.most if servable.run_batch is not None else 1
        self._max_wait_s = batching.wait_s
        self._waiting: collections.deque[Call] = collections.deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._gathered: list[tuple[Call, Outgoing]] = []
        self._unsent: list[Attachment] = []
        """Those for which items of streams lie ready."""
        self._flush_due = False
        self._ended = asyncio.Event()

    async def serve(self) -> None:
        self._session.on_calls = self._on_calls
        self._session.on_wish = self._on_wish
        start_reader(self._read)
        self._take()
        await self._ended.wait()

    def _on_calls(self) -> None:
        self._loop.call_soon_threadsafe(self._take)

    def _on_wish(self) -> None:
        self._loop.call_soon_threadsafe(self._rest)

    def _rest(self) -> None:
        if self._session.wish is not None:
            task = self._loop.create_task(self._sleeping.carry_out_on_loop())
            self._tasks.add(task)
            task.add_done_callback(self._done)

    def _read(self) -> None:
        while not self._session.ended:
            self._session.poll(None)
        self._loop.call_soon_threadsafe(self._ended.set)

    # ---- from the inbox to tasks ----------------------------------------------------------------------------------------------

    def _take(self) -> None:
        inbox = self._session.inbox
        while inbox:
            self._waiting.append(inbox.popleft())
        self._start()

    def _start(self) -> None:
        while self._waiting and len(self._tasks) < self._concurrency:
            first = self._waiting.popleft()
            task = self._loop.create_task(self._together(first) if self._max_batch > 1 else self._alone(first))
            self._tasks.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._session.wake_if_ended()
        self._start()
        fault = None if task.cancelled() else task.exception()
        if fault is not None:
            raise fault  # ours: the loop's handler prints it

    def _is_due(self, call: Call) -> bool:
        call.started = True
        if call.over:
            return False
        if call.deadline and time.monotonic() > call.deadline:
            self._file(call, cancelled_frames(call, "the deadline passed while it waited"))
            return False
        return True

    # ---- one request ----------------------------------------------------------------------------------------------------------

    async def _alone(self, call: Call) -> None:
        if not self._is_due(call):
            return
        CURRENT.set(call)
        began = time.monotonic()
        self._cancel_with(call)
        if call.cancelled:
            self._file(call, cancelled_frames(call, ""))
            return
        try:
            result = await settled(self._servable.handle(call.request(), call))
        except BaseException as error:  # noqa: BLE001 - the boundary with model code
            self._fail(call, error, began)
            return
        if is_stream(result):
            await self._pump(call, result, began)
        else:
            self._answer(call, result, began)

    def _cancel_with(self, call: Call) -> None:
        """From here on a CANCEL cancels the running task."""
        task = asyncio.current_task(self._loop)
        assert task is not None
        running = task

        def notify() -> None:
            self._loop.call_soon_threadsafe(self._noticed, call, running)

        call.notify = notify

    def _noticed(self, call: Call, task: asyncio.Task[None]) -> None:
        if call.cancelled and not call.over:
            task.cancel()

    def _answer(self, call: Call, result: Any, began: float) -> None:
        run_s = time.monotonic() - began
        try:
            self._file(call, cancelled_frames(call, "") if call.cancelled else ok_frames(call, result, run_s))
        except Exception as error:  # noqa: BLE001 - what model code returned can't be sent
            self._fail(call, error, began)

    def _fail(self, call: Call, error: BaseException, began: float) -> None:
        run_s = time.monotonic() - began
        self._file(call, cancelled_frames(call, "") if call.cancelled else error_frames(call, error, run_s))

    # ---- streams --------------------------------------------------------------------------------------------------------------

    async def _pump(self, call: Call, result: Any, began: float) -> None:
        try:
            stream = Stream(self._session, call, result)
        except Exception as error:  # noqa: BLE001 - a Response that model code filled with what can't be sent
            self._fail(call, error, began)
            return
        items: Any = stream.items
        step = getattr(items, "__anext__", None)
        try:
            unwanted = stream.cancelled
            while not unwanted:  # asked once a step, before its item is sent
                try:
                    item = next(items) if step is None else await step()
                except (StopAsyncIteration, StopIteration):
                    stream.end()
                    return
                unwanted = stream.cancelled
                if unwanted:
                    break
                home = stream.put(item)
                if home is None:
                    await self._room(stream, call)
                    unwanted = stream.cancelled
                    if unwanted:
                        break
                    home = stream.put_held()
                if len(self._tasks) > 1:
                    # What others have made in this turn of the loop goes with it. The turn comes before the model's next step, which may
                    # compute for long without ever waiting.
                    self._send_soon(home)
                    await _turn()
                else:
                    home.flush()
                    if step is None:
                        await _turn()  # a sync generator gives the others no turn of its own
            await _close(items)
            stream.stop()
        except asyncio.CancelledError:
            await _close(items)
            stream.stop()
        except BaseException as error:  # noqa: BLE001 - the boundary with model code
            await _close(items)
            stream.fail(error)

    def _send_soon(self, home: Attachment) -> None:
        if home not in self._unsent:
            self._unsent.append(home)
        self._flush_soon()

    async def _room(self, stream: Stream, call: Call) -> None:
        """Waits until the reader has room for the item that the stream holds, or nobody wants it any more."""
        changed = asyncio.Event()
        before = call.notify

        def notify() -> None:
            self._loop.call_soon_threadsafe(changed.set)
            if before is not None:
                before()

        call.notify = notify
        while not stream.fits and not stream.cancelled:
            try:
                await asyncio.wait_for(changed.wait(), CREDIT_WAIT_S)
            except asyncio.TimeoutError:
                pass
            changed.clear()
        call.notify = before

    # ---- batches --------------------------------------------------------------------------------------------------------------

    async def _together(self, first: Call) -> None:
        calls = await self._batch(first)
        began = time.monotonic()
        ready: list[tuple[Call, Any]] = []
        for call in calls:
            if not self._is_due(call):
                continue
            CURRENT.set(call)
            try:
                request = call.request()
                step = self._servable.preprocess
                ready.append((call, request if step is None else await settled(step(request, call))))
            except BaseException as error:  # noqa: BLE001 - the boundary with model code
                self._fail(call, error, began)
        if not ready:
            return
        context: Context = ready[0][0] if len(ready) == 1 else BatchContext(self._instance, [call for call, _ in ready])
        CURRENT.set(context)
        try:
            outputs = await self._run_batch([inputs for _, inputs in ready], context)
        except BaseException as error:  # noqa: BLE001 - the boundary with model code
            if len(ready) == 1:
                self._fail(ready[0][0], error, began)
                return
            outputs = [await self._rerun(call, inputs) for call, inputs in ready]
        for (call, _), output in zip(ready, outputs):
            await self._postprocess(call, output, began)

    async def _batch(self, first: Call) -> list[Call]:
        """`first`, with what is here already; if that doesn't fill a batch, what comes within max_wait_ms."""
        batch = [first]
        until = time.monotonic() + self._max_wait_s
        while True:
            while self._waiting and len(batch) < self._max_batch:
                batch.append(self._waiting.popleft())
            if len(batch) == self._max_batch or time.monotonic() >= until or self._session.state is not State.READY:
                return batch
            await asyncio.sleep(0.001)

    async def _run_batch(self, inputs: list[Any], context: Context) -> list[Any]:
        assert self._servable.run_batch is not None
        return checked_outputs(await settled(self._servable.run_batch(inputs, context)), len(inputs))

    async def _rerun(self, call: Call, inputs: Any) -> Any:
        CURRENT.set(call)
        try:
            return (await self._run_batch([inputs], call))[0]
        except BaseException as error:  # noqa: BLE001 - the boundary with model code
            return error

    async def _postprocess(self, call: Call, output: Any, began: float) -> None:
        CURRENT.set(call)
        if isinstance(output, BaseException):
            self._fail(call, output, began)
            return
        try:
            step = self._servable.postprocess
            result = output if step is None else await settled(step(output, call))
        except BaseException as error:  # noqa: BLE001 - the boundary with model code
            self._fail(call, error, began)
            return
        if is_stream(result):
            await self._pump(call, result, began)
        else:
            self._answer(call, result, began)

    # ---- answers --------------------------------------------------------------------------------------------------------------

    def _file(self, call: Call, messages: Outgoing) -> None:
        """Answers of one turn of the loop go out together."""
        self._gathered.append((call, messages))
        self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        gathered, self._gathered = self._gathered, []
        homes, self._unsent = self._unsent, []
        if gathered:
            homes += self._session.file(gathered)
        for home in homes:
            home.flush()
        if gathered:
            self._session.wake_if_ended()


@types.coroutine
def _turn() -> Iterator[None]:
    """Lets everybody else on the loop have a turn, as asyncio.sleep(0) does."""
    yield


async def _close(items: Any) -> None:
    aclose = getattr(items, "aclose", None)
    if aclose is None:
        close(items)
        return
    try:
        await aclose()
    except BaseException:  # noqa: BLE001 - the boundary with model code
        pass
