"""Streams of generated text whose events have names and say themselves that they end: OpenAI's responses, Anthropic's messages."""

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from fornada.core.errors import FornadaError
from fornada.core.requests import AnswerHead, Sink
from fornada.edge.calls import Exchange
from fornada.edge.problems import Style, error_object
from fornada.edge.text_generation import Identity
from fornada.edge.text_sink import JSON, TextSink


class NamedEvents(Protocol):
    """text_sink.Events whose events are whole: with their names, as they are on the wire."""

    def item(self, data: bytes | memoryview) -> list[bytes]: ...

    def end(self, usage: Mapping[str, Any] | None = None) -> list[bytes]: ...

    def failed(self, error: dict[str, Any]) -> bytes:
        """The events that tell of a failure. `error`: the superset body of its refusal."""


class NamedForm(Protocol):
    """text_sink.Form for them."""

    identity: Identity

    def whole(self, body: bytes | memoryview, head: AnswerHead) -> tuple[bytes, ...]: ...

    def events(self) -> NamedEvents: ...

    def lines(self, head: AnswerHead) -> bytes: ...

    def other(self, exchange: Exchange) -> Sink: ...


class NamedSink(TextSink):
    """The Sink of one request of such an API. No `data: [DONE]`: these have none."""

    __slots__ = ()

    def __init__(self, exchange: Exchange, form: NamedForm, *, stream: bool) -> None:
        super().__init__(exchange, form, stream=stream)

    def answer(self, head: AnswerHead, body: bytes | memoryview) -> None:
        if self._stream and head.http_status == 200 and head.type.startswith("text/"):
            # A model that answers in plain text: whoever follows events reads nothing else.
            body = msgspec.json.encode(bytes(body).decode(errors="replace"))
            head = msgspec.structs.replace(head, type=JSON)
        super().answer(head, body)

    def _framed(self, events: list[bytes]) -> bytes:
        return b"".join(events)

    def _last(self, events: list[bytes]) -> bytes:
        return b"".join(events)

    def _told(self, error: FornadaError) -> bytes:
        events: Any = self._events
        return bytes(events.failed(error_object(error, Style.SUPERSET, self._exchange.trace_id, from_model=True)))


def named(name: str, value: object) -> bytes:
    """An event whose data is a value as JSON: one line, whatever is in it."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(value))
