"""Cloudflare's envelope around a success: the object, and its schema for /openapi.json. A refusal's is edge.problems'."""

from typing import Any

Object = dict[str, Any]


def enveloped(result: object, **more: object) -> Object:
    """`result` as the dialects below /client/v4 answer it; `more` stands beside it."""
    return {"result": result, "success": True, "errors": [], "messages": [], **more}


def envelope(result: Object, **more: Object) -> Object:
    """JSON Schema of the same."""
    return {
        "type": "object",
        "properties": {
            "result": result,
            "success": {"const": True},
            "errors": {"type": "array", "maxItems": 0},
            "messages": {"type": "array"},
            **more,
        },
        "required": ["result", "success", "errors", "messages"],
    }
