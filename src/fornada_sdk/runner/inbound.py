"""Messages of a conversation, off the wire: INPUT in, TAKEN out.

Model code listens from the moment at which it first asks for them (`request.messages`); TAKEN says so, and nothing is sent before.
Sync code waits as for a stream's reader; async code on its loop. CANCEL, a control plane that dies and the deadline end them.
"""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Callable

from fornada_sdk.api_messages import Message, Messages
from fornada_sdk.wire.framing import ProtocolError, frame
from fornada_sdk.wire.messages import BYTES, INPUT_COST, INPUT_WINDOW, TAKEN_BODY, TEXT, Kind

if TYPE_CHECKING:
    from fornada_sdk.runner.call import Call

TAKEN_STEP = INPUT_WINDOW // 4
"""Bytes that model code takes before the control plane is told."""
LOOK_S = 1.0
"""How often async code that waits looks at the clock as well."""


class Inbound(Messages):
    """One call's. Changed by two threads: the one that reads the wire appends, the one that runs the model takes."""

    def __init__(self, call: Call) -> None:
        super().__init__()
        self._call = call
        self._owed = 0
        self._heard: Callable[[], object] | None = None
        """Wakes async code that waits."""

    def arrived(self, payload: bytes | memoryview) -> None:
        """An INPUT. Raises ProtocolError."""
        kind, data = payload[:1], bytes(payload[1:])
        if kind == bytes((TEXT,)):
            self._arrived.append(data.decode())
        elif kind == bytes((BYTES,)):
            self._arrived.append(data)
        else:
            raise ProtocolError(f"request {self._call.id}: a message that is neither text nor bytes")
        for wake in (self._heard, self._call.notify):
            if wake is not None:
                wake()

    def __next__(self) -> Message:
        if not self._ready():
            wait = self._call.waiting
            if wait is None:
                raise RuntimeError("in async code: async for message in request.messages")
            wait(self._call, self._ready)
        if self._ended or not self._arrived:
            raise StopIteration
        return self._take()

    async def __anext__(self) -> Message:
        import asyncio

        loop = asyncio.get_running_loop()
        while not self._ready():
            arrived = asyncio.Event()
            self._heard = functools.partial(loop.call_soon_threadsafe, arrived.set)
            if self._ready():
                break  # between the look and the hook
            try:
                await asyncio.wait_for(arrived.wait(), LOOK_S)
            except asyncio.TimeoutError:
                pass
        self._heard = None
        if self._ended or not self._arrived:
            raise StopAsyncIteration
        return self._take()

    @property
    def _ended(self) -> bool:
        call = self._call
        return call.cancelled or not call.home.open or bool(call.deadline and time.monotonic() > call.deadline)

    def _ready(self) -> bool:
        return bool(self._arrived) or self._ended

    def _take(self) -> Message:
        message = self._arrived.popleft()
        self._owed += INPUT_COST + (len(message.encode()) if isinstance(message, str) else len(message))
        if self._owed >= TAKEN_STEP:
            self.tell(self._owed)
            self._owed = 0
        return message

    def tell(self, taken: int) -> None:
        """TAKEN."""
        home = self._call.home
        home.queue_frame(frame(Kind.TAKEN, self._call.id, TAKEN_BODY.pack(taken)))
        home.flush()
