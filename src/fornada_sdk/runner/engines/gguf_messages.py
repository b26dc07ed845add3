"""The conversation of a request, whichever client wrote it, in the one form that chat templates know."""

from __future__ import annotations

import json
from typing import Any

from fornada_sdk.api import BadRequest

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool", "function": "tool"}
_TEXTS = ("text", "input_text", "output_text")


def read_messages(value: Any) -> list[dict[str, Any]]:
    """Messages with `role`, `content` (a text), and `tool_calls` with arguments as JSON text. Raises BadRequest."""
    if not isinstance(value, list) or not value:
        raise BadRequest('"messages" must be a list of at least one message')
    return [_message(each, number) for number, each in enumerate(value)]


def _message(value: Any, number: int) -> dict[str, Any]:
    where = f'"messages" {number}'
    if not isinstance(value, dict):
        raise BadRequest(f"{where} must be an object with role and content")
    role = ROLES.get(str(value.get("role")))
    if role is None:
        raise BadRequest(f"{where}: the role must be one of {', '.join(ROLES)}")
    message: dict[str, Any] = {"role": role, "content": _content(value.get("content"), where)}
    if role == "assistant" and value.get("tool_calls"):
        message["tool_calls"] = _calls(value["tool_calls"], where)
    if role == "tool":
        for name in ("tool_call_id", "name"):
            if isinstance(value.get(name), str):
                message[name] = value[name]
    return message


def _content(value: Any, where: str) -> str:
    """Text, parts of text, or nothing, as one text."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise BadRequest(f"{where}: the content must be a text, a list of parts or null")
    texts = []
    for part in value:
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(part, str):
            texts.append(part)
        elif kind in _TEXTS and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif isinstance(kind, str) and kind not in _TEXTS:
            raise BadRequest(f"{where}: the content has a part of type {kind[:40]}, and this model reads text alone")
        else:
            raise BadRequest(f'{where}: each part of the content must be {{"type": "text", "text": ...}}')
    return "\n".join(texts)


def _calls(value: Any, where: str) -> list[dict[str, Any]]:
    """Calls that the model made before: {id, type, function: {name, arguments}}, or Workers AI's {name, arguments}."""
    if not isinstance(value, list):
        raise BadRequest(f"{where}: tool_calls must be a list")
    calls = []
    for number, each in enumerate(value):
        function = each.get("function", each) if isinstance(each, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(function, dict) or not isinstance(name, str) or not name:
            raise BadRequest(f"{where}: a tool call must have a name")
        arguments = function.get("arguments")
        text = arguments if isinstance(arguments, str) else json.dumps({} if arguments is None else arguments, ensure_ascii=False)
        calls.append({"id": str(each.get("id") or f"call_{number}"), "type": "function", "function": {"name": name, "arguments": text}})
    return calls
