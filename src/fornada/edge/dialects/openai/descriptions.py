"""The routes that generate, in words and schemas, for /openapi.json."""

from typing import Any

from fornada.core.keys import Role
from fornada.edge.calls import Operation
from fornada.edge.dialects.openai.transcripts import FORMATS
from fornada.edge.invoke import RUN_ERRORS, RUN_HEADERS

Object = dict[str, Any]


def _object(properties: Object, *required: str) -> Object:
    found: Object = {"type": "object", "properties": properties}
    return {**found, "required": list(required)} if required else found


def _maybe(kind: str, **more: Any) -> Object:
    return {"type": [kind, "null"], **more}


_USAGE = _object({name: {"type": "integer"} for name in ("prompt_tokens", "completion_tokens", "total_tokens")})
_FRAME: Object = {"id": {"type": "string"}, "created": {"type": "integer"}, "model": {"type": "string"}, "usage": _USAGE}
_FINISH: Object = {"type": ["string", "null"], "description": "stop, length or tool_calls"}
_OPTIONS: Object = {"type": ["object", "null"], "properties": {"rejectIfBusy": _maybe("boolean")}}
_SAMPLING: Object = {
    "model": {"type": "string", "description": "Name or alias of a text-generation model"},
    "stream": _maybe("boolean", description="Chunks as events, then data: [DONE]"),
    "stream_options": {"type": ["object", "null"], "properties": {"include_usage": _maybe("boolean")}},
    "max_tokens": _maybe("integer", minimum=1),
    "temperature": _maybe("number", minimum=0, maximum=5),
    "top_p": _maybe("number", minimum=0, maximum=2),
    "top_k": _maybe("integer", minimum=1),
    "seed": _maybe("integer"),
    "frequency_penalty": _maybe("number", minimum=-2, maximum=2),
    "presence_penalty": _maybe("number", minimum=-2, maximum=2),
    "stop": {"description": "A text, or some: the answer ends before them"},
    "n": {"description": "Number of answers"},
    "options": _OPTIONS,
}
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
    takes={
        "application/json": _object(
            {
                **_SAMPLING,
                "messages": {
                    "type": "array",
                    "minItems": 1,
                    "items": _object(
                        {
                            "role": {"type": "string"},
                            "content": {"type": ["string", "array", "null"]},
                            "tool_calls": {"description": "What the assistant called"},
                            "tool_call_id": {"description": "Which of the calls this is the result of"},
                        },
                        "role",
                    ),
                },
                "max_completion_tokens": {"description": "The same as max_tokens"},
                "tools": {"description": "Functions that the model may call"},
                "tool_choice": {"description": "auto, none, required or one function"},
                "response_format": {"description": "json_object, or json_schema with a schema"},
                "logprobs": {"description": "Whether the answer has them"},
                "top_logprobs": {"description": "How many alternatives of each token"},
            },
            "model",
            "messages",
        )
    },
    needs=Role.USER,
    errors=RUN_ERRORS,
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
    takes={
        "application/json": _object(
            {
                **_SAMPLING,
                "prompt": {
                    "oneOf": [
                        {"type": "string", "minLength": 1},
                        {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1},
                    ],
                    "description": "A text; several where the engine takes them (gguf)",
                },
                "echo": {"description": "Whether the answer begins with the prompt"},
                "logprobs": {"description": "How many alternatives of each token the answer has"},
            },
            "model",
            "prompt",
        )
    },
    needs=Role.USER,
    errors=RUN_ERRORS,
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
