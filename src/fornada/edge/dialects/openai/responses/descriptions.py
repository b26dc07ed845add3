"""The routes of responses in words and schemas, for /openapi.json."""

from typing import Any

from fornada.core.errors import DiskFull
from fornada.core.keys import Role
from fornada.edge.calls import Operation
from fornada.edge.dialects.openai.responses.schema import SCHEMA
from fornada.edge.invoke import RUN_ERRORS, RUN_HEADERS

Object = dict[str, Any]
_USAGE: Object = {
    "type": ["object", "null"],
    "properties": {name: {"type": "integer"} for name in ("input_tokens", "output_tokens", "total_tokens")},
}
RESPONSE: Object = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "object": {"const": "response"},
        "created_at": {"type": "number"},
        "status": {"enum": ["completed", "incomplete"]},
        "model": {"type": "string"},
        "output": {
            "type": "array",
            "items": {"type": "object", "properties": {"type": {"enum": ["message", "function_call", "reasoning"]}}, "required": ["type"]},
        },
        "usage": _USAGE,
        "store": {"type": "boolean", "description": "Whether it is kept"},
        "previous_response_id": {"type": ["string", "null"]},
    },
    "required": ["id", "object", "created_at", "status", "model", "output"],
}
DELETED: Object = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "object": {"const": "response"}, "deleted": {"const": True}},
    "required": ["id", "object", "deleted"],
}
ITEMS: Object = {
    "type": "object",
    "properties": {"object": {"const": "list"}, "data": {"type": "array", "items": {"type": "object"}}, "has_more": {"type": "boolean"}},
    "required": ["object", "data"],
}
RESPOND = Operation(
    "createResponse",
    "Have a model respond",
    RESPONSE,
    parameters=RUN_HEADERS,
    takes={"application/json": SCHEMA},
    needs=Role.USER,
    errors=(*RUN_ERRORS, DiskFull),
    more_answers={
        "text/event-stream": {
            "type": "string",
            "description": "Events with names, from response.created to response.completed, response.incomplete or response.failed",
        }
    },
)
