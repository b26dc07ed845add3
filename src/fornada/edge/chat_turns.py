"""A conversation of another API as the messages of a chat, which every runner knows. Pure.

Texts stay texts, so that models need to know one form alone; only a message with a picture has parts. Consecutive calls of tools are one
message, as the model made them.
"""

from collections.abc import Sequence
from typing import Any

Message = dict[str, Any]
Part = dict[str, Any]


def text_part(text: str) -> Part:
    return {"type": "text", "text": text}


def image_part(url: str, detail: Any = None) -> Part:
    return {"type": "image_url", "image_url": {"url": url, **({"detail": detail} if isinstance(detail, str) else {})}}


def content_of(parts: Sequence[Part]) -> str | list[Part]:
    """A message's content: a text where all parts are."""
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return list(parts)


class Turns:
    """Messages in the order in which they are told."""

    def __init__(self, earlier: Sequence[Message] = ()) -> None:
        self.messages: list[Message] = list(earlier)
        self._calling: Message | None = None
        """The message that calls are added to, where it is one of ours: an earlier request's stays as it is."""

    def say(self, role: str, parts: Sequence[Part]) -> None:
        self.messages.append({"role": role, "content": content_of(parts)})

    def call(self, id: str, name: str, arguments: str) -> None:
        """The assistant calls a tool, perhaps beside what it says."""
        last = self.messages[-1] if self.messages else None
        if last is None or last["role"] != "assistant":
            last = {"role": "assistant", "content": ""}
            self.messages.append(last)
        if last is not self._calling:
            last = self.messages[-1] = self._calling = {**last, "tool_calls": list(last.get("tool_calls", ()))}
        last["tool_calls"].append({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})

    def result(self, call_id: str, parts: Sequence[Part]) -> None:
        self.messages.append({"role": "tool", "tool_call_id": call_id, "content": content_of(parts)})

    def told(self, instructions: str) -> list[Message]:
        """All of them behind `instructions`: one system message, since many templates take but one, and that first."""
        if not instructions:
            return self.messages
        first = self.messages[0] if self.messages else None
        if first is not None and first["role"] == "system" and isinstance(first["content"], str):
            return [{"role": "system", "content": f"{instructions}\n\n{first['content']}"}, *self.messages[1:]]
        return [{"role": "system", "content": instructions}, *self.messages]
