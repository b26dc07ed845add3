"""Streams: each thing that model code yields becomes an ITEM at once, as fast as the reader takes them and no faster.

A stream begins with its first item, so that what fails before it is an ordinary error answer. CREDIT bounds what is under
way (Call.may_send). A caller that leaves, or a control plane that dies, closes the generator at its next step.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from types import GeneratorType
from typing import Any, Callable, cast

from fornada_sdk.api import Response
from fornada_sdk.api_request import JSON_TYPE
from fornada_sdk.runner.answers import (
    OCTETS,
    cancelled_frames,
    checked,
    encoded,
    end_frames,
    error_frames,
    error_head,
    noted,
    print_traceback,
    response_head,
    stream_frames,
)
from fornada_sdk.runner.attachment import Attachment
from fornada_sdk.runner.call import Call
from fornada_sdk.runner.encoding import to_json
from fornada_sdk.runner.received import TENSORS, TENSORS_TYPE
from fornada_sdk.runner.session import Session
from fornada_sdk.wire.framing import HEADER, MAX_PAYLOAD, frames
from fornada_sdk.wire.messages import Kind, decode

CREDIT_WAIT_S = 1.0
"""How often whoever waits for credit looks at the clock as well."""

_ITEM = int(Kind.ITEM)

Wait = Callable[[Call, Callable[[], bool]], None]
"""Waits until the condition holds; only the call's credit, its cancellation or the clock can change it."""


def is_stream(result: Any) -> bool:
    """A generator, an async generator, or a Response around an iterator."""
    if type(result) is GeneratorType:
        return True
    if isinstance(result, Response):
        return hasattr(result.body, "__next__") or hasattr(result.body, "__anext__")
    return hasattr(result, "__anext__") or hasattr(result, "__next__")


class Stream:
    """One call's stream on the wire."""

    def __init__(self, session: Session, call: Call, result: Any) -> None:
        """`result` is what model code returned; `items` is what to iterate."""
        self._session = session
        self._call = call
        self._head: dict[str, Any] = {}
        self._number = 0
        self._began = time.monotonic()
        self._nonfinite = False
        self._held = b""
        self._tensors = decode(call.head) if TENSORS in call.head else None
        """The request's head, where it is one of tensors: each item is then tensors with a head of their own."""
        self.items: Iterator[Any] | AsyncIterator[Any] = result
        if isinstance(result, Response):
            self.items = result.body
            self._head = response_head(result)
        if self._tensors is not None:
            self._head = {"type": TENSORS_TYPE}

    @property
    def cancelled(self) -> bool:
        """The caller has gone, or the deadline has passed."""
        call = self._call
        return call.cancelled or not call.home.open or bool(call.deadline and time.monotonic() > call.deadline)

    def put(self, item: Any) -> Attachment | None:
        """Queues an item, after STREAM if it is the first; whoever is returned is to be flushed.

        None where the reader has no room for it: `put_held` once it `fits`. Raises TypeError or ValueError for what can't be sent.
        """
        if self._tensors is not None:
            from fornada_sdk.runner.tensor_answers import as_item

            data = checked(as_item(item, self._call.outputs, self._tensors))
        elif type(item) is dict:  # the usual one, by the shortest way
            data, nonfinite = to_json(item)
            if nonfinite:
                self._nonfinite = True
            checked(data)
        else:
            data = self._encoded(item)
        if self._call.may_send(len(data)):
            return self._queue(data)
        self._held = data
        return None

    @property
    def fits(self) -> bool:
        """The reader has room for the item that is held."""
        return self._call.may_send(len(self._held))

    def put_held(self) -> Attachment:
        """As `put`, for the item that didn't fit then."""
        data, self._held = self._held, b""
        return self._queue(data)

    def _encoded(self, item: Any) -> bytes:
        type = self._head.get("type", "")
        if isinstance(item, str) and type and type != JSON_TYPE:
            return item.encode()
        piece = encoded(item)
        if self._number == 0 and not type and piece.head.get("type") == OCTETS:
            self._head["type"] = OCTETS
        self._nonfinite = self._nonfinite or bool(piece.head.get("nonfinite"))
        return piece.data

    def _queue(self, data: bytes) -> Attachment:
        call = self._call
        home = call.home
        size = len(data)
        number = self._number
        self._number = number + 1
        call.sent += size
        if call.streamed and size <= MAX_PAYLOAD:
            home.queue_frame(HEADER.pack(size, _ITEM, 0, number, call.id) + data)
            return home
        messages = [*self._opening(), *frames(Kind.ITEM, Kind.PART, call.id, b"", [data], part=number)]
        home.queue(messages, sum(map(len, messages)))
        return home

    def _opening(self) -> list[bytes]:
        call = self._call
        if call.streamed:
            return []
        call.streamed = True
        return stream_frames(call, self._head)

    def end(self) -> None:
        """The model has yielded all it had."""
        head: dict[str, Any] = {"status": "ok", **noted(self._call, time.monotonic() - self._began)}
        if self._nonfinite:
            head["nonfinite"] = True
        self._session.finish(self._call, self._opening() + end_frames(self._call, head))

    def stop(self) -> None:
        """Nobody wants it any more."""
        self._session.finish(self._call, cancelled_frames(self._call, ""))

    def fail(self, error: BaseException) -> None:
        """Model code raised, or yielded what can't be sent."""
        run_s = time.monotonic() - self._began
        if self._call.streamed:
            self._session.finish(self._call, end_frames(self._call, {**error_head(error), **noted(self._call, run_s)}))
        else:
            self._session.finish(self._call, error_frames(self._call, error, run_s))


def pump(stream: Stream, call: Call, wait: Wait) -> None:
    """Sends what a generator yields until it ends, fails or nobody wants it."""
    items = cast("Iterator[Any]", stream.items)
    try:
        while not stream.cancelled:
            try:
                item = next(items)
            except StopIteration:
                stream.end()
                return
            if stream.cancelled:
                break
            home = stream.put(item)
            if home is None:
                wait(call, lambda: stream.fits or stream.cancelled)
                if stream.cancelled:
                    break
                home = stream.put_held()
            home.flush()
        close(items)
        stream.stop()
    except BaseException as error:  # noqa: BLE001 - the boundary with model code
        close(items)
        stream.fail(error)


def close(items: Any) -> None:
    """GeneratorExit at the generator's yield; what it does about that is its own business."""
    try:
        items.close()
    except AttributeError:
        pass  # an iterator of another kind
    except BaseException as error:  # noqa: BLE001 - the boundary with model code
        print_traceback(error)
