"""Text generation in its three forms, and the ways between them (WORKERS_AI.md, 5.3 and 7). Pure: bytes in, bytes out.

    from the runner                               ai/run                      /v1/chat/completions, /v1/completions
    -------------------------------------------------------------------------------------------------------------------
    chat.completion, text_completion      ->      native_result        |      chat_completion, text_completion
    {"response": …}, "text", any JSON     ->      native_result        |      chat_completion, text_completion
    chunks of either kind                 ->      NativeStream         |      ChatStream, TextStream
    {"response": "…"}, "text" as items    ->      NativeStream         |      ChatStream, TextStream

Engines that generate text answer with OpenAI's objects always; models with code of their own may also answer as Workers AI does. A
stream's converter takes each item and gives the data of the events to send for it, possibly none; `end` gives those that come after
the last item. `data: [DONE]` is the sink's business, and so are errors.

What `ai/run` promises, since real clients break otherwise: `response` is a string in every event, an event has `tool_calls` only
where there are some, a call's `arguments` are an object in a whole answer, a streamed call is told both ways, and the last
event before [DONE] has `usage`.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from fornada.core.errors import ModelRaised
from fornada.edge.json_mode import JsonMode

CHAT, CHAT_CHUNK, TEXT = "chat.completion", "chat.completion.chunk", "text_completion"
_NO_CALLS: list[dict[str, Any]] = []
_COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")
_DETAILS = ("prompt_tokens_details", "completion_tokens_details")


class Identity(NamedTuple):
    """What an OpenAI object says of itself."""

    id: str
    """Unique: ids of tool calls are made from it."""
    created: int
    """Seconds since 1970."""
    model: str
    """As the caller named it."""


def identity(kind: str, trace_id: str, created: float, model: str) -> Identity:
    """`kind`: chatcmpl or cmpl. `created`: seconds since 1970."""
    return Identity(f"{kind}-{trace_id.replace('-', '')}", int(created), model)


def usage_of(head: Mapping[str, Any]) -> dict[str, int]:
    """An AnswerHead's `usage` in OpenAI's names; zeros where the model counts nothing."""
    prompt, completion = _count(head.get("input_tokens")), _count(head.get("output_tokens"))
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


# ---- Workers AI: {"response": …} -----------------------------------------------------------------------------------------------


def native_result(body: bytes | memoryview, *, json_mode: JsonMode | None = None, usage: Mapping[str, Any] | None = None) -> bytes:
    """The `result` of ai/run. A model's own object stays as it is, but for what it left out: `usage` is the AnswerHead's.

    Raises JsonModeUnmet if `json_mode` and the text is something else.
    """
    try:
        value = decoded(body)
    except ModelRaised:
        return bytes(body)
    if isinstance(value, str):
        return _own_result({"response": value}, b"", json_mode, usage)
    choice = _first_choice(value)
    if choice is None:
        return _own_result(value, body, json_mode, usage)
    text, calls = _said(choice)
    result: dict[str, Any] = {"response": json_mode.value(text, choice.get("finish_reason")) if json_mode and not calls else text}
    if calls:
        result["tool_calls"] = [_native_call(call) for call in calls]
    if isinstance(value.get("usage"), dict):
        result["usage"] = _counts(value["usage"])
    elif usage:
        result["usage"] = usage_of(usage)
    return msgspec.json.encode(result)


def _own_result(value: Any, body: bytes | memoryview, json_mode: JsonMode | None, usage: Mapping[str, Any] | None) -> bytes:
    """A model's own object; `body` is its text where it has one."""
    if not isinstance(value, dict) or "response" not in value:
        return bytes(body)
    more: dict[str, Any] = {}
    if json_mode and not value.get("tool_calls"):
        said = value["response"]
        if isinstance(said, str):
            more["response"] = json_mode.value(said, value.get("finish_reason"))
        else:
            json_mode.checked(said)
    if usage and "usage" not in value:
        more["usage"] = usage_of(usage)
    return bytes(body) if body and not more else msgspec.json.encode({**value, **more})


