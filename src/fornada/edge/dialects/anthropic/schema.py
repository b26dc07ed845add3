"""What a request for a message looks like: for /openapi.json, and for the check of each."""

from typing import Any

from fornada.edge.body_schemas import BodySchema
from fornada.edge.text_schemas import MOST_TOOLS

Object = dict[str, Any]
MOST_MESSAGES = 10_000
"""No conversation is as long, and each message is looked at one by one while everybody else waits."""


def _maybe(kind: str, **more: Any) -> Object:
    return {"type": [kind, "null"], **more}


_BLOCKS: Object = {"type": "array", "items": {"type": "object", "properties": {"type": {"type": "string"}}, "required": ["type"]}}
_NAMED: Object = {"type": "object", "properties": {"type": {"const": "tool"}, "name": {"type": "string"}}, "required": ["type", "name"]}
SCHEMA: Object = {
    "type": "object",
    "properties": {
        "model": {"type": "string", "minLength": 1, "description": "Name or alias of a text-generation model"},
        "max_tokens": {"type": "integer", "minimum": 1, "description": "Most tokens of the answer"},
        "messages": {
            "type": "array",
            "minItems": 1,
            "maxItems": MOST_MESSAGES,
            "items": {
                "type": "object",
                "properties": {
                    "role": {"enum": ["user", "assistant", "system"]},
                    "content": {
                        "description": "A text, or blocks of the types text, image, tool_use, tool_result, thinking",
                        "anyOf": [{"type": "string"}, _BLOCKS],
                    },
                },
                "required": ["role", "content"],
            },
        },
        "system": {"description": "A text, or blocks of text", "anyOf": [{"type": "string"}, _BLOCKS, {"type": "null"}]},
        "stream": _maybe("boolean", description="Events as it is made"),
        "stop_sequences": {"type": ["array", "null"], "items": {"type": "string"}, "maxItems": 16},
        "temperature": _maybe("number", minimum=0, maximum=1),
        "top_p": _maybe("number", minimum=0, maximum=1),
        "top_k": _maybe("integer", minimum=0),
        "tools": {
            "type": ["array", "null"],
            "description": "Functions that the model may call",
            "maxItems": MOST_TOOLS,
            "items": {
                "type": "object",
                "properties": {
                    "type": {"enum": ["custom", None], "description": "Anthropic's own tools aren't served"},
                    "name": {"type": "string", "minLength": 1},
                    "description": _maybe("string"),
                    "input_schema": {"type": "object"},
                    "strict": _maybe("boolean"),
                },
                "required": ["name", "input_schema"],
            },
        },
        "tool_choice": {
            "description": "{type: auto | any | none}, or {type: tool, name}",
            "anyOf": [
                {"type": "object", "properties": {"type": {"enum": ["auto", "any", "none"]}}, "required": ["type"]},
                _NAMED,
                {"type": "null"},
            ],
        },
        "thinking": {
            "type": ["object", "null"],
            "properties": {"type": {"type": "string"}},
            "required": ["type"],
            "description": "Whether what the model thinks is shown, where it does so: not with the type disabled",
        },
        "output_config": {
            "type": ["object", "null"],
            "properties": {
                "format": {
                    "type": ["object", "null"],
                    "properties": {"type": {"const": "json_schema"}, "schema": {"type": "object"}},
                    "required": ["type", "schema"],
                }
            },
        },
        "metadata": _maybe("object"),
        "options": {"type": ["object", "null"], "properties": {"rejectIfBusy": _maybe("boolean")}},
    },
    "required": ["model", "max_tokens", "messages"],
}
BODY = BodySchema(SCHEMA)
MESSAGE: Object = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "type": {"const": "message"},
        "role": {"const": "assistant"},
        "model": {"type": "string"},
        "content": {
            "type": "array",
            "items": {"type": "object", "properties": {"type": {"enum": ["text", "tool_use", "thinking"]}}, "required": ["type"]},
        },
        "stop_reason": {"enum": ["end_turn", "max_tokens", "tool_use", "refusal"]},
        "stop_sequence": {"type": ["string", "null"]},
        "usage": {"type": "object", "properties": {name: {"type": "integer"} for name in ("input_tokens", "output_tokens")}},
    },
    "required": ["id", "type", "role", "model", "content", "stop_reason", "usage"],
}
