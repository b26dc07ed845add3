"""The dialect's routes in schemas, for /openapi.json."""

from typing import Any

from fornada.edge.dialects.gateway.settings import GATEWAY
from fornada.edge.envelope import envelope

Object = dict[str, Any]


_INFO: Object = {
    "type": "object",
    "properties": {name: {"type": "integer"} for name in ("page", "per_page", "count", "total_count", "total_pages")},
}
_LOG: Object = {
    "type": "object",
    "properties": {
        **{name: {"type": "string"} for name in ("id", "provider", "model", "model_type", "path", "request_type", "metadata", "event_id")},
        **{name: {"type": "string"} for name in ("request_content_type", "response_content_type", "request_head", "response_head")},
        "created_at": {"type": "string", "format": "date-time"},
        **{name: {"type": "integer"} for name in ("duration", "status_code", "tokens_in", "tokens_out", "step", "attempts")},
        **{name: {"type": "integer"} for name in ("request_size", "response_size")},
        **{name: {"type": "boolean"} for name in ("success", "cached", "custom_cost", "request_head_complete", "response_head_complete")},
        "cost": {"type": "number"},
        "feedback": {"type": ["integer", "null"]},
        "score": {"type": ["number", "null"]},
    },
    "required": ["id", "created_at", "provider", "model", "path", "duration", "success", "cached"],
}
ONE = envelope(GATEWAY)
GATEWAYS = envelope({"type": "array", "items": GATEWAY}, result_info=_INFO)
LOG = envelope(_LOG)
LOGS = envelope({"type": "array", "items": _LOG}, result_info=_INFO)
DONE = envelope({"type": "null"})
URL = envelope({"type": "string", "format": "uri"})
_ENTRY: Object = {
    "type": "object",
    "properties": {
        "provider": {"type": "string"},
        "endpoint": {"type": "string"},
        "query": {"description": "The provider's input"},
        "headers": {"type": "object"},
        "config": {
            "type": "object",
            "properties": {
                "requestTimeout": {"type": ["integer", "null"], "description": "Milliseconds until the first byte"},
                "maxAttempts": {"type": ["integer", "null"], "minimum": 1, "maximum": 5},
                "retryDelay": {"type": ["integer", "null"], "minimum": 0, "maximum": 5000},
                "backoff": {"enum": ["constant", "linear", "exponential", None]},
            },
        },
    },
    "required": ["provider", "endpoint"],
}
ENTRIES: Object = {"application/json": {"type": "array", "items": _ENTRY, "minItems": 1, "maxItems": 20}}
ANY_BODY: Object = {
    "application/json": {"type": "object", "description": "What the endpoint takes elsewhere"},
    "application/octet-stream": {"type": "string", "format": "binary"},
    "multipart/form-data": {"type": "object"},
}
ANSWER: Object = {"description": "What the endpoint answers elsewhere"}