class NativeStream:
    """The events of ai/run with "stream": true. Tool calls come whole, in one event."""

    def __init__(self) -> None:
        self._calls = CallPieces()
        self._usage: dict[str, Any] | None = None

    def item(self, data: bytes | memoryview) -> list[bytes]:
        try:
            value = decoded(data)
        except ModelRaised:
            return [bytes(data)]
        if isinstance(value, str):
            return [_event(response=value)]
        if not is_openai(value):
            return [self._own(value, bytes(data))]
        if isinstance(value.get("usage"), dict):
            self._usage = _counts(value["usage"])
        events = []
        for choice in value.get("choices") or []:
            if choice.get("index", 0) == 0:
                events += self._choice(choice)
        return events

    def end(self, usage: Mapping[str, Any] | None = None) -> list[bytes]:
        """`usage`: what the END's head says, where no item said it."""
        counts = self._usage or (usage_of(usage) if usage else None)
        return self._flushed() + ([_event(response="", usage=counts)] if counts is not None else [])

    def _choice(self, choice: dict[str, Any]) -> list[bytes]:
        delta = _delta(choice)
        self._calls.add(delta.get("tool_calls") or _NO_CALLS)
        events = [_event(response=delta["content"])] if delta.get("content") else []
        finish = choice.get("finish_reason")
        if finish == "stop":
            events += [*self._flushed(), _event(response="")]
        elif finish is not None:
            events += [*self._flushed(), _event(response="", finish_reason=finish)]
        return events

    def _flushed(self) -> list[bytes]:
        calls = [_both_ways(call) for call in self._calls.take()]
        return [_event(response="", tool_calls=calls)] if calls else []

    def _own(self, value: Any, data: bytes) -> bytes:
        """A model's own item, mended where clients would stumble."""
        if not isinstance(value, dict):
            return data
        mended = {name: each for name, each in value.items() if name != "tool_calls" or each}
        if isinstance(value.get("usage"), dict):
            self._usage = None
        if mended.get("response", "") is None or ("response" not in mended and mended.keys() & {"tool_calls", "usage", "finish_reason"}):
            mended["response"] = ""
        return data if mended == value else msgspec.json.encode(mended)


# ---- OpenAI: chat --------------------------------------------------------------------------------------------------------------


def chat_completion(
    body: bytes | memoryview, identity: Identity, *, usage: Mapping[str, Any] | None = None, json_mode: JsonMode | None = None
) -> bytes:
    """A `chat.completion`. `usage` is the AnswerHead's, for answers that hold none. Raises ModelRaised as ChatStream.item does, and
    JsonModeUnmet."""
    value = decoded(body)
    if _object(value) == CHAT:
        if json_mode:
            json_mode.check_completion(value)
        value["model"] = identity.model
        value.setdefault("usage", usage_of(usage or {}))
        return msgspec.json.encode(value)
    choices = []
    for index, choice in enumerate(_choices(value, identity)):
        text, calls = _said(choice)
        message: dict[str, Any] = {"role": "assistant", "content": text if text or not calls else None, "refusal": None}
        if calls:
            message["tool_calls"] = calls
        finish = choice.get("finish_reason") or ("tool_calls" if calls else "stop")
        choices.append({"index": index, "message": message, "finish_reason": finish, "logprobs": None})
    return _whole(CHAT, value, identity, choices, usage)


