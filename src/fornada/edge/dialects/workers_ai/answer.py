"""What becomes of an `ai/run`: the envelope, an event stream, or the model's own media type.

    answer                       {"result": …, "success": true, …}; raw where the model chose a type of its own
    items, "stream": true        one event an item, sent when it comes; then data: [DONE]
    items, no stream asked       {"items": […]} in the envelope
    items of another type        the pieces of that body as they come

Nothing of a stream is sent before its first item, so that a failure until then has a real status.
"""

import re

import msgspec

from fornada.core.errors import FornadaError, ModelRaised
from fornada.core.requests import AnswerHead
from fornada.core.resources import format_size
from fornada.edge.calls import JSON_TYPE, Exchange
from fornada.edge.event_stream import DONE, EVENT_STREAM_LINES, NO_BUFFERING, event, named_event
from fornada.edge.json_bodies import is_json
from fornada.edge.problems import MODEL_REFUSAL_CODE, event_data, is_refusal_of_model, is_success

OPEN = b'{"result":'
CLOSE = b',"success":true,"errors":[],"messages":[]}'
CLOSE_NONFINITE = b',"success":true,"errors":[],"messages":[],"nonfinite":true}'
REFUSED = b',"success":false,"errors":'
CLOSE_REFUSED = b',"messages":[]}'
JSON = "application/json"
NO_JSON = "what the model's runner sent is no JSON"
"""The SDK writes JSON alone; model code that gets hold of the wire can write anything."""
MOST_COLLECTED = 64 * 1024 * 1024
"""Bytes of items that are put together for a caller that asked for no stream."""
_SENT_AS_IT_IS = b"x-content-type-options: nosniff\r\ncontent-security-policy: sandbox\r\n"
"""A model's own page must not run in the node's origin: its scripts could drive the API as the visitor."""
_NAME = re.compile(r"(?:content|x)-[a-z0-9-]{1,60}\Z")
_VALUE = re.compile(r"[\x20-\x7e\x80-\xff]{0,1024}\Z")
_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,80}/[A-Za-z0-9!#$&^_.+-]{1,80}(?: *; *[\x20-\x3a\x3c-\x7e]{1,100})*\Z")
LONGEST_TYPE = 200
_NOT_THE_MODELS = frozenset(
    (
        "content-length",
        "content-type",
        "content-encoding",
        "content-security-policy",
        "x-request-id",
        "x-should-retry",
        "x-content-type-options",
        "x-accel-buffering",
        "x-frame-options",
    )
)


class RunSink:
    """The Sink of one `ai/run`."""

    __slots__ = ("_broken", "_collected", "_events", "_exchange", "_head", "_size", "_stream")

    def __init__(self, exchange: Exchange, stream: bool) -> None:
        self._exchange = exchange
        self._stream = stream
        self._head: AnswerHead | None = None
        self._collected: list[bytes] | None = None
        """Items, where the caller asked for no stream."""
        self._size = 0
        self._events = False
        """Each item is an event: the usual stream."""
        self._broken = False

    def answer(self, head: AnswerHead, body: bytes | memoryview) -> None:
        if head.type == JSON and (body or head.http_status == 200) and not is_json(body):
            self._exchange.fail(ModelRaised(NO_JSON), from_model=True)
        elif head.type == JSON and head.http_status == 200 and not head.headers:
            parts = (OPEN, body, CLOSE_NONFINITE if head.nonfinite else CLOSE)
            self._exchange.reply(200, JSON_TYPE, parts, head.run_s)
        else:
            self._special(head, body)

    def refuse(self, error: FornadaError) -> None:
        self._exchange.fail(error, from_model=True)

    def stream_begins(self, head: AnswerHead) -> None:
        self._head = head
        if head.type != JSON:
            self._exchange.begin(_own_lines(head) + NO_BUFFERING)
        elif self._stream:
            self._events = True
            self._exchange.begin(EVENT_STREAM_LINES + header_lines(head))
        else:
            self._collected = []

    def item(self, data: bytes) -> None:
        if self._events and is_json(data):
            self._exchange.write(b"data: %b\n\n" % data if b"\n" not in data and b"\r" not in data else event(data), len(data))
            return
        collected = self._collected
        if self._broken:
            return
        if self._head is not None and self._head.type == JSON and not is_json(data):
            self._break(ModelRaised(NO_JSON))
        elif collected is not None:
            self._collect(collected, data)
        else:
            self._exchange.write(bytes(data), len(data))

    def stream_ends(self, error: FornadaError | None, head: AnswerHead | None = None) -> None:
        if self._broken:
            return
        begun = self._head
        exchange = self._exchange
        collected = self._collected
        run_s = head.run_s if head is not None else 0.0
        if collected is not None:
            if error is not None:
                exchange.fail(error, from_model=True)
            else:
                nonfinite = any(each is not None and each.nonfinite for each in (begun, head))
                close = CLOSE_NONFINITE if nonfinite else CLOSE
                exchange.reply(200, JSON_TYPE, (OPEN, b'{"items":[', b",".join(collected), b"]}", close), run_s)
        elif begun is None or begun.type != JSON:
            if error is None:
                exchange.end(run_s)
            else:
                exchange.break_off(b"", error)
        elif error is None:
            exchange.write(DONE, 0)
            exchange.end(run_s)
        else:
            exchange.break_off(named_event(b"error", event_data(error, exchange.trace_id)), error)

    def _break(self, error: FornadaError) -> None:
        """The model's stream can't go on: the caller is told, and the work ends."""
        self._broken = True
        self._events = False
        if self._collected is None:
            self._exchange.break_off(named_event(b"error", event_data(error, self._exchange.trace_id)), error)
        else:
            self._exchange.give_up(error)

    def _collect(self, collected: list[bytes], data: bytes) -> None:
        self._size += len(data)
        if self._size > MOST_COLLECTED:
            collected.clear()
            self._exchange.give_up(ModelRaised(f"the items take more than {format_size(MOST_COLLECTED)}; ask for a stream"))
            return
        collected.append(bytes(data))
        self._exchange.took(len(data))

    def _special(self, head: AnswerHead, body: bytes | memoryview) -> None:
        status = head.http_status if is_success(head.http_status) or is_refusal_of_model(head.http_status) else 200
        lines = header_lines(head)
        if head.type != JSON:
            self._exchange.reply(status, _own_lines(head), (body,), head.run_s)
        elif is_success(status):
            parts = (OPEN, body, CLOSE_NONFINITE if head.nonfinite else CLOSE)
            self._exchange.reply(status, JSON_TYPE + lines, parts, head.run_s)
        else:
            errors = [{"code": MODEL_REFUSAL_CODE, "message": f"AiError: AiError: {head.message or 'the model refused the request'}"}]
            self._exchange.reply(
                status, JSON_TYPE + lines, (OPEN, body or b"{}", REFUSED, msgspec.json.encode(errors), CLOSE_REFUSED), head.run_s
            )


def _own_lines(head: AnswerHead) -> bytes:
    """Header lines of a body in the model's own type."""
    kind = head.type if len(head.type) <= LONGEST_TYPE and _TYPE.match(head.type) else "application/octet-stream"
    return b"content-type: %b\r\n%b%b" % (kind.encode(), _SENT_AS_IT_IS, header_lines(head))


def header_lines(head: AnswerHead) -> bytes:
    """The headers that model code asked for, as far as they are its to choose. A line break in one is an attack: it is left out."""
    if not head.headers:
        return b""
    lines = []
    for name, value in head.headers.items():
        low = name.lower()
        if _NAME.match(low) and low not in _NOT_THE_MODELS and isinstance(value, str) and _VALUE.match(value):
            lines.append(f"{low}: {value}\r\n".encode("latin-1"))
    return b"".join(lines[:50])
