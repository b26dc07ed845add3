"""llama.cpp's chunks as OpenAI's objects: one by one for a stream, put together for a whole answer."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from fornada_sdk.runner.engines.gguf_request import Asked, seed_of
from fornada_sdk.runner.engines.gguf_tools import CallReader

if TYPE_CHECKING:
    from fornada_sdk.api_context import Context
    from fornada_sdk.runner.engines.gguf_weights import Lent, Weights


class Piece(NamedTuple):
    """A step of one of the answers."""

    choice: int
    """Number of the answer."""
    delta: dict[str, Any]
    """Parts of a message (content, tool_calls, reasoning_content); of raw text `content` alone."""
    finish: str | None = None
    logprobs: list[dict[str, Any]] | None = None


class Answer:
    """What becomes of one request: iterate its pieces, then ask for `usage`."""

    def __init__(self, asked: Asked, model: str, weights: Weights, context: Context) -> None:
        self.asked = asked
        self.identity = {
            "id": f"{'chatcmpl' if asked.chat else 'cmpl'}-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": model,
        }
        self._weights = weights
        self._context = context
        self._prompt_tokens = 0
        self._cached_tokens = 0
        self._completion_tokens = 0

    @property
    def usage(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self._prompt_tokens,
            "completion_tokens": self._completion_tokens,
            "total_tokens": self._prompt_tokens + self._completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self._cached_tokens},
        }

    def __iter__(self) -> Iterator[Piece]:
        """Raises BadRequest."""
        with self._weights.lend(self.asked.lora, cancelled=lambda: self._context.cancelled) as lent:
            if lent is not None:
                yield from self._answers(lent)
        self._context.usage.update(input_tokens=self._prompt_tokens, output_tokens=self._completion_tokens)

    def _answers(self, lent: Lent) -> Iterator[Piece]:
        asked = self.asked
        # Answers of one request are made one after the other: each takes a slot, and the request was given one.
        for place, body in enumerate(asked.bodies):
            for number in range(asked.n):
                if self._context.cancelled:
                    return
                if asked.seed is not None:
                    body = {**body, "seed": seed_of(asked.seed, number)}
                index = place * asked.n + number
                if asked.echo:
                    yield Piece(index, {"content": body["prompt"]})
                yield from self._one(lent, index, body, first=number == 0)

    def _one(self, lent: Lent, index: int, body: dict[str, Any], *, first: bool) -> Iterator[Piece]:
        reader = CallReader(self.asked.tools) if self.asked.tools is not None else None
        for chunk in lent.library.chunks({**body, **lent.parameters}, chat=self.asked.chat, cancelled=lambda: self._context.cancelled):
            if chunk.get("usage"):
                self._count(chunk["usage"], first)
            for choice in chunk["choices"]:
                yield from self._pieces(index, choice, reader)

    def _pieces(self, index: int, choice: dict[str, Any], reader: CallReader | None) -> Iterator[Piece]:
        delta = dict(choice["delta"]) if self.asked.chat else {"content": choice.get("text")}
        finish = choice.get("finish_reason")
        delta.pop("role", None)
        logprobs = (choice.get("logprobs") or {}).get("content")
        if reader is not None:
            content = reader.feed(delta.get("content") or "")
            if finish is not None:
                calls, rest, entire = reader.end()
                if calls:
                    yield Piece(index, {"tool_calls": [{"index": number, **call} for number, call in enumerate(calls)]})
                    finish = "tool_calls" if entire else finish
                content += rest
            delta["content"] = content
        delta = {name: value for name, value in delta.items() if value}
        if delta or logprobs:
            yield Piece(index, delta, None, logprobs)
        if finish is not None:
            yield Piece(index, {}, finish)

    def _count(self, usage: dict[str, Any], first: bool) -> None:
        self._completion_tokens += usage["completion_tokens"]
        if first:  # the same prompt counts once, however many answers it gets
            self._prompt_tokens += usage["prompt_tokens"]
            self._cached_tokens += (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)


def streamed(answer: Answer) -> Iterator[dict[str, Any]]:
    """The items of a stream."""
    asked = answer.asked
    frame = {**answer.identity, "object": "chat.completion.chunk" if asked.chat else "text_completion"}
    begun: set[int] = set()
    for piece in answer:
        choice: dict[str, Any] = {"index": piece.choice, "finish_reason": piece.finish}
        if asked.chat:
            role = {} if piece.choice in begun else {"role": "assistant", "content": ""}
            choice["delta"] = {**role, **piece.delta}
            choice["logprobs"] = None if piece.logprobs is None else {"content": [_token(each) for each in piece.logprobs]}
        else:
            choice["text"] = piece.delta.get("content", "")
            choice["logprobs"] = None if piece.logprobs is None else _columns(piece.logprobs, asked.top_logprobs or 0, 0)
        begun.add(piece.choice)
        yield {**frame, "choices": [choice]}
    yield {**frame, "choices": [], "usage": answer.usage}


def collected(answer: Answer) -> dict[str, Any]:
    """The whole answer."""
    asked = answer.asked
    choices: dict[int, _Choice] = {}
    for piece in answer:
        choices.setdefault(piece.choice, _Choice()).add(piece)
    shown = [
        choices[index].message(index) if asked.chat else choices[index].text(index, asked.top_logprobs or 0) for index in sorted(choices)
    ]
    kind = "chat.completion" if asked.chat else "text_completion"
    return {**answer.identity, "object": kind, "choices": shown, "usage": answer.usage}


class _Choice:
    """One answer, put together."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}
        self._calls: dict[int, dict[str, Any]] = {}
        self._logprobs: list[dict[str, Any]] = []
        self._finish: str | None = None

    def add(self, piece: Piece) -> None:
        for name, value in piece.delta.items():
            if name == "tool_calls":
                for call in value:
                    self._add_call(call)
            elif isinstance(value, str):
                self._texts.setdefault(name, []).append(value)
        self._logprobs += piece.logprobs or []
        self._finish = piece.finish or self._finish

    def _add_call(self, part: dict[str, Any]) -> None:
        function = part.get("function") or {}
        call = self._calls.setdefault(part.get("index", 0), {"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
        call["id"] = part.get("id") or call["id"]
        call["function"]["name"] += function.get("name") or ""
        call["function"]["arguments"] += function.get("arguments") or ""

    def message(self, index: int) -> dict[str, Any]:
        texts = {name: "".join(parts) for name, parts in self._texts.items()}
        content = texts.pop("content", None if self._calls else "")
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None, **texts}
        if self._calls:
            message["tool_calls"] = [self._calls[number] for number in sorted(self._calls)]
        logprobs = {"content": [_token(each) for each in self._logprobs]} if self._logprobs else None
        return {"index": index, "message": message, "finish_reason": self._finish or "stop", "logprobs": logprobs}

    def text(self, index: int, top: int) -> dict[str, Any]:
        logprobs = _columns(self._logprobs, top, 0) if self._logprobs else None
        return {
            "index": index,
            "text": "".join(self._texts.get("content", [])),
            "finish_reason": self._finish or "stop",
            "logprobs": logprobs,
        }


def _token(given: dict[str, Any]) -> dict[str, Any]:
    """OpenAI's form: llama.cpp adds the token's number."""
    shown = {"token": given["token"], "logprob": given["logprob"], "bytes": given.get("bytes")}
    if "top_logprobs" in given:
        shown["top_logprobs"] = [_token(each) for each in given["top_logprobs"]]
    return shown


def _columns(tokens: list[dict[str, Any]], top: int, offset: int) -> dict[str, Any]:
    """The older form, of raw text: a list for each property."""
    offsets = []
    for each in tokens:
        offsets.append(offset)
        offset += len(each["token"])
    best = [{other["token"]: other["logprob"] for other in each.get("top_logprobs", [])[:top]} for each in tokens]
    return {
        "tokens": [each["token"] for each in tokens],
        "token_logprobs": [each["logprob"] for each in tokens],
        "top_logprobs": best,
        "text_offset": offsets,
    }
