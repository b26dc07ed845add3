"""A stream of generated text as one answer: for callers that asked for no stream of a model that always makes one.

Takes the items that `text_generation` knows (OpenAI's chunks, {"response": …}, texts, any JSON) and makes a `chat.completion`, which
`native_result`, `chat_completion` and `text_completion` then turn into the caller's form.
"""

from typing import Any

import msgspec

from fornada.edge.text_generation import CHAT, CallPieces, Identity, decoded, is_openai, openai_calls, text_of


class Gathered:
    """Feed it the items, then ask for the body."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._choices: dict[int, _Choice] = {}
        self._usage: dict[str, Any] | None = None

    def item(self, data: bytes | memoryview) -> None:
        """Raises ModelRaised for an item that no JSON reader takes."""
        value = decoded(data)
        if isinstance(value, dict) and isinstance(value.get("usage"), dict):
            self._usage = value["usage"]
        if is_openai(value):
            for choice in value["choices"]:
                self._choice(choice.get("index", 0)).add(choice)
        else:
            self._choice(0).add_own(value, self._identity)

    def body(self) -> bytes:
        """A `chat.completion`."""
        identity = self._identity
        choices = self._choices or {0: _Choice()}
        frame = {"id": identity.id, "object": CHAT, "created": identity.created, "model": identity.model}
        found: dict[str, Any] = {**frame, "choices": [choices[index].message(index) for index in sorted(choices)]}
        if self._usage is not None:
            found["usage"] = self._usage
        return msgspec.json.encode(found)

    def _choice(self, index: int) -> "_Choice":
        found = self._choices.get(index)
        if found is None:
            found = self._choices[index] = _Choice()
        return found


class _Choice:
    """One of the answers."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._thoughts: list[str] = []
        self._calls = CallPieces()
        self._logprobs: list[Any] = []
        self._finish: str | None = None
        self._own_calls = 0

    def add(self, choice: dict[str, Any]) -> None:
        delta = choice.get("delta") or choice.get("message") or {"content": choice.get("text")}
        if delta.get("content"):
            self._text.append(str(delta["content"]))
        if delta.get("reasoning_content"):
            self._thoughts.append(str(delta["reasoning_content"]))
        self._calls.add(delta.get("tool_calls") or [])
        logprobs = choice.get("logprobs")
        if isinstance(logprobs, dict) and isinstance(logprobs.get("content"), list):
            self._logprobs += logprobs["content"]
        self._finish = choice.get("finish_reason") or self._finish

    def add_own(self, value: Any, identity: Identity) -> None:
        """An item of a model that answers as Workers AI does, or in a way of its own."""
        if not isinstance(value, dict):
            self._text.append(value if isinstance(value, str) else text_of(value))
            return
        known = value.keys() & {"response", "tool_calls", "usage", "finish_reason"}
        text = value.get("response") if known else value
        if text:
            self._text.append(text if isinstance(text, str) else text_of(text))
        calls = openai_calls(value.get("tool_calls") or [], identity, self._own_calls)
        self._calls.add([{"index": self._own_calls + number, **call} for number, call in enumerate(calls)])
        self._own_calls += len(calls)
        self._finish = value.get("finish_reason") or self._finish

    def message(self, index: int) -> dict[str, Any]:
        calls = self._calls.take()
        text = "".join(self._text)
        message: dict[str, Any] = {"role": "assistant", "content": text if text or not calls else None, "refusal": None}
        if self._thoughts:
            message["reasoning_content"] = "".join(self._thoughts)
        if calls:
            message["tool_calls"] = [{name: value for name, value in call.items() if name != "index"} for call in calls]
        finish = self._finish or ("tool_calls" if calls else "stop")
        logprobs = {"content": self._logprobs} if self._logprobs else None
        return {"index": index, "message": message, "finish_reason": finish, "logprobs": logprobs}
