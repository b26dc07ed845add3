"""A response as an object, and the events of one as it is made. Pure.

    response.created, response.in_progress
    response.output_item.added                                    a message, a function_call or a reasoning item begins
      response.content_part.added                                 (not for calls)
      response.output_text.delta | reasoning_text.delta | function_call_arguments.delta …
      response.output_text.done  | reasoning_text.done  | function_call_arguments.done
      response.content_part.done                                  (not for calls)
    response.output_item.done
    response.completed | response.incomplete | response.failed

One item after the other: what the model says in turns of text, calls and thoughts becomes as many items. A response that is not
streamed is what the same events come to.
"""

from collections.abc import Callable, Mapping
from typing import Any

from fornada.core.errors import ModelRaised
from fornada.edge.text_generation import Identity
from fornada.edge.text_named import named
from fornada.edge.text_steps import Step, Steps, call_piece

Object = dict[str, Any]
_MESSAGE, _CALL, _REASONING = "message", "function_call", "reasoning"


def frame_of(given: Mapping[str, Any], *, id: str, created: int, store: bool) -> Object:
    """A response before the model has said anything: what it repeats of the request."""
    text = given.get("text") or {}
    return {
        "id": id,
        "object": "response",
        "created_at": created,
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": given.get("instructions"),
        "max_output_tokens": given.get("max_output_tokens"),
        "max_tool_calls": given.get("max_tool_calls"),
        "metadata": given.get("metadata") or {},
        "model": given["model"],
        "output": [],
        "parallel_tool_calls": given.get("parallel_tool_calls") is not False,
        "previous_response_id": given.get("previous_response_id") or None,
        "reasoning": {"effort": None, "summary": None, **(given.get("reasoning") or {})},
        "service_tier": "default",
        "store": store,
        "temperature": given.get("temperature"),
        "text": {**text, "format": text.get("format") or {"type": "text"}},
        "tool_choice": given.get("tool_choice") or "auto",
        "tools": given.get("tools") or [],
        "top_logprobs": given.get("top_logprobs") or 0,
        "top_p": given.get("top_p"),
        "truncation": given.get("truncation") or "disabled",
        "usage": None,
        "user": given.get("user"),
    }