class ChatStream:
    """The events of a chat with "stream": true."""

    kind = CHAT_CHUNK

    def __init__(self, identity: Identity, *, include_usage: bool = False) -> None:
        """`include_usage`: stream_options' own word."""
        self._identity = identity
        self._include_usage = include_usage
        self._usage: dict[str, Any] | None = None
        self._begun: set[int] = set()
        self._finished: set[int] = set()
        self._calls = 0
        self._called = False

    def item(self, data: bytes | memoryview) -> list[bytes]:
        """Raises ModelRaised for an item that no JSON reader takes."""
        value = decoded(data)
        if isinstance(value, dict) and isinstance(value.get("usage"), dict):
            self._usage = value["usage"]
        if is_openai(value):
            return [self._chunk(choice) for choice in value.get("choices") or []]
        return self._own(value)

    def end(self, usage: Mapping[str, Any] | None = None) -> list[bytes]:
        """What every stream ends with, where the items didn't say it. `usage`: the END's head's."""
        events = [self._chunk(self._finish(index)) for index in sorted(self._begun - self._finished)]
        if not self._begun:
            events.append(self._chunk(self._finish(0)))
        if self._include_usage:
            counts = self._usage or usage_of(usage or {})
            events.append(msgspec.json.encode({**self._frame(), "choices": [], "usage": counts}))
        return events

    def _own(self, value: Any) -> list[bytes]:
        """An item of a model that answers as Workers AI does, or in a way of its own."""
        if not isinstance(value, dict):
            return [self._chunk({"index": 0, "delta": {"content": value if isinstance(value, str) else text_of(value)}})]
        events = []
        known = value.keys() & {"response", "tool_calls", "usage", "finish_reason"}
        text = value.get("response") if known else value
        if text:
            events.append(self._chunk({"index": 0, "delta": {"content": text if isinstance(text, str) else text_of(text)}}))
        for call in openai_calls(value.get("tool_calls") or _NO_CALLS, self._identity, self._calls):
            events.append(self._chunk({"index": 0, "delta": {"tool_calls": [{"index": self._calls, **call}]}}))
            self._calls += 1
            self._called = True
        if value.get("finish_reason"):
            events.append(self._chunk({"index": 0, "delta": {}, "finish_reason": value["finish_reason"]}))
        return events

    def _finish(self, index: int) -> dict[str, Any]:
        return {"index": index, "delta": {}, "finish_reason": "tool_calls" if self._called else "stop"}

    def _frame(self) -> dict[str, Any]:
        return {"id": self._identity.id, "object": self.kind, "created": self._identity.created, "model": self._identity.model}

    def _chunk(self, choice: dict[str, Any]) -> bytes:
        index = choice.get("index", 0)
        finish = choice.get("finish_reason")
        if finish is not None:
            self._finished.add(index)
        shown = self._shown(choice, index)
        self._begun.add(index)
        return msgspec.json.encode({**self._frame(), "choices": [shown]})

    def _shown(self, choice: dict[str, Any], index: int) -> dict[str, Any]:
        delta = _delta(choice)
        if index not in self._begun:
            delta = {"role": "assistant", "content": "", **delta}
        finish, logprobs = choice.get("finish_reason"), None if "text" in choice else choice.get("logprobs")
        return {"index": index, "delta": delta, "finish_reason": finish, "logprobs": logprobs}


# ---- OpenAI: text --------------------------------------------------------------------------------------------------------------


def text_completion(body: bytes | memoryview, identity: Identity, *, usage: Mapping[str, Any] | None = None) -> bytes:
    """A `text_completion`; all else as for `chat_completion`."""
    value = decoded(body)
    if _object(value) == TEXT:
        value["model"] = identity.model
        value.setdefault("usage", usage_of(usage or {}))
        return msgspec.json.encode(value)
    choices = [
        {"index": index, "text": _said(choice)[0], "finish_reason": choice.get("finish_reason") or "stop", "logprobs": None}
        for index, choice in enumerate(_choices(value, identity))
    ]
    return _whole(TEXT, value, identity, choices, usage)


class TextStream(ChatStream):
    """The events of a text completion with "stream": true."""

    kind = TEXT

    def _shown(self, choice: dict[str, Any], index: int) -> dict[str, Any]:
        text = _delta(choice).get("content")
        logprobs = choice.get("logprobs") if "text" in choice else None
        return {"index": index, "text": text or "", "finish_reason": choice.get("finish_reason"), "logprobs": logprobs}


# ---- in between ----------------------------------------------------------------------------------------------------------------


class CallPieces:
    """Tool calls put together from the pieces of a stream."""

    def __init__(self) -> None:
        self._found: dict[int, dict[str, Any]] = {}

    def add(self, pieces: list[dict[str, Any]]) -> None:
        for piece in pieces:
            index, function = piece.get("index", 0), piece.get("function") or {}
            empty = {"id": "", "type": "function", "index": index, "function": {"name": "", "arguments": ""}}
            call = self._found.setdefault(index, empty)
            call["id"] = piece.get("id") or call["id"]
            call["function"]["name"] += function.get("name") or ""
            call["function"]["arguments"] += function.get("arguments") or ""

    def take(self) -> list[dict[str, Any]]:
        found, self._found = self._found, {}
        return [found[index] for index in sorted(found)]


def decoded(data: bytes | memoryview) -> Any:
    """Raises ModelRaised: what a model makes can be nested without end, or hold half a surrogate pair."""
    try:
        return msgspec.json.decode(data)
    except RecursionError:
        raise ModelRaised("the model's answer is nested too deeply") from None
    except msgspec.DecodeError as error:
        raise ModelRaised(f"the model's answer can't be read: {error}") from None


