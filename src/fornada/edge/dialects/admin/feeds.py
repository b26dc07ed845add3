"""What goes on without an end: logs and events, as lines or as an event stream."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator

import msgspec

from fornada.edge.calls import Reply
from fornada.edge.event_stream import EVENT_STREAM, KEEP_ALIVE, json_event

QUIET_S = 15.0
"""Silence after which a comment is sent."""
LINES = "application/x-ndjson"
_UNBUFFERED = ((b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no"))


def lines_of(values: AsyncIterator[object]) -> Reply:
    """One JSON object a line."""
    return Reply(type=LINES, stream=_lines(values))


def events_of(values: AsyncIterator[object]) -> Reply:
    """One event a value, for as long as the caller stays."""
    return Reply(type=EVENT_STREAM, headers=_UNBUFFERED, stream=_events(values))


async def _lines(values: AsyncIterator[object]) -> AsyncGenerator[bytes, None]:
    async for value in values:
        yield msgspec.json.encode(value) + b"\n"


async def _events(values: AsyncIterator[object]) -> AsyncGenerator[bytes, None]:
    yield KEEP_ALIVE  # the head goes out at once: who listens knows that it does
    following = asyncio.ensure_future(_next(values))
    try:
        while True:
            done, _ = await asyncio.wait({following}, timeout=QUIET_S)
            if not done:
                yield KEEP_ALIVE
                continue
            value = following.result()
            if value is _END:
                return
            following = asyncio.ensure_future(_next(values))
            yield json_event(value)
    finally:
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following
        if isinstance(values, AsyncGenerator):
            await values.aclose()


_END = object()


async def _next(values: AsyncIterator[object]) -> object:
    return await anext(values, _END)
