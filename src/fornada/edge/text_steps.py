"""A generated text step by step, whatever the model's own form is: for APIs that tell it neither as chunks nor as {"response": …}. Pure.

the model's items, or its whole answer  →  ChatStream  →  Steps: text, thoughts, pieces of calls; at last why it ended, and counts
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from fornada.core.errors import ModelRaised
from fornada.edge.text_generation import ChatStream, Identity

_NOTHING: tuple[dict[str, Any], ...] = ()


class Step(NamedTuple):
    """What one of the model's items adds."""

    text: str
    thought: str
    calls: Sequence[dict[str, Any]]
    """Pieces of tool calls as OpenAI streams them: index, then id, name and arguments as far as they are there."""
    logprobs: Sequence[Any]
    """Of the text's tokens, where they were asked for."""
    finish: str | None
    """Why the answer ended: stop, length, tool_calls or content_filter."""
    usage: Mapping[str, Any] | None


class Steps:
    """Feed it the items. Only the first of several answers counts: the APIs that are told so have no more."""

    def __init__(self, identity: Identity) -> None:
        self._chunks = ChatStream(identity, include_usage=True)

    def item(self, data: bytes | memoryview) -> list[Step]:
        """Raises ModelRaised for what can't be read."""
        return [step for chunk in self._chunks.item(data) if (step := _step(chunk)) is not None]

    def end(self, usage: Mapping[str, Any] | None) -> list[Step]:
        """What no item said: that it ended, and counts. `usage`: the END's head's."""
        return [step for chunk in self._chunks.end(usage) if (step := _step(chunk)) is not None]


def _step(chunk: bytes) -> Step | None:
    value = msgspec.json.decode(chunk)
    if not value["choices"]:
        return Step("", "", _NOTHING, _NOTHING, None, value.get("usage"))
    choice = value["choices"][0]
    if choice["index"] != 0:
        return None
    delta = choice["delta"]
    text, thought = delta.get("content") or "", delta.get("reasoning_content") or delta.get("reasoning") or ""
    finish = choice["finish_reason"]
    if not isinstance(text, str) or not isinstance(thought, str) or not isinstance(finish, str | None):
        raise ModelRaised("the model's answer names OpenAI's object, and its text is none")
    logprobs = choice.get("logprobs")
    return Step(
        text, thought, delta.get("tool_calls") or _NOTHING, logprobs.get("content") or _NOTHING if logprobs else _NOTHING, finish, None
    )


class CallPiece(NamedTuple):
    """A piece of a tool call, checked."""

    number: int
    id: str
    name: str
    arguments: str


def call_piece(piece: Any) -> CallPiece:
    """Raises ModelRaised."""
    function = piece.get("function") or {}
    found = CallPiece(piece.get("index", 0), piece.get("id") or "", function.get("name") or "", function.get("arguments") or "")
    if not isinstance(found.number, int) or not all(isinstance(each, str) for each in found[1:]):
        raise ModelRaised("the model's answer has a tool call in a shape of its own")
    return found
