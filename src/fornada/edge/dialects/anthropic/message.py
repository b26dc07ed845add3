"""A message as an object, and the events of one as it is made. Pure.

    message_start, ping
    content_block_start                                              a text, a tool_use or a thinking block begins
      content_block_delta: text_delta | input_json_delta | thinking_delta …
    content_block_stop
    message_delta                                                    why it ended, and counts
    message_stop

A message that is not streamed is what the same events come to.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from fornada.core.errors import ModelRaised
from fornada.edge.text_generation import Identity
from fornada.edge.text_named import named
from fornada.edge.text_steps import Step, Steps, call_piece

Object = dict[str, Any]
_TEXT, _TOOL, _THINKING = "text", "tool_use", "thinking"
_REASONS = {"length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}


class MessageEvents:
    """Implements edge.text_named.NamedEvents; `message` is the object that they come to."""

    def __init__(self, identity: Identity, *, thinking: bool) -> None:
        self.message: Object = {
            "id": f"msg_{identity.id.rpartition('-')[2]}",
            "type": "message",
            "role": "assistant",
            "model": identity.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage_of({}),
        }
        self._steps = Steps(identity)
        self._thinking = thinking
        self._key = identity.id.rpartition("-")[2]
        self._began = False
        self._block: Object | None = None
        """The block that is being made."""
        self._pieces: list[str] = []
        self._call = -1
        self._finish: str | None = None

    def item(self, data: bytes | memoryview) -> list[bytes]:
        events = self._begun()
        for step in self._steps.item(data):
            self._take(step, events)
        return events

    def end(self, usage: Mapping[str, Any] | None = None) -> list[bytes]:
        events, message = self._begun(), self.message
        for step in self._steps.end(usage):
            self._take(step, events)
        if self._block is None and not message["content"]:
            self._open({"type": _TEXT, "text": ""}, events)
        self._close(events)
        called = any(block["type"] == _TOOL for block in message["content"])
        message["stop_reason"] = _REASONS.get(self._finish or "", "tool_use" if called else "end_turn")
        delta = {name: message[name] for name in ("stop_reason", "stop_sequence")}
        events.append(_event("message_delta", delta=delta, usage=message["usage"]))
        events.append(_event("message_stop"))
        return events

    def failed(self, error: dict[str, Any]) -> bytes:
        return named("error", error)

    def _begun(self) -> list[bytes]:
        if self._began:
            return []
        self._began = True
        return [_event("message_start", message=self.message), _event("ping")]

    def _take(self, step: Step, events: list[bytes]) -> None:
        if step.thought and self._thinking:
            self._told(_THINKING, step.thought, events)
        if step.text:
            self._told(_TEXT, step.text, events)
        for piece in step.calls:
            self._called(piece, events)
        if step.finish is not None:
            self._finish = step.finish
        if step.usage is not None:
            self.message["usage"] = usage_of(step.usage)

    def _told(self, kind: str, text: str, events: list[bytes]) -> None:
        if self._block is None or self._block["type"] != kind:
            self._open({"type": _TEXT, "text": ""} if kind == _TEXT else {"type": _THINKING, "thinking": "", "signature": ""}, events)
        self._pieces.append(text)
        events.append(self._delta({"type": f"{kind}_delta", kind: text}))

    def _called(self, given: Any, events: list[bytes]) -> None:
        piece = call_piece(given)
        block = self._block
        if block is None or block["type"] != _TOOL or piece.number != self._call:
            if piece.number <= self._call:
                raise ModelRaised("the model's answer goes on with a tool call that had ended")
            self._call = piece.number
            name = piece.id or f"toolu_{self._key}_{piece.number}"
            self._open({"type": _TOOL, "id": name, "name": piece.name, "input": {}}, events)
        elif piece.name:
            block["name"] += piece.name
        if piece.arguments:
            self._pieces.append(piece.arguments)
            events.append(self._delta({"type": "input_json_delta", "partial_json": piece.arguments}))

    def _open(self, block: Object, events: list[bytes]) -> None:
        self._close(events)
        self._block = block
        self.message["content"].append(block)
        events.append(_event("content_block_start", index=self._index, content_block=block))

    def _close(self, events: list[bytes]) -> None:
        block, text = self._block, "".join(self._pieces)
        if block is None:
            return
        if block["type"] == _TOOL:
            block["input"] = _input(text)
        else:
            block[block["type"]] = text
        events.append(_event("content_block_stop", index=self._index))
        self._block, self._pieces = None, []

    @property
    def _index(self) -> int:
        return len(self.message["content"]) - 1

    def _delta(self, delta: Object) -> bytes:
        return _event("content_block_delta", index=self._index, delta=delta)


def usage_of(counts: Mapping[str, Any]) -> Object:
    """Token counts in the words of this API, where tokens from a cache count apart."""
    cached = (counts.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    return {
        "input_tokens": max(0, (counts.get("prompt_tokens") or 0) - cached),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": counts.get("completion_tokens") or 0,
    }


def _input(text: str) -> Object:
    """A call's arguments. Cut off at max_tokens they are none: what there is of them was streamed, and an object can't hold it."""
    try:
        value = msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _event(kind: str, **fields: Any) -> bytes:
    return named(kind, {"type": kind, **fields})