class ResponseEvents:
    """Implements edge.text_named.NamedEvents; `response` is the object that they come to."""

    def __init__(self, frame: Object, identity: Identity, *, kept: Callable[[Object], None]) -> None:
        """`kept` is told of the response once it is complete, before the caller is."""
        self.response: Object = dict(frame, output=[])
        self._steps = Steps(identity)
        self._kept = kept
        self._key = identity.id.rpartition("-")[2]
        self._number = 0
        self._item: Object | None = None
        """The item that is being made."""
        self._pieces: list[str] = []
        """Its text, or its arguments."""
        self._logprobs: list[Any] = []
        self._call = -1
        """Index of the newest call."""
        self._finish: str | None = None

    def item(self, data: bytes | memoryview) -> list[bytes]:
        events = self._begun()
        for step in self._steps.item(data):
            self._take(step, events)
        return events

    def end(self, usage: Mapping[str, Any] | None = None) -> list[bytes]:
        events = self._begun()
        for step in self._steps.end(usage):
            self._take(step, events)
        if self._item is None and not self.response["output"]:
            self._open(_MESSAGE, events)
        cut = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(self._finish or "")
        self._close(events, "incomplete" if cut else "completed")
        self.response["status"] = "incomplete" if cut else "completed"
        self.response["incomplete_details"] = {"reason": cut} if cut else None
        self._kept(self.response)
        events.append(self._event(f"response.{self.response['status']}", response=self.response))
        return events

    def failed(self, error: dict[str, Any]) -> bytes:
        """`response.failed` for those who follow the events, and the `error` that every stream of the node fails with."""
        told = {"code": "server_error", "message": error["error"]["message"]}
        failed = self._event("response.failed", response={**self.response, "status": "failed", "error": told})
        plain = {name: error["error"][name] for name in ("code", "message", "param")}
        return failed + self._event("error", **{**error, **plain})

    def _begun(self) -> list[bytes]:
        if self._number:
            return []
        return [self._event(f"response.{name}", response=self.response) for name in ("created", "in_progress")]

    def _take(self, step: Step, events: list[bytes]) -> None:
        if step.thought:
            self._told(_REASONING, step.thought, "reasoning_text", events)
        if step.text:
            self._logprobs += step.logprobs
            self._told(_MESSAGE, step.text, "output_text", events, logprobs=step.logprobs)
        for piece in step.calls:
            self._called(piece, events)
        if step.finish is not None:
            self._finish = step.finish
        if step.usage is not None:
            self.response["usage"] = usage_of(step.usage)

    def _told(self, kind: str, text: str, name: str, events: list[bytes], **more: Any) -> None:
        item = self._item
        if item is None or item["type"] != kind:
            item = self._open(kind, events)
        self._pieces.append(text)
        events.append(self._event(f"response.{name}.delta", **self._place(item), content_index=0, delta=text, **more))

    def _called(self, given: Any, events: list[bytes]) -> None:
        piece = call_piece(given)
        item = self._item
        if item is None or item["type"] != _CALL or piece.number != self._call:
            if piece.number <= self._call:
                raise ModelRaised("the model's answer goes on with a tool call that had ended")
            self._call = piece.number
            item = self._open(_CALL, events, call_id=piece.id or f"call_{self._key}_{piece.number}", name=piece.name)
        elif piece.name:
            item["name"] += piece.name
        if piece.arguments:
            self._pieces.append(piece.arguments)
            events.append(self._event("response.function_call_arguments.delta", **self._place(item), delta=piece.arguments))

    def _open(self, kind: str, events: list[bytes], **more: Any) -> Object:
        self._close(events, "completed")
        number = len(self.response["output"])
        prefix = {_MESSAGE: "msg", _CALL: "fc", _REASONING: "rs"}[kind]
        item: Object = {"id": f"{prefix}_{self._key}_{number}", "type": kind, "status": "in_progress", **more}
        if kind == _CALL:
            item["arguments"] = ""
        else:
            item.update({"role": "assistant", "content": []} if kind == _MESSAGE else {"summary": [], "content": []})
        self.response["output"].append(item)
        self._item = item
        events.append(self._event("response.output_item.added", output_index=number, item=item))
        if kind != _CALL:
            events.append(self._event("response.content_part.added", **self._place(item), content_index=0, part=_part(kind, "", [])))
        return item

    def _close(self, events: list[bytes], status: str) -> None:
        item, text = self._item, "".join(self._pieces)
        if item is None:
            return
        place, kind = self._place(item), item["type"]
        if kind == _CALL:
            item["arguments"] = text
            events.append(self._event("response.function_call_arguments.done", **place, name=item["name"], arguments=text))
        else:
            part = _part(kind, text, self._logprobs if kind == _MESSAGE else [])
            more = {"logprobs": part["logprobs"]} if kind == _MESSAGE else {}
            item["content"] = [part]
            events.append(self._event(f"response.{part['type']}.done", **place, content_index=0, text=text, **more))
            events.append(self._event("response.content_part.done", **place, content_index=0, part=part))
        item["status"] = status
        events.append(self._event("response.output_item.done", output_index=place["output_index"], item=item))
        self._item, self._pieces = None, []
        if kind == _MESSAGE:
            self._logprobs = []

    def _place(self, item: Object) -> Object:
        return {"item_id": item["id"], "output_index": len(self.response["output"]) - 1}

    def _event(self, kind: str, **fields: Any) -> bytes:
        number, self._number = self._number, self._number + 1
        return named(kind, {**fields, "type": kind, "sequence_number": number})


def usage_of(counts: Mapping[str, Any]) -> Object:
    """Token counts in the words of this API."""
    told, made = counts.get("prompt_tokens_details") or {}, counts.get("completion_tokens_details") or {}
    return {
        "input_tokens": counts.get("prompt_tokens") or 0,
        "input_tokens_details": {"cached_tokens": told.get("cached_tokens") or 0, "cache_write_tokens": 0},
        "output_tokens": counts.get("completion_tokens") or 0,
        "output_tokens_details": {"reasoning_tokens": made.get("reasoning_tokens") or 0},
        "total_tokens": counts.get("total_tokens") or 0,
    }


def _part(kind: str, text: str, logprobs: list[Any]) -> Object:
    if kind == _MESSAGE:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}
    return {"type": "reasoning_text", "text": text}
