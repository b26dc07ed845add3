"""A request for a message as a chat for the runner.

    system                          a system message, ahead of all others
    text, image                     a message's text; with pictures its parts
    tool_use                        the assistant's tool_calls
    tool_result                     messages of the role `tool`, ahead of what the user says beside them
    thinking                        left out: what a model thought of earlier is not told to it again
    tools, tool_choice              tools, tool_choice (`any` is `required`)
    stop_sequences, output_config   stop, response_format

Fields that aren't named here go through, so that a model's own (`seed`, `repetition_penalty`) work as in a chat.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from fornada.core.errors import BadRequest
from fornada.edge.chat_turns import Message, Part, Turns, image_part, text_part
from fornada.edge.dialects.anthropic.schema import BODY, SCHEMA
from fornada.edge.json_bodies import Fields
from fornada.edge.json_mode import JsonMode, promised
from fornada.edge.platform_options import NO_OPTIONS, read_options
from fornada.edge.validation import Contract

Object = dict[str, Any]
_NOT_THE_MODELS = (frozenset(SCHEMA["properties"]) - {"max_tokens", "temperature", "top_p", "stream"}) | {
    "betas",
    "cache_control",
    "container",
    "context_management",
    "diagnostics",
    "inference_geo",
    "mcp_servers",
    "service_tier",
    "speed",
    "user_profile_id",
    "workspace_id",
}
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


class MessageRequest(NamedTuple):
    """A request, ready for the runner."""

    body: bytes
    stream: bool
    thinking: bool
    """The answer shows what the model thinks."""
    reject_if_busy: bool
    json_mode: JsonMode | None
    """What a whole answer is checked by."""


def read_message(fields: Fields, contract: Contract) -> MessageRequest:
    """Raises BadRequest with the field's name."""
    given = BODY.read(fields)
    options = read_options(fields["options"]) if "options" in fields else NO_OPTIONS
    turns = Turns()
    for number, message in enumerate(given["messages"]):
        _take(turns, message, f"/messages/{number}/content")
    system = given.get("system") or ""
    instructions = system if isinstance(system, str) else "\n".join(_texts(system, "/system"))
    asked: Object = {name: value for name, value in given.items() if name not in _NOT_THE_MODELS}
    asked["messages"] = _opened(turns.told(instructions))
    asked.update(_tools(given))
    if given.get("stop_sequences"):
        asked["stop"] = given["stop_sequences"]
    if given.get("top_k"):
        asked["top_k"] = given["top_k"]
    format = (given.get("output_config") or {}).get("format")
    if format:
        asked["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": format["schema"]}}
    contract.check(asked)
    thinking = (given.get("thinking") or {}).get("type", "disabled") != "disabled"
    return MessageRequest(msgspec.json.encode(asked), given.get("stream") is True, thinking, options.reject_if_busy, promised(asked))


def _opened(messages: list[Message]) -> list[Message]:
    """A conversation of nothing but thoughts has no messages. Raises BadRequest."""
    if not messages:
        raise BadRequest("'/messages' says nothing")
    return messages


def _take(turns: Turns, message: Object, place: str) -> None:
    """One message, in the order of its blocks: but results of tools come first, as chats have it."""
    role, content = message["role"], message["content"]
    if isinstance(content, str):
        turns.say(role, [text_part(content)])
        return
    said: list[Part] = []
    calls: list[tuple[str, str, str]] = []
    for number, block in enumerate(content):
        where = f"{place}/{number}"
        match block["type"]:
            case "tool_use" if role == "assistant":
                calls.append((_text(block, "id", where), _text(block, "name", where), _arguments(block, where)))
            case "tool_result" if role == "user":
                turns.result(_text(block, "tool_use_id", where), _result(block, where))
            case "thinking" | "redacted_thinking":
                pass
            case _:
                said.append(_part(block, where))
    if said or not content:
        turns.say(role, said)
    for call in calls:
        turns.call(*call)


def _part(block: Object, place: str) -> Part:
    match block["type"]:
        case "text":
            return text_part(_text(block, "text", place))
        case "image":
            return image_part(_picture(block.get("source"), f"{place}/source"))
        case "document" if isinstance(block.get("source"), dict) and block["source"].get("type") == "text":
            return text_part(_text(block["source"], "data", f"{place}/source"))
        case _:
            raise BadRequest(
                f"'{place}/type' must be one of 'text', 'image', 'thinking', and 'tool_use' of the assistant, 'tool_result' of the user"
            )


def _picture(source: Any, place: str) -> str:
    if not isinstance(source, dict):
        raise BadRequest(f"required properties at '{place.removesuffix('/source')}' are 'source'")
    match source.get("type"):
        case "base64":
            return f"data:{_text(source, 'media_type', place)};base64,{_text(source, 'data', place)}"
        case "url":
            return _text(source, "url", place)
        case _:
            raise BadRequest(f"'{place}/type' must be one of 'base64', 'url'")


def _result(block: Object, place: str) -> list[Part]:
    content = block.get("content")
    if content is None or isinstance(content, str):
        parts = [text_part(content or "")]
    elif isinstance(content, list):
        parts = [_part(_block(each, f"{place}/content/{number}"), f"{place}/content/{number}") for number, each in enumerate(content)]
    else:
        raise BadRequest(f"Type mismatch of '{place}/content', it must be a text or blocks")
    return [text_part("Error:"), *parts] if block.get("is_error") is True else parts


def _arguments(block: Object, place: str) -> str:
    given = block.get("input", {})
    if not isinstance(given, dict):
        raise BadRequest(f"Type mismatch of '{place}/input', it must be an object")
    return msgspec.json.encode(given).decode()


def _texts(blocks: Sequence[Object], place: str) -> list[str]:
    for number, block in enumerate(blocks):
        if block["type"] != "text":
            raise BadRequest(f"'{place}/{number}/type' must be 'text'")
    return [_text(block, "text", f"{place}/{number}") for number, block in enumerate(blocks)]


def _block(value: Any, place: str) -> Object:
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise BadRequest(f"required properties at '{place}' are 'type'")
    return value


def _text(block: Object, name: str, place: str) -> str:
    if not isinstance(block.get(name), str):
        raise BadRequest(f"required properties at '{place}' are '{name}'")
    return str(block[name])


def _tools(given: Object) -> Object:
    tools, choice = given.get("tools") or [], given.get("tool_choice") or {}
    kind = choice.get("type")
    if not tools:
        if kind in ("any", "tool"):
            raise BadRequest("'/tool_choice' asks for a tool, and there are no tools")
        return {}
    found: Object = {"tools": [{"type": "function", "function": _function(tool)} for tool in tools]}
    if kind == "tool":
        if choice["name"] not in [tool["name"] for tool in tools]:
            raise BadRequest("'/tool_choice/name' is none of the tools")
        found["tool_choice"] = {"type": "function", "function": {"name": choice["name"]}}
    elif kind is not None:
        found["tool_choice"] = _CHOICES[kind]
    if choice.get("disable_parallel_tool_use") is True:
        found["parallel_tool_calls"] = False
    return found


def _function(tool: Object) -> Object:
    more = {name: tool[name] for name in ("description", "strict") if tool.get(name) is not None}
    return {"name": tool["name"], **more, "parameters": tool["input_schema"]}