def _object(value: Any) -> str:
    return str(value.get("object", "")) if isinstance(value, dict) else ""


def is_openai(value: Any) -> bool:
    return _object(value) in (CHAT, CHAT_CHUNK, TEXT) and isinstance(value.get("choices"), list)


def _first_choice(value: Any) -> dict[str, Any] | None:
    if not is_openai(value):
        return None
    choices = [choice for choice in value["choices"] if isinstance(choice, dict)]
    return choices[0] if choices else {}


def _choices(value: Any, identity: Identity) -> list[dict[str, Any]]:
    """The answers in any object, as choices of a chat."""
    if is_openai(value):
        return [choice for choice in value["choices"] if isinstance(choice, dict)]
    if not isinstance(value, dict):
        return [{"text": value if isinstance(value, str) else text_of(value)}]
    calls = openai_calls(value.get("tool_calls") or _NO_CALLS, identity, 0)
    response = value.get("response") if "response" in value or calls else value
    text = response if isinstance(response, str) else "" if response is None else text_of(response)
    return [{"message": {"content": text, "tool_calls": calls}, "finish_reason": value.get("finish_reason")}]


def _delta(choice: dict[str, Any]) -> dict[str, Any]:
    """What a choice adds to its message: all of it where the model answers a caller that wanted a stream with a whole."""
    delta = choice.get("delta")
    if isinstance(delta, dict):
        return delta
    message = choice.get("message")
    if not isinstance(message, dict):
        return {"content": choice.get("text") or ""}
    whole = {name: value for name, value in message.items() if value and name != "tool_calls"}
    if message.get("tool_calls"):
        whole["tool_calls"] = [{"index": number, **call} for number, call in enumerate(message["tool_calls"])]
    return whole


def _said(choice: dict[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    """(text, tool calls in OpenAI's form) of a choice of either kind."""
    message = choice.get("message") or {}
    text = message.get("content") if message else choice.get("text")
    return text if isinstance(text, str) else "", message.get("tool_calls") or _NO_CALLS


def openai_calls(calls: Any, identity: Identity, start: int) -> list[dict[str, Any]]:
    """Calls of either style in OpenAI's. Ids are unique since the answer's is."""
    found = []
    for number, call in enumerate(call for call in calls if isinstance(call, dict)):
        inner = call.get("function")
        function: dict[str, Any] = inner if isinstance(inner, dict) else call
        arguments = function.get("arguments")
        text = arguments if isinstance(arguments, str) else text_of({} if arguments is None else arguments)
        name = str(call.get("id") or f"call_{identity.id.rpartition('-')[2]}_{start + number}")
        found.append({"id": name, "type": "function", "function": {"name": str(function.get("name") or ""), "arguments": text}})
    return found


def _both_ways(call: dict[str, Any]) -> dict[str, Any]:
    """A streamed call as Workers AI tells it, and as it tells one in a whole answer: langchain-cloudflare reads streams so.
    A call that was cut off stays as it is: the client takes arguments for an object."""
    native = _native_call(call)
    return {**call, **native} if isinstance(native["arguments"], dict) else call


def _native_call(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function") or {}
    arguments = function.get("arguments")
    try:
        value = msgspec.json.decode(arguments) if isinstance(arguments, str) else arguments
    except msgspec.DecodeError:
        value = arguments  # cut off at max_tokens: what there is of it says more than nothing
    return {"name": function.get("name"), "arguments": {} if value is None else value}


def _whole(kind: str, value: Any, identity: Identity, choices: list[dict[str, Any]], usage: Mapping[str, Any] | None) -> bytes:
    own = value.get("usage") if isinstance(value, dict) else None
    counts = own if isinstance(own, dict) else usage_of(usage or {})
    frame = {"id": identity.id, "object": kind, "created": identity.created, "model": identity.model}
    return msgspec.json.encode({**frame, "choices": choices, "usage": counts})


def _counts(usage: Mapping[str, Any]) -> dict[str, Any]:
    """A model's own usage as ai/run tells it: with the share of the prompt that was known already."""
    details = {name: usage[name] for name in _DETAILS if isinstance(usage.get(name), dict)}
    return {**{name: _count(usage.get(name)) for name in _COUNTS}, **details}


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def text_of(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _event(**fields: Any) -> bytes:
    return msgspec.json.encode(fields)
