"""Server-sent events, as bytes."""

import msgspec

EVENT_STREAM = "text/event-stream"
NO_BUFFERING = b"cache-control: no-cache\r\nx-accel-buffering: no\r\n"
"""Proxies such as nginx would collect the pieces of a stream without the last line."""
EVENT_STREAM_LINES = b"content-type: text/event-stream\r\n" + NO_BUFFERING
DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": \n\n"
"""A comment: keeps proxies from ending a quiet stream."""


def event(data: bytes | memoryview) -> bytes:
    """One event with the data of one item."""
    text = bytes(data)
    if b"\n" in text or b"\r" in text:
        # A line break ends a field: each line is a field of its own, and readers put them together again.
        text = b"\ndata: ".join(text.splitlines())
    return b"data: %b\n\n" % text


def named_event(name: bytes, data: bytes) -> bytes:
    return b"event: %b\n%b" % (name, event(data))


def json_event(value: object) -> bytes:
    """One event with a value as JSON."""
    return event(msgspec.json.encode(value))
