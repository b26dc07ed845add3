"""From the Workers AI or OpenAI input of text generation to what an OpenAI-speaking server takes.

    messages                           /v1/chat/completions
    prompt                             /v1/chat/completions, as the user's message
    prompt and raw                     /v1/completions
    guided_json                        response_format
    tools, tool_calls                  both styles
    a schema in response_format        bare, or in OpenAI's envelope

Everything else goes on as it came: the server knows its own parameters, and says so where one is wrong. [settings] `path` sends all
requests to one path, as they are; `paths` lists further ones that a request may name by its own `path`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from fornada_sdk.api import BadRequest
from fornada_sdk.runner.engines import LoadError

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
GENERATING = (CHAT, TEXT)
DEFAULT_TOKENS = 256


class Paths(NamedTuple):
    """[settings] path and paths."""

    fixed: str = ""
    """Where everything goes; empty: chat or text, as the input says."""
    named: tuple[str, ...] = ()
    """What a request may name."""


class Asked(NamedTuple):
    """A request as the server gets it."""

    path: str
    body: dict[str, Any]


def read_paths(settings: Mapping[str, Any]) -> Paths:
    """Raises LoadError for a setting that is no path."""
    fixed, named = settings.get("path", ""), settings.get("paths", [])
    if not isinstance(named, list):
        raise LoadError(f"[settings] paths must be a list of paths, and is {named!r}")
    for each in ([fixed] if fixed else []) + named:
        if not isinstance(each, str) or not each.startswith("/") or any(character <= " " or character > "~" for character in each):
            raise LoadError(f"[settings] path: {each!r} is no path")
    return Paths(fixed, tuple(named))


def read_request(value: Any, paths: Paths, *, model: str, stream: bool) -> Asked:
    """`model` is what the server calls its model. Raises BadRequest with the field's name."""
    if not isinstance(value, dict):
        raise BadRequest('the input must be an object with "messages" or "prompt"')
    given = {name: each for name, each in value.items() if each is not None}
    path = _path(given, paths)
    given["model"] = model
    given.pop("stream", None)
    given.pop("stream_options", None)
    if not path or path in GENERATING:
        path, given = _generation(given, path)
    if stream:
        given["stream"] = True
        if path in GENERATING:
            given["stream_options"] = {"include_usage": True}
    return Asked(path, given)


def _path(given: dict[str, Any], paths: Paths) -> str:
    wanted = given.pop("path", "") if paths.named else ""
    if not wanted or wanted == paths.fixed:
        return paths.fixed
    if wanted not in paths.named:
        raise BadRequest(f'"path" must be one of {", ".join(paths.named)}')
    return str(wanted)


def _generation(given: dict[str, Any], path: str) -> tuple[str, dict[str, Any]]:
    raw = given.pop("raw", False) in (True, "true")
    path = path or (TEXT if raw and "messages" not in given else CHAT)
    if "messages" not in given and "prompt" not in given:
        raise BadRequest('the input must have "messages", a list, or "prompt", a text')
    if path == CHAT:
        if "messages" in given and "prompt" in given:
            raise BadRequest('"messages" and "prompt" exclude each other')
        if "prompt" in given:
            given["messages"] = [{"role": "user", "content": given.pop("prompt")}]
        given["messages"] = _messages(given["messages"])
    if "max_completion_tokens" not in given:
        given.setdefault("max_tokens", DEFAULT_TOKENS)
    schema = given.pop("guided_json", None)
    if schema is not None and "response_format" not in given:
        given["response_format"] = {"type": "json_schema", "json_schema": schema}
    if "response_format" in given:
        given["response_format"] = _format(given["response_format"])
    if isinstance(given.get("tools"), list):
        given["tools"] = [_tool(each) for each in given["tools"]]
    return path, given


def _messages(value: Any) -> list[Any]:
    if not isinstance(value, list) or not value or not all(isinstance(each, dict) for each in value):
        raise BadRequest('"messages" must be a list of at least one message, each an object')
    return [{**each, "tool_calls": _calls(each["tool_calls"])} if isinstance(each.get("tool_calls"), list) else each for each in value]


def _calls(calls: list[Any]) -> list[Any]:
    """Calls that the model made before, in OpenAI's form, from Workers AI's {name, arguments} too."""
    shown = []
    for number, each in enumerate(calls):
        function = each.get("function", each) if isinstance(each, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise BadRequest('"messages": a tool call must have a name')
        arguments = function.get("arguments")
        text = arguments if isinstance(arguments, str) else json.dumps({} if arguments is None else arguments, ensure_ascii=False)
        named = {"name": function["name"], "arguments": text}
        shown.append({"id": str(each.get("id") or f"call_{number}"), "type": "function", "function": named})
    return shown


def _format(format: Any) -> Any:
    schema = format.get("json_schema") if isinstance(format, dict) and format.get("type") == "json_schema" else None
    if not isinstance(schema, dict) or ("schema" in schema and "type" not in schema and "properties" not in schema):
        return format
    return {**format, "json_schema": {"name": "answer", "schema": schema}}


def _tool(tool: Any) -> Any:
    bare = isinstance(tool, dict) and "function" not in tool and isinstance(tool.get("name"), str)
    return {"type": "function", "function": tool} if bare else tool
