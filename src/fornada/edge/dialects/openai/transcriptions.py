"""`POST /v1/audio/transcriptions`: a recording as a form's file, and what is said in it; `translations`: in English."""

from typing import Any, ClassVar, NamedTuple

import msgspec

from fornada.core.errors import BadRequest, FornadaError, ModelRaised
from fornada.core.names import AccountId
from fornada.core.requests import AnswerHead
from fornada.edge.calls import JSON_TYPE, Exchange
from fornada.edge.dialects.openai.transcripts import FORMATS, PLAIN, Transcript, read_transcript, shown
from fornada.edge.event_stream import EVENT_STREAM_LINES, json_event
from fornada.edge.multipart import Field, read_multipart
from fornada.edge.problems import is_refusal_of_model, model_refusal
from fornada.edge.v1_door import V1Door
from fornada.edge.validation import Contract

MOST = 25 * 1024 * 1024
"""Bytes of a recording, as at OpenAI; a model's own `max_body` may be less."""
REST_OF_FORM = 64 * 1024
"""Bytes that a form may have beside its file."""
GRANULARITIES = "timestamp_granularities[]"
_TEXT_LINES = b"content-type: text/plain; charset=utf-8\r\nx-content-type-options: nosniff\r\n"
_HOTTEST = 1.0


class Asked(NamedTuple):
    """The form, read."""

    model: str
    file: bytes
    format: str
    language: str
    prompt: str
    temperature: float | None
    granularities: frozenset[str]
    stream: bool
    translate: bool = False


class TranscriptionsDoor(V1Door):
    """The hot route of transcriptions."""

    route = "audio/transcriptions"
    task = "automatic-speech-recognition"
    makes = "no transcripts"
    most = MOST + REST_OF_FORM
    translates: ClassVar[bool] = False

    def ask(self, exchange: Exchange, account: AccountId) -> None:
        facts = exchange.facts
        if facts.media_type != "multipart/form-data":
            raise BadRequest("the body must be a form (multipart/form-data) with the fields 'file' and 'model'")
        asked = read_form(read_multipart(exchange.body(), facts.content_type, lists=(GRANULARITIES,)))
        if self.translates:
            asked = asked._replace(language="", translate=True)
        resolved, contract = self.model(exchange, asked.model, account, size=len(asked.file))
        given = inputs_of(asked, contract)
        parts = (("", len(given)), ("audio", len(asked.file)))
        self._invoker.run(exchange, TranscriptSink(exchange, asked), resolved, account, (given, asked.file), parts=parts)


class TranslationsDoor(TranscriptionsDoor):
    """The hot route of translations. A model that can't translate refuses it."""

    route = "audio/translations"
    translates = True


def read_form(fields: dict[str, Field]) -> Asked:
    """Raises BadRequest with the field's name. Unknown fields are let through, as everywhere."""
    file = fields.get("file")
    if file is None or not file.is_file:
        raise BadRequest("missing the field 'file': the recording, with a file name")
    if not file.data:
        raise BadRequest("'file' is empty")
    model = _text(fields, "model")
    if not model:
        raise BadRequest("missing the field 'model'")
    format = _text(fields, "response_format") or "json"
    if format not in FORMATS:
        raise BadRequest(f"'response_format' must be one of {', '.join(FORMATS)}")
    granularities = frozenset(word.strip() for word in (_text(fields, GRANULARITIES) or "segment").split(","))
    if not granularities <= {"word", "segment"}:
        raise BadRequest("'timestamp_granularities' may hold word and segment")
    return Asked(
        model,
        file.data,
        format,
        _text(fields, "language"),
        _text(fields, "prompt"),
        _temperature(_text(fields, "temperature")),
        granularities,
        _text(fields, "stream").lower() == "true",
    )


def inputs_of(asked: Asked, contract: Contract) -> bytes:
    """The JSON beside the recording, in the words of the task. Raises BadRequest."""
    given: dict[str, Any] = {}
    if asked.language:
        given["language"] = asked.language
    if asked.translate:
        given["task"] = "translate"
    if asked.prompt:
        given["initial_prompt"] = asked.prompt
    if asked.temperature is not None:
        given["temperature"] = asked.temperature
    contract.check({**given, "audio": ""})
    return msgspec.json.encode(given)


class TranscriptSink:
    """The Sink of one transcription."""

    __slots__ = ("_asked", "_exchange")

    def __init__(self, exchange: Exchange, asked: Asked) -> None:
        self._exchange = exchange
        self._asked = asked

    def answer(self, head: AnswerHead, body: bytes | memoryview) -> None:
        exchange, asked = self._exchange, self._asked
        if is_refusal_of_model(head.http_status):
            exchange.reply(head.http_status, JSON_TYPE, (model_refusal(head.http_status, head.message),), head.run_s)
            return
        try:
            transcript = read_transcript(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            exchange.fail(
                ModelRaised("the model's answer is no transcript: it needs 'text', and times in seconds where it has any"), from_model=True
            )
            return
        seconds = _seconds(transcript, head)
        if asked.stream:
            # The model made it at once: one piece of text, and the end that says all of it.
            exchange.begin(EVENT_STREAM_LINES)
            delta = json_event({"type": "transcript.text.delta", "delta": transcript.text})
            exchange.write(delta + json_event({"type": "transcript.text.done", "text": transcript.text}), 0)
            exchange.end(head.run_s)
            return
        said = shown(
            transcript,
            asked.format,
            language=asked.language,
            task="translate" if asked.translate else "transcribe",
            words="word" in asked.granularities,
            segments="segment" in asked.granularities,
            seconds=seconds,
        )
        exchange.reply(200, _TEXT_LINES if asked.format in PLAIN else JSON_TYPE, (said,), head.run_s)

    def refuse(self, error: FornadaError) -> None:
        self._exchange.fail(error, from_model=True)

    def stream_begins(self, head: AnswerHead) -> None:
        self._exchange.give_up(ModelRaised("the model streams: that is no answer to a request for a transcript"))

    def item(self, data: bytes) -> None:
        pass  # it was refused when it began

    def stream_ends(self, error: FornadaError | None, head: AnswerHead | None = None) -> None:
        pass


def _seconds(transcript: Transcript, head: AnswerHead) -> float | None:
    """Length of the recording, as the model told it or counted it."""
    if transcript.transcription_info.duration is not None:
        return transcript.transcription_info.duration
    counted = head.usage.get("audio_seconds")
    return float(counted) if isinstance(counted, int | float) and not isinstance(counted, bool) else None


def _text(fields: dict[str, Field], name: str) -> str:
    field = fields.get(name)
    if field is None:
        return ""
    text = field.text()
    if text is None:
        raise BadRequest(f"'{name}' is no UTF-8")
    return text.strip()


def _temperature(text: str) -> float | None:
    if not text:
        return None
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found <= _HOTTEST:
        raise BadRequest("'temperature' must be a number from 0 to 1")
    return found
