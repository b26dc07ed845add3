"""Who is told of a generated text, and answers in the form of the door that was asked.

    asked   the model answers   what leaves
    whole   a whole             the form's object
    whole   items               gathered, then the form's object
    stream  items               the form's events as the items come, then data: [DONE]
    stream  a whole             the form's events of it, then data: [DONE]
    either  another media type  the form's `other` sink decides

A failure before the first event has a real status; a later one is one `error` event, without [DONE]. APIs whose events have names, and
whose streams end with one of them, have a sink of their own (text_named.NamedSink).
"""

from collections.abc import Mapping
from typing import Any, Protocol

from fornada.core.errors import FornadaError, ModelRaised
from fornada.core.requests import AnswerHead, Sink
from fornada.core.resources import format_size
from fornada.edge.calls import JSON_TYPE, Exchange
from fornada.edge.event_stream import DONE, EVENT_STREAM_LINES, event, named_event
from fornada.edge.problems import event_data
from fornada.edge.text_gathered import Gathered
from fornada.edge.text_generation import Identity

MOST_GATHERED = 64 * 1024 * 1024
"""Bytes of items that are put together for a caller that asked for no stream."""
JSON = "application/json"
FAULTS = (FornadaError, AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError)
"""What reading a model's answer may raise: it says that it is OpenAI's object, and may hold anything where that has texts and lists."""


class Events(Protocol):
    """A stream's items as the data of events (text_generation)."""

    def item(self, data: bytes | memoryview) -> list[bytes]:
        """Raises ModelRaised for an item that can't be read."""

    def end(self, usage: Mapping[str, Any] | None = None) -> list[bytes]:
        """The events after the last item."""


class Form(Protocol):
    """A door's way to show generated text."""

    identity: Identity

    def whole(self, body: bytes | memoryview, head: AnswerHead) -> tuple[bytes, ...]:
        """The answer's body in pieces. Raises ModelRaised, JsonModeUnmet."""

    def events(self) -> Events: ...

    def lines(self, head: AnswerHead) -> bytes:
        """Header lines that model code may add."""

    def other(self, exchange: Exchange) -> Sink:
        """Who answers where the model chose a media type or a status of its own."""


class TextSink:
    """The Sink of one request for text."""

    __slots__ = ("_events", "_exchange", "_form", "_gathered", "_head", "_other", "_over", "_size", "_stream")

    def __init__(self, exchange: Exchange, form: Form, *, stream: bool) -> None:
        self._exchange = exchange
        self._form = form
        self._stream = stream
        self._head: AnswerHead | None = None
        self._events: Events | None = None
        self._gathered: Gathered | None = None
        self._other: Sink | None = None
        self._size = 0
        self._over = False
        """It failed on our side of the wire: what still comes is dropped."""

    def answer(self, head: AnswerHead, body: bytes | memoryview) -> None:
        if head.type != JSON or head.http_status != 200:
            self._form.other(self._exchange).answer(head, body)
            return
        try:
            if self._stream:
                events = self._form.events()
                made = events.item(body) + events.end(head.usage)
            else:
                parts = self._form.whole(body, head)
        except FAULTS as error:
            self._exchange.fail(refusal_of(error), from_model=True)
            return
        if self._stream:
            self._exchange.begin(EVENT_STREAM_LINES + self._form.lines(head))
            self._exchange.write(self._last(made), 0)
            self._exchange.end(head.run_s)
        else:
            self._reply(head, parts)

    def refuse(self, error: FornadaError) -> None:
        self._exchange.fail(error, from_model=True)

    def stream_begins(self, head: AnswerHead) -> None:
        self._head = head
        if head.type != JSON:
            self._other = self._form.other(self._exchange)
            self._other.stream_begins(head)
        elif self._stream:
            self._events = self._form.events()
            self._exchange.begin(EVENT_STREAM_LINES + self._form.lines(head))
        else:
            self._gathered = Gathered(self._form.identity)

    def item(self, data: bytes) -> None:
        if self._over:
            return
        events = self._events
        try:
            if events is not None:
                made = events.item(data)
                if made:
                    self._exchange.write(self._framed(made), len(data))
                else:
                    self._exchange.took(len(data))
            elif self._gathered is not None:
                self._gather(self._gathered, data)
            elif self._other is not None:
                self._other.item(data)
        except FAULTS as error:
            self._break(refusal_of(error))

    def stream_ends(self, error: FornadaError | None, head: AnswerHead | None = None) -> None:
        if self._over:
            return
        if self._other is not None:
            self._other.stream_ends(error, head)
            return
        exchange = self._exchange
        head = head or self._head or AnswerHead()
        gathered = self._gathered
        if gathered is not None:
            if error is not None:
                exchange.fail(error, from_model=True)
                return
            try:
                parts = self._form.whole(gathered.body(), head)
            except FAULTS as failure:
                exchange.fail(refusal_of(failure), from_model=True)
                return
            self._reply(head, parts)
        elif error is not None:
            exchange.break_off(self._told(error), error)
        else:
            try:
                made = self._events.end(head.usage) if self._events is not None else []
            except FAULTS as failure:
                self._break(refusal_of(failure))
                return
            exchange.write(self._last(made), 0)
            exchange.end(head.run_s)

    def _reply(self, head: AnswerHead, parts: tuple[bytes, ...]) -> None:
        lines = self._form.lines(head)
        self._exchange.reply(200, JSON_TYPE + lines if lines else JSON_TYPE, parts, head.run_s)

    def _gather(self, gathered: Gathered, data: bytes) -> None:
        self._size += len(data)
        if self._size > MOST_GATHERED:
            raise ModelRaised(f"the items take more than {format_size(MOST_GATHERED)}; ask for a stream")
        gathered.item(data)
        self._exchange.took(len(data))

    def _break(self, error: FornadaError) -> None:
        """Refuses a model's work that goes on: it is cancelled."""
        self._over = True
        self._exchange.give_up(error)
        if self._events is not None:
            self._exchange.break_off(self._told(error), error)

    def _framed(self, events: list[bytes]) -> bytes:
        """What `events` of the form are on the wire."""
        return b"".join([event(data) for data in events])

    def _last(self, events: list[bytes]) -> bytes:
        """The same, and what ends the stream."""
        return self._framed(events) + DONE

    def _told(self, error: FornadaError) -> bytes:
        return named_event(b"error", event_data(error, self._exchange.trace_id))


def refusal_of(error: Exception) -> FornadaError:
    """One of FAULTS as what the caller is told."""
    return error if isinstance(error, FornadaError) else ModelRaised("the model's answer names OpenAI's object and has not its shape")
