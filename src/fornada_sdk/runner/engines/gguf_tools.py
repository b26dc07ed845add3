"""Tools: read in both styles; told to models whose chat template knows none, and calls read out of what they write.

Calls that may or may not be made (tool_choice auto) are recognised by how the text begins: the model is told to write a call as
one JSON object and nothing else, so text that begins otherwise goes on to the caller as it comes. A call that must be made
(required, or one function) is held to the tools' schemas by a grammar; where max_tokens cuts it off, what there is of it is told.
"""

from __future__ import annotations

import json
import re
import secrets
from typing import Any, NamedTuple

from fornada_sdk.api import BadRequest

MOST_TOOLS = 128
TOOLS_BYTES = 64 * 1024
_INTRODUCTION = "You can call these functions:"
_RULE = (
    'To call one, answer with nothing but a JSON object {"name": "<function>", "arguments": {...}}. If none of them helps, answer in words.'
)
_FORCE = 'Answer with nothing but a JSON object {"name": "<function>", "arguments": {...}} that calls a function.'


_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
"""What many models were trained to write around a call, whatever they are told."""
_CUT = re.compile(r'\s*\{\s*"name"\s*:\s*"([^"\\]*)"\s*,\s*"arguments"\s*:\s*(.*)', re.DOTALL)
"""A call that a grammar held, as far as max_tokens let it come."""
_DECODER = json.JSONDecoder()


