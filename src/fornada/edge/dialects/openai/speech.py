"""`POST /v1/audio/speech`: a text said aloud by a text-to-speech model.

input              text and prompt, as models of either kind call it
voice              speaker, and voice
response_format    encoding, and container where there is one
all else           as it is
"""

import base64
from typing import Any

import msgspec

from fornada.core.errors import BadRequest, FornadaError, ModelRaised
from fornada.core.keys import Role
from fornada.core.names import AccountId
from fornada.core.requests import AnswerHead
from fornada.edge.body_schemas import BodySchema
from fornada.edge.calls import JSON_TYPE, Exchange, Operation
from fornada.edge.event_stream import EVENT_STREAM_LINES, NO_BUFFERING, json_event, named_event
from fornada.edge.invoke import RUN_ERRORS, RUN_HEADERS
from fornada.edge.json_bodies import Fields
from fornada.edge.media_kinds import KINDS, kind_of, sound_in
from fornada.edge.platform_options import NO_OPTIONS, read_options
from fornada.edge.problems import event_data, is_refusal_of_model, model_refusal
from fornada.edge.v1_door import V1Door, model_of
from fornada.edge.validation import Contract

Object = dict[str, Any]
LONGEST = 4096
"""Characters, as at OpenAI."""
FORMATS = ("mp3", "opus", "aac", "flac", "wav", "pcm")
_ENCODINGS: dict[str, Object] = {
    "mp3": {"encoding": "mp3"},
    "opus": {"encoding": "opus", "container": "ogg"},
    "aac": {"encoding": "aac"},
    "flac": {"encoding": "flac"},
    "wav": {"encoding": "linear16", "container": "wav"},
    "pcm": {"encoding": "linear16", "container": "none", "sample_rate": 24000},
}
_SCHEMA: Object = {
    "type": "object",
    "properties": {
        "model": {"type": "string", "minLength": 1, "description": "Name or alias of a text-to-speech model"},
        "input": {"type": "string", "minLength": 1, "maxLength": LONGEST},
        "voice": {
            "description": "As the model calls it",
            "anyOf": [
                {"type": ["string", "null"]},
                {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]},
            ],
        },
        "instructions": {"type": ["string", "null"]},
        "response_format": {"enum": [*FORMATS, None], "description": "Unless said, what the model makes; refused where it makes another"},
        "speed": {"type": ["number", "null"], "minimum": 0.25, "maximum": 4},
        "stream_format": {"enum": ["audio", "sse", None]},
        "options": {"type": ["object", "null"], "properties": {"rejectIfBusy": {"type": ["boolean", "null"]}}},
    },
    "required": ["model", "input"],
}
BODY = BodySchema(_SCHEMA)
SPEAK = Operation(
    "createSpeech",
    "Say a text aloud",
    {"type": "string", "format": "binary"},
    parameters=RUN_HEADERS,
    takes={"application/json": _SCHEMA},
    needs=Role.USER,
    answer_type="audio/mpeg",
    errors=RUN_ERRORS,
    more_answers={
        **{KINDS[name].type: {"type": "string", "format": "binary"} for name in FORMATS[1:]},
        "text/event-stream": {"type": "string", "description": "speech.audio.delta and speech.audio.done, with stream_format: sse"},
    },
)
_OURS = ("model", "input", "voice", "response_format", "stream_format", "options")


class SpeechDoor(V1Door):
    """The hot route of speech."""

    route = "audio/speech"
    task = "text-to-speech"
    makes = "no speech"

    def ask(self, exchange: Exchange, account: AccountId) -> None:
        fields = BODY.fields(exchange.body())
        resolved, contract = self.model(exchange, model_of(fields), account)
        given = BODY.read(fields)
        busy = _busy(fields)
        body = msgspec.json.encode(inputs_of(given, contract))
        sink = SpeechSink(exchange, given.get("response_format"), events=given.get("stream_format") == "sse")
        self._invoker.run(exchange, sink, resolved, account, (body,), reject_if_busy=busy)


