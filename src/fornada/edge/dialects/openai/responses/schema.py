"""What a request for a response looks like: for /openapi.json, and for the check of each."""

from typing import Any

from fornada.edge.body_schemas import BodySchema
from fornada.edge.text_schemas import MOST_TOOLS

Object = dict[str, Any]
MOST_ITEMS = 10_000
"""No conversation is as long, and each item is looked at one by one while everybody else waits."""


def _maybe(kind: str, **more: Any) -> Object:
    return {"type": [kind, "null"], **more}


_CHOICE: Object = {
    "description": "auto, none, required, {type: function, name}, or {type: allowed_tools, mode, tools}",
    "anyOf": [
        {"enum": ["auto", "none", "required", None]},
        {
            "type": "object",
            "properties": {"type": {"const": "function"}, "name": {"type": "string", "minLength": 1}},
            "required": ["type", "name"],
        },
        {
            "type": "object",
            "properties": {
                "type": {"const": "allowed_tools"},
                "mode": {"enum": ["auto", "required"]},
                "tools": {"type": "array", "maxItems": MOST_TOOLS, "items": {"type": "object"}},
            },
            "required": ["type", "mode", "tools"],
        },
    ],
}
_FORMAT: Object = {
    "type": "object",
    "properties": {
        "type": {"enum": ["text", "json_object", "json_schema"]},
        "name": {"type": "string"},
        "schema": {"type": "object"},
        "strict": _maybe("boolean"),
    },
    "required": ["type"],
    "if": {"properties": {"type": {"const": "json_schema"}}},
    "then": {"required": ["schema"]},
}
_ITEM: Object = {
    "type": "object",
    "description": "A message (role and content), or what `type` says: function_call, function_call_output, reasoning, item_reference",
    "properties": {
        "id": _maybe("string"),
        "type": {"enum": ["message", "function_call", "function_call_output", "reasoning", "item_reference"]},
        "role": {"enum": ["user", "assistant", "system", "developer"]},
        "content": {"type": ["string", "array", "null"]},
        "call_id": {"type": "string"},
        "name": {"type": "string"},
        "arguments": {"type": "string"},
        "output": {"type": ["string", "array"]},
    },
}
SCHEMA: Object = {
    "type": "object",
    "properties": {
        "model": {"type": "string", "minLength": 1, "description": "Name or alias of a text-generation model"},
        "input": {
            "description": "A text, or items",
            "anyOf": [{"type": "string"}, {"type": "array", "maxItems": MOST_ITEMS, "items": _ITEM}],
        },
        "instructions": _maybe("string", description="A system message; not taken over by responses that go on from this one"),
        "previous_response_id": _maybe("string", description="Go on from this response: it must have been stored"),
        "store": _maybe("boolean", description="Keep the response, for 30 days at most; true unless said"),
        "stream": _maybe("boolean", description="Events as it is made"),
        "max_output_tokens": _maybe("integer", minimum=1),
        "temperature": _maybe("number", minimum=0, maximum=5),
        "top_p": _maybe("number", minimum=0, maximum=1),
        "top_logprobs": _maybe("integer", minimum=0, maximum=20),
        "tools": {
            "type": ["array", "null"],
            "description": "Functions that the model may call",
            "maxItems": MOST_TOOLS,
            "items": {
                "type": "object",
                "properties": {
                    "type": {"const": "function", "description": "OpenAI's own tools aren't served"},
                    "name": {"type": "string", "minLength": 1},
                    "description": _maybe("string"),
                    "parameters": _maybe("object"),
                    "strict": _maybe("boolean"),
                },
                "required": ["type", "name"],
            },
        },
        "tool_choice": _CHOICE,
        "parallel_tool_calls": _maybe("boolean"),
        "text": {
            "type": ["object", "null"],
            "properties": {"format": {"anyOf": [_FORMAT, {"type": "null"}]}, "verbosity": _maybe("string")},
        },
        "reasoning": _maybe("object", description="Accepted; what becomes of it is the model's business"),
        "include": {"type": ["array", "null"], "items": {"type": "string"}},
        "metadata": {"type": ["object", "null"], "maxProperties": 16, "additionalProperties": {"type": "string", "maxLength": 512}},
        "truncation": {"enum": ["auto", "disabled", None]},
        "background": {"enum": [False, None], "description": "Not served: /v1/batches has requests that nobody waits for"},
        "conversation": {"type": "null", "description": "Not served: previous_response_id has it"},
        "prompt": {"type": "null", "description": "Not served: there are no stored prompts"},
        "options": {"type": ["object", "null"], "properties": {"rejectIfBusy": _maybe("boolean")}},
    },
    "required": ["model", "input"],
}
BODY = BodySchema(SCHEMA)
