"""The routes that generate, in words and schemas, for /openapi.json."""

from dataclasses import replace
from typing import Any

from fornada.core.keys import Role
from fornada.edge.calls import Operation
from fornada.edge.dialects.openai.text_request import MOST_PROMPTS
from fornada.edge.dialects.openai.transcripts import FORMATS
from fornada.edge.invoke import RUN_ERRORS, RUN_HEADERS, TEXT_ERRORS
from fornada.edge.text_schemas import CHAT_IN, COMPLETION_IN, USAGE, body

Object = dict[str, Any]


def _object(properties: Object, *required: str) -> Object:
    found: Object = {"type": "object", "properties": properties}
    return {**found, "required": list(required)} if required else found


def _maybe(kind: str, **more: Any) -> Object:
    return {"type": [kind, "null"], **more}


_FRAME: Object = {"id": {"type": "string"}, "created": {"type": "integer"}, "model": {"type": "string"}, "usage": USAGE}
_FINISH: Object = {"type": ["string", "null"], "description": "stop, length or tool_calls"}
_CALL = _object({"id": {"type": "string"}, "type": {"const": "function"}, "function": {"type": "object"}}, "id", "type", "function")
_CHOICE = _object(
    {
        "index": {"type": "integer"},
        "message": _object({"role": {"const": "assistant"}, "content": _maybe("string"), "tool_calls": {"type": "array", "items": _CALL}}),
        "finish_reason": _FINISH,
        "logprobs": _maybe("object"),
    },
    "index",
    "message",
)
_PROMPTS: Object = {
    "oneOf": [
        {"type": "string", "minLength": 1},
        {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1, "maxItems": MOST_PROMPTS},
    ],
    "description": "A text; several where the engine takes them (gguf)",
}
_CHUNKS: Object = {
    "type": "string",
    "description": "`data:` with one chunk each, then `data: [DONE]`; a failure is one `error` event, and no [DONE]",
}
CHAT = Operation(
    "createChatCompletion",
    "Go on with a conversation",
    _object(
        {**_FRAME, "object": {"const": "chat.completion"}, "choices": {"type": "array", "items": _CHOICE}}, "object", "model", "choices"
    ),
    parameters=RUN_HEADERS,
    takes={"application/json": body(CHAT_IN)},
    needs=Role.USER,
    errors=TEXT_ERRORS,
    more_answers={"text/event-stream": _CHUNKS},
)
COMPLETE = Operation(
    "createCompletion",
    "Go on from a text",
    _object(
        {
            **_FRAME,
            "object": {"const": "text_completion"},
            "choices": {
                "type": "array",
                "items": _object({"index": {"type": "integer"}, "text": {"type": "string"}, "finish_reason": _FINISH}, "index", "text"),
            },
        },
        "object",
        "model",
        "choices",
    ),
    parameters=RUN_HEADERS,
    takes={"application/json": body(COMPLETION_IN, prompt=_PROMPTS)},
    needs=Role.USER,
    errors=TEXT_ERRORS,
    more_answers={"text/event-stream": _CHUNKS},
)
TRANSCRIBE = Operation(
    "createTranscription",
    "Write down what is said",
    _object({"text": {"type": "string"}, "usage": {"type": "object"}}, "text"),
    parameters=RUN_HEADERS,
    takes={
        "multipart/form-data": _object(
            {
                "file": {"type": "string", "format": "binary", "description": "The recording, with a file name"},
                "model": {"type": "string", "description": "Name or alias of a speech recognition model"},
                "response_format": {"enum": list(FORMATS)},
                "language": {"type": "string"},
                "prompt": {"type": "string", "description": "Words that were said before"},
                "temperature": {"type": "number", "minimum": 0, "maximum": 1},
                "timestamp_granularities[]": {"type": "array", "items": {"enum": ["word", "segment"]}},
                "stream": {"type": "boolean"},
            },
            "file",
            "model",
        )
    },
    needs=Role.USER,
    errors=RUN_ERRORS,
    more_answers={
        "text/plain": {"type": "string", "description": "text, srt and vtt"},
        "text/event-stream": {"type": "string", "description": "transcript.text.delta and transcript.text.done, with stream: true"},
    },
)
TRANSLATE = replace(TRANSCRIBE, id="createTranslation", summary="Write down in English what is said, where the model can")
