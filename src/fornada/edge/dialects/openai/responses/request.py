"""A request for a response as a chat for the runner.

    instructions                            a system message, ahead of all others
    input: a text, messages                 messages; `developer` is `system`
    function_call, function_call_output     the assistant's tool_calls, and messages of the role `tool`
    reasoning                               left out: what a model thought of earlier is not told to it again
    tools, tool_choice, text.format         tools, tool_choice, response_format
    max_output_tokens                       max_tokens

Fields that aren't named here go through, so that a model's own (`seed`, `stop`, `top_k`) work as in a chat.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from fornada.core.errors import BadRequest
from fornada.edge.chat_turns import Message, Part, Turns, image_part, text_part
from fornada.edge.dialects.openai.responses.schema import BODY, SCHEMA
from fornada.edge.json_bodies import Fields
from fornada.edge.json_mode import JsonMode, promised
from fornada.edge.platform_options import NO_OPTIONS, read_options
from fornada.edge.validation import Contract

Object = dict[str, Any]
LOGPROBS = "message.output_text.logprobs"
_TEXTS = ("input_text", "output_text", "text")
_ROLES = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
_NOT_THE_MODELS = (frozenset(SCHEMA["properties"]) - {"temperature", "top_p", "parallel_tool_calls", "stream"}) | {
    "access_programs",
    "background_options",
    "context_management",
    "image",
    "max_tool_calls",
    "moderation",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "stream_options",
    "user",
}


class ResponseRequest(NamedTuple):
    """A request, ready for the runner."""

    body: bytes
    turns: list[Message]
    """The conversation so far, without the instructions."""
    input: list[Object]
    """The items, each with an id."""
    given: Object
    """All values as they came."""
    stream: bool
    store: bool
    reject_if_busy: bool
    json_mode: JsonMode | None
    """What a whole answer is checked by."""


def read_response(fields: Fields, contract: Contract, id: str, earlier: Callable[[str], list[Message]]) -> ResponseRequest:
    """`id` begins those of the items; `earlier` gives the conversation of a response that was kept. Raises BadRequest with the field's name."""
    given = BODY.read(fields)
    options = read_options(fields["options"]) if "options" in fields else NO_OPTIONS
    turns = Turns(earlier(given["previous_response_id"]) if given.get("previous_response_id") else ())
    items = [{"role": "user", "content": given["input"]}] if isinstance(given["input"], str) else given["input"]
    for number, item in enumerate(items):
        _take(turns, item, f"/input/{number}")
    if not turns.messages:
        raise BadRequest("'/input' is empty: it needs a text, or an item")
    asked: Object = {name: value for name, value in given.items() if name not in _NOT_THE_MODELS}
    asked["messages"] = turns.told(given.get("instructions") or "")
    if "max_output_tokens" in given:
        asked["max_tokens"] = given["max_output_tokens"]
    asked.update(_tools(given))
    asked.update(_format(given))
    if LOGPROBS in given.get("include", ()):
        asked.update({"logprobs": True, "top_logprobs": given.get("top_logprobs", 0)})
    contract.check(asked)
    return ResponseRequest(
        msgspec.json.encode(asked),
        turns.messages,
        [_shown(item, f"{id}_{number}") for number, item in enumerate(items)],
        given,
        given.get("stream") is True,
        given.get("store") is not False,
        options.reject_if_busy,
        promised(asked),
    )


def _take(turns: Turns, item: Object, place: str) -> None:
    kind = item.get("type", "message")
    match kind:
        case "message":
            if "role" not in item:
                raise BadRequest(f"required properties at '{place}' are 'role'")
            turns.say(_ROLES[item["role"]], _parts(item.get("content"), f"{place}/content"))
        case "function_call":
            turns.call(*(_text(item, name, place) for name in ("call_id", "name", "arguments")))
        case "function_call_output":
            if item.get("output") is None:
                raise BadRequest(f"required properties at '{place}' are 'output'")
            turns.result(_text(item, "call_id", place), _parts(item["output"], f"{place}/output"))
        case "reasoning":
            pass
        case _:
            raise BadRequest(f"'{place}/type': {kind} isn't served: give the item itself, or previous_response_id")


def _text(item: Object, name: str, place: str) -> str:
    if not isinstance(item.get(name), str):
        raise BadRequest(f"required properties at '{place}' are '{name}'")
    return str(item[name])


def _parts(content: Any, place: str) -> list[Part]:
    if content is None or isinstance(content, str):
        return [text_part(content or "")]
    return [_part(part, f"{place}/{number}") for number, part in enumerate(content)]


def _part(part: Any, place: str) -> Part:
    if not isinstance(part, dict):
        raise BadRequest(f"Type mismatch of '{place}', it must be an object with type and text")
    kind = part.get("type")
    if kind in _TEXTS and isinstance(part.get("text"), str):
        return text_part(part["text"])
    if kind == "refusal" and isinstance(part.get("refusal"), str):
        return text_part(part["refusal"])
    if kind == "input_image" and isinstance(part.get("image_url"), str):
        return image_part(part["image_url"], part.get("detail"))
    if kind in _TEXTS:
        raise BadRequest(f"required properties at '{place}' are 'text'")
    if kind == "input_image":
        raise BadRequest(f"required properties at '{place}' are 'image_url': pictures are given as they are, not as files")
    raise BadRequest(f"'{place}/type' must be one of 'input_text', 'output_text', 'input_image', 'refusal'")


def _tools(given: Object) -> Object:
    tools, choice = given.get("tools") or [], given.get("tool_choice")
    if isinstance(choice, dict) and choice["type"] == "allowed_tools":
        allowed = [tool.get("name") for tool in choice["tools"]]
        tools = [tool for tool in tools if tool["name"] in allowed]
        choice = choice["mode"]
    if isinstance(choice, dict):
        if choice["name"] not in [tool["name"] for tool in tools]:
            raise BadRequest("'/tool_choice/name' is none of the tools")
        choice = {"type": "function", "function": {"name": choice["name"]}}
    if not tools:
        if choice == "required":
            raise BadRequest("'/tool_choice' is required, and there are no tools")
        return {}
    shown = [
        {"type": "function", "function": {name: tool[name] for name in tool if name != "type" and tool[name] is not None}} for tool in tools
    ]
    return {"tools": shown, **({"tool_choice": choice} if choice is not None else {})}


def _format(given: Object) -> Object:
    format = (given.get("text") or {}).get("format")
    if format is None or format["type"] == "text":
        return {}
    if format["type"] == "json_object":
        return {"response_format": {"type": "json_object"}}
    schema = {name: format[name] for name in ("name", "schema", "strict", "description") if format.get(name) is not None}
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", **schema}}}


def _shown(item: Object, id: str) -> Object:
    """An item as the list of a response's input shows it."""
    id = item.get("id") or id
    if item.get("type", "message") != "message":
        return {**item, "id": id}
    content = item.get("content")
    if content is None or isinstance(content, str):
        kind = "output_text" if item["role"] == "assistant" else "input_text"
        content = [{"type": kind, "text": content or "", **({"annotations": []} if kind == "output_text" else {})}]
    return {"type": "message", "status": "completed", **item, "id": id, "content": content}