class Tools(NamedTuple):
    """What the model may call."""

    functions: list[dict[str, Any]]
    """{name, description, parameters}"""
    force: bool
    """A call must be made."""
    parallel: bool | None = None

    @property
    def names(self) -> list[str]:
        return [function["name"] for function in self.functions]

    def native(self) -> dict[str, Any]:
        """For a template that writes them into the prompt itself."""
        body: dict[str, Any] = {"tools": [{"type": "function", "function": function} for function in self.functions]}
        body["tool_choice"] = "required" if self.force else "auto"
        if self.parallel is not None:
            body["parallel_tool_calls"] = self.parallel
        return body

    def told(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The conversation, with the tools described in its system message."""
        lines = [_INTRODUCTION, *(json.dumps(function, ensure_ascii=False) for function in self.functions)]
        text = "\n".join([*lines, _FORCE if self.force else _RULE])
        if messages[0]["role"] == "system":
            return [{**messages[0], "content": f"{messages[0]['content']}\n\n{text}"}, *messages[1:]]
        return [{"role": "system", "content": text}, *messages]

    def schema(self) -> dict[str, Any]:
        """What a call looks like. Definitions of the tools' schemas move to the top, where their references look for them."""
        definitions: dict[str, Any] = {}
        calls = []
        for function in self.functions:
            parameters = dict(function["parameters"])
            for key in ("$defs", "definitions"):
                if isinstance(parameters.get(key), dict):
                    definitions.setdefault(key, {}).update(parameters.pop(key))
            properties = {"name": {"const": function["name"]}, "arguments": parameters}
            calls.append({"type": "object", "properties": properties, "required": ["name", "arguments"], "additionalProperties": False})
        return {**(calls[0] if len(calls) == 1 else {"anyOf": calls}), **definitions}

    @staticmethod
    def spelled_out(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The conversation with earlier calls and their results as plain messages."""
        plain = []
        names: dict[str, str] = {}
        for message in messages:
            if message["role"] == "tool":
                name = message.get("name") or names.get(message.get("tool_call_id", ""), "the function")
                plain.append({"role": "user", "content": f"Result of {name}: {message['content']}"})
            elif "tool_calls" in message:
                functions = [call["function"] for call in message["tool_calls"]]
                names.update({call["id"]: call["function"]["name"] for call in message["tool_calls"]})
                calls = [f'{{"name": {json.dumps(each["name"])}, "arguments": {each["arguments"]}}}' for each in functions]
                plain.append({"role": "assistant", "content": "\n".join([text for text in [message["content"]] if text] + calls)})
            else:
                plain.append(message)
        return plain


class CallReader:
    """Finds calls in what a model writes. `feed` gives the text that may be passed on, `end` what was kept back."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._kept = ""
        self._decided = False

    def feed(self, text: str) -> str:
        if self._decided:
            return text
        self._kept += text
        start = self._kept.lstrip()[: len(_OPEN)]
        if not start or start[0] in "{[" or _OPEN.startswith(start):
            return ""
        self._decided = True
        kept, self._kept = self._kept, ""
        return kept

    def end(self) -> tuple[list[dict[str, Any]], str, bool]:
        """(the calls as OpenAI writes them, text that was none, whether the last call is whole)"""
        kept, self._kept = self._kept, ""
        found = self._calls(kept)
        if found:
            return [_written(name, json.dumps(arguments, ensure_ascii=False)) for name, arguments in found], "", True
        if self._tools.force and (cut := _CUT.match(kept)) and cut[1] in self._tools.names:
            return [_written(cut[1], cut[2])], "", False
        return [], kept, True

    def _calls(self, text: str) -> list[tuple[str, dict[str, Any]]]:
        """Objects one after the other, a list of them, either between <tool_call> and its end; empty where anything else is there."""
        values: list[Any] = []
        rest = text.replace(_OPEN, " ").replace(_CLOSE, " ").strip()
        while rest:
            try:
                value, end = _DECODER.raw_decode(rest)
            except (ValueError, RecursionError):
                return []
            values += value if isinstance(value, list) else [value]
            rest = rest[end:].lstrip(" \t\r\n,;")
        calls = []
        for value in values:
            name = value.get("name") if isinstance(value, dict) else None
            arguments = value.get("arguments", {}) if isinstance(value, dict) else None
            if name not in self._tools.names or not isinstance(arguments, dict):
                return []
            calls.append((str(name), arguments))
        return calls[:1] if self._tools.parallel is False else calls


def _written(name: str, arguments: str) -> dict[str, Any]:
    return {"id": f"call_{secrets.token_hex(12)}", "type": "function", "function": {"name": name, "arguments": arguments}}


def read_tools(given: dict[str, Any]) -> Tools | None:
    """The tools that may be called; None: none. Raises BadRequest."""
    value = given.get("tools")
    choice = given.get("tool_choice", "auto")
    if not value:
        if isinstance(choice, dict) or choice == "required":
            raise BadRequest('"tool_choice" asks for a call, and there are no "tools"')
        return None
    if not isinstance(value, list) or len(value) > MOST_TOOLS or len(json.dumps(value)) > TOOLS_BYTES:
        raise BadRequest(f'"tools" must be a list of up to {MOST_TOOLS} tools, {TOOLS_BYTES} bytes in all')
    functions = [_function(each, number) for number, each in enumerate(value)]
    parallel = given.get("parallel_tool_calls")
    tools = Tools(functions, force=False, parallel=parallel if isinstance(parallel, bool) else None)
    if choice == "none":
        return None
    if choice == "auto":
        return tools
    if choice == "required":
        return tools._replace(force=True)
    function = choice.get("function", choice) if isinstance(choice, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if name is None:
        raise BadRequest('"tool_choice" must be auto, none, required or {"type": "function", "function": {"name": ...}}')
    chosen = [each for each in functions if each["name"] == name]
    if not chosen:
        raise BadRequest(f'"tool_choice" names a function that is none of the tools; they are {", ".join(tools.names)}')
    return tools._replace(functions=chosen[:1], force=True)


def _function(value: Any, number: int) -> dict[str, Any]:
    function = value.get("function", value) if isinstance(value, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(function, dict) or not isinstance(name, str) or not name:
        raise BadRequest(
            f'"tools" {number} must be {{"type": "function", "function": {{name, description, parameters}}}}, or the inner object'
        )
    parameters = function.get("parameters")
    if parameters is None:
        parameters = {"type": "object", "properties": {}}
    if not isinstance(parameters, dict):
        raise BadRequest(f'"tools" {number}: parameters must be a JSON Schema')
    return {"name": name, "description": str(function.get("description") or ""), "parameters": parameters}