def inputs_of(given: Object, contract: Contract) -> Object:
    """What the model gets. Raises BadRequest."""
    asked = {name: value for name, value in given.items() if name not in _OURS}
    # A schema of the model's own says which of the words it knows; without one it gets both.
    known = [name for name in ("text", "prompt") if name in contract.properties]
    asked.update(dict.fromkeys(known or ("text",), given["input"]))
    voice = given.get("voice")
    if voice is not None:
        asked.update(dict.fromkeys(("speaker", "voice"), voice["id"] if isinstance(voice, dict) else voice))
    if given.get("response_format") is not None:
        asked.update(_ENCODINGS[given["response_format"]])
    contract.check(asked)
    return asked


def _busy(fields: Fields) -> bool:
    return (read_options(fields["options"]) if "options" in fields else NO_OPTIONS).reject_if_busy


class SpeechSink:
    """The Sink of one request for speech: bytes as they come, or as events."""

    __slots__ = ("_begun", "_events", "_exchange", "_over", "_wanted")

    def __init__(self, exchange: Exchange, wanted: str | None, *, events: bool) -> None:
        self._exchange = exchange
        self._wanted = wanted
        self._events = events
        self._begun = False
        self._over = False

    def answer(self, head: AnswerHead, body: bytes | memoryview) -> None:
        exchange = self._exchange
        if is_refusal_of_model(head.http_status):
            exchange.reply(head.http_status, JSON_TYPE, (model_refusal(head.http_status, head.message),), head.run_s)
            return
        try:
            sound = sound_in(head, body)
            type = self._type_of(sound)
        except FornadaError as error:
            exchange.fail(error, from_model=True)
            return
        if self._events:
            exchange.begin(EVENT_STREAM_LINES)
            exchange.write(_delta(sound) + _done(head), 0)
            exchange.end(head.run_s)
        else:
            exchange.reply(200, _lines(type), (sound,), head.run_s)

    def refuse(self, error: FornadaError) -> None:
        self._exchange.fail(error, from_model=True)

    def stream_begins(self, head: AnswerHead) -> None:
        if not head.type.startswith("audio/"):
            self._give_up(ModelRaised(f"the model streams {head.type[:100]}, which is no sound"))

    def item(self, data: bytes) -> None:
        if self._over:
            return
        if not self._begun:
            try:
                type = self._type_of(data)
            except FornadaError as error:
                self._give_up(error)
                return
            self._begun = True
            self._exchange.begin(EVENT_STREAM_LINES if self._events else _lines(type) + NO_BUFFERING)
        self._exchange.write(_delta(data) if self._events else bytes(data), len(data))

    def stream_ends(self, error: FornadaError | None, head: AnswerHead | None = None) -> None:
        exchange = self._exchange
        if self._over:
            return
        if not self._begun:
            exchange.fail(error or ModelRaised("the model's stream ended before any sound"), from_model=True)
        elif error is not None:
            exchange.break_off(named_event(b"error", event_data(error, exchange.trace_id)) if self._events else b"", error)
        else:
            if self._events:
                exchange.write(_done(head or AnswerHead()), 0)
            exchange.end(head.run_s if head is not None else 0.0)

    def _give_up(self, error: FornadaError) -> None:
        self._over = True
        self._exchange.give_up(error)

    def _type_of(self, sound: bytes) -> str:
        """Raises BadRequest where the sound is of another kind than was asked for."""
        found, wanted = kind_of(sound), self._wanted
        if wanted is None:
            return found.type if found.name else "audio/mpeg"
        if found.name != ("" if wanted == "pcm" else wanted):
            raise BadRequest(f"'response_format': this model answered with {found.name or 'sound of an unknown kind'}, not with {wanted}")
        return KINDS[wanted].type


def _lines(type: str) -> bytes:
    return b"content-type: %b\r\nx-content-type-options: nosniff\r\n" % type.encode()


def _delta(sound: bytes) -> bytes:
    return json_event({"type": "speech.audio.delta", "audio": base64.b64encode(sound).decode()})


def _done(head: AnswerHead) -> bytes:
    told, made = head.usage.get("input_tokens") or 0, head.usage.get("output_tokens") or 0
    return json_event({"type": "speech.audio.done", "usage": {"input_tokens": told, "output_tokens": made, "total_tokens": told + made}})
