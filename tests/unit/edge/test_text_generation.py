"""Between OpenAI's objects and Workers AI's results: what every client may rely on."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fornada.core.errors import JsonModeUnmet, ModelRaised
from fornada.edge.json_mode import JsonMode, json_mode
from fornada.edge.text_generation import (
    ChatStream,
    Identity,
    NativeStream,
    TextStream,
    chat_completion,
    native_result,
    text_completion,
    usage_of,
)

ME = Identity("chatcmpl-1f2e", 1700000000, "@cf/meta/llama-3.2-1b-instruct")
USAGE = {"prompt_tokens": 26, "completion_tokens": 55, "total_tokens": 81}
TOLD = {**USAGE, "prompt_tokens_details": {"cached_tokens": 3}}
CALL = {"id": "call_9", "type": "function", "function": {"name": "getWeather", "arguments": '{"latitude":"51.5"}'}}
OBJECT = JsonMode({"type": "object"})
NATIVE_CALL = {"name": "getWeather", "arguments": {"latitude": "51.5"}}


def chat(content: Any, *, finish: str = "stop", calls: list[Any] | None = None, **more: Any) -> bytes:
    message = {"role": "assistant", "content": content, "refusal": None} | ({"tool_calls": calls} if calls else {})
    choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
    return dump({"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": TOLD, **more})


def chunk(delta: dict[str, Any], *, finish: str | None = None, index: int = 0, **more: Any) -> bytes:
    choice = {"index": index, "delta": delta, "finish_reason": finish, "logprobs": None}
    return dump({"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **more})


def usage_chunk() -> bytes:
    return dump({"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [], "usage": USAGE})


def text_chunk(text: str, *, finish: str | None = None) -> bytes:
    return dump({"object": "text_completion", "choices": [{"index": 0, "text": text, "finish_reason": finish, "logprobs": None}]})


def dump(value: Any) -> bytes:
    return json.dumps(value).encode()


def events(stream: NativeStream | ChatStream, *items: bytes, **end: Any) -> list[Any]:
    sent = [event for item in items for event in stream.item(item)]
    return [json.loads(event) for event in [*sent, *stream.end(**end)]]


# ---- ai/run, whole -------------------------------------------------------------------------------------------------------------


def test_a_chat_is_a_response_with_usage() -> None:
    assert json.loads(native_result(chat("Paris."))) == {
        "response": "Paris.",
        "usage": TOLD,
    }


def test_raw_text_is_a_response_too() -> None:
    body = dump({"object": "text_completion", "choices": [{"index": 0, "text": " Paris", "finish_reason": "length"}], "usage": USAGE})
    assert json.loads(native_result(body)) == {"response": " Paris", "usage": USAGE}


def test_calls_have_arguments_as_an_object_and_a_response_that_is_a_string() -> None:
    result = json.loads(native_result(chat(None, finish="tool_calls", calls=[CALL])))
    assert result == {"response": "", "tool_calls": [NATIVE_CALL], "usage": TOLD}
    cut = {**CALL, "function": {"name": "getWeather", "arguments": '{"lat'}}
    assert json.loads(native_result(chat(None, calls=[cut])))["tool_calls"] == [{"name": "getWeather", "arguments": '{"lat'}]


def test_no_calls_are_no_field() -> None:
    assert "tool_calls" not in json.loads(native_result(chat("a", tool_calls=[])))


def test_json_mode_answers_the_value() -> None:
    assert json.loads(native_result(chat('{"name": "India"}'), json_mode=OBJECT))["response"] == {"name": "India"}
    assert json.loads(native_result(chat('{"name": "India"}')))["response"] == '{"name": "India"}'
    assert json.loads(native_result(chat(None, calls=[CALL]), json_mode=OBJECT))["response"] == ""


@pytest.mark.parametrize(("finish", "why"), [("length", "max_tokens"), ("stop", "something else")])
def test_text_that_is_no_json_in_json_mode_is_its_own_error(finish: str, why: str) -> None:
    with pytest.raises(JsonModeUnmet, match=why) as refused:
        native_result(chat('{"name": "Ind', finish=finish), json_mode=OBJECT)
    assert refused.value.code == 5024 and refused.value.message.startswith("JSON Mode couldn't be met")


@pytest.mark.parametrize(
    "body", [b'{"response": "x",  "extra": 1}', b'{"response": null}', b"[1,2]", b'{"object": "chat.completion"}', b"5"]
)
def test_a_models_own_answer_stays_as_it_is(body: bytes) -> None:
    assert native_result(memoryview(body)) == body


def test_a_text_alone_is_a_response() -> None:
    assert native_result(b'"hello"') == b'{"response":"hello"}'


@pytest.mark.parametrize(
    ("format", "wanted"),
    [
        ({"type": "json_object"}, True),
        ({"type": "json_schema", "json_schema": {}}, True),
        ({"type": "text"}, False),
        (None, False),
        (5, False),
    ],
)
def test_json_mode_is_asked_for_by_response_format(format: Any, wanted: bool) -> None:
    assert (json_mode({"response_format": format}) is not None) is wanted
    assert json_mode({"guided_json": {"type": "object"}}) and not json_mode({})


SCHEMA = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}


@pytest.mark.parametrize(
    "given",
    [
        {"response_format": {"type": "json_schema", "json_schema": SCHEMA}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA, "strict": True}}},
        {"response_format": {"type": "json_object", "schema": SCHEMA}},
        {"guided_json": SCHEMA},
    ],
)
def test_what_is_json_and_not_what_the_schema_says_is_the_same_error(given: dict[str, Any]) -> None:
    mode = json_mode(given)
    assert json.loads(native_result(chat('{"age": 5}'), json_mode=mode))["response"] == {"age": 5}
    for answer in (chat('{"age": "five"}'), b'{"response": {"age": "five"}}', chat("[5]")):
        with pytest.raises(JsonModeUnmet, match="schema says"):
            native_result(answer, json_mode=mode)


def test_a_schema_that_can_t_be_applied_here_is_the_engine_s_business() -> None:
    mode = json_mode({"guided_json": {"type": "nonsense"}})
    assert json.loads(native_result(chat("5"), json_mode=mode))["response"] == 5


# ---- ai/run, streamed ----------------------------------------------------------------------------------------------------------


def test_chunks_become_responses_that_end_with_usage() -> None:
    items = [chunk({"role": "assistant", "content": "Hel"}), chunk({"content": "lo"}), chunk({}, finish="stop"), usage_chunk()]
    assert events(NativeStream(), *items) == [{"response": "Hel"}, {"response": "lo"}, {"response": ""}, {"response": "", "usage": USAGE}]


def test_an_end_that_is_no_stop_is_told() -> None:
    assert events(NativeStream(), chunk({"content": "a"}, finish="length")) == [
        {"response": "a"},
        {"response": "", "finish_reason": "length"},
    ]


def test_raw_chunks_become_responses() -> None:
    assert events(NativeStream(), text_chunk("a"), text_chunk("", finish="stop")) == [{"response": "a"}, {"response": ""}]


def test_calls_come_whole_in_one_event_before_their_end() -> None:
    pieces = [
        {"tool_calls": [{"index": 0, "id": "c0", "type": "function", "function": {"name": "f", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"a"'}}]},
        {"tool_calls": [{"index": 1, "id": "c1", "function": {"name": "g", "arguments": "{}"}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]},
    ]
    found = events(NativeStream(), *(chunk(piece) for piece in pieces), chunk({}, finish="tool_calls"), usage_chunk())
    calls = [
        {"id": "c0", "type": "function", "index": 0, "function": {"name": "f", "arguments": '{"a":1}'}, "name": "f", "arguments": {"a": 1}},
        {"id": "c1", "type": "function", "index": 1, "function": {"name": "g", "arguments": "{}"}, "name": "g", "arguments": {}},
    ]
    assert found == [
        {"response": "", "tool_calls": calls},
        {"response": "", "finish_reason": "tool_calls"},
        {"response": "", "usage": USAGE},
    ]


def test_a_call_that_was_cut_off_is_told_as_the_text_that_there_is_of_it() -> None:
    piece = {"index": 0, "id": "c0", "type": "function", "function": {"name": "f", "arguments": '{"a'}}
    found = events(NativeStream(), chunk({"tool_calls": [piece]}), chunk({}, finish="length"))
    assert found[0] == {"response": "", "tool_calls": [piece]}


def test_only_the_first_of_several_answers_is_told() -> None:
    assert events(NativeStream(), chunk({"content": "b"}, index=1), chunk({"content": "a"})) == [{"response": "a"}]


def test_a_models_own_items_are_mended_only_where_clients_would_stumble() -> None:
    untouched = b'{"response":"a",  "p":"xyz"}'
    assert NativeStream().item(untouched) == [untouched]
    found = events(
        NativeStream(),
        b'"b"',
        b'{"response":null,"tool_calls":[]}',
        b'{"tool_calls":[{"name":"f","arguments":{}}]}',
        b'{"usage":{"prompt_tokens":1}}',
        b'{"step":1}',
        b"7",
    )
    assert found == [
        {"response": "b"},
        {"response": ""},
        {"response": "", "tool_calls": [{"name": "f", "arguments": {}}]},
        {"response": "", "usage": {"prompt_tokens": 1}},
        {"step": 1},
        7,
    ]


def test_usage_may_come_with_the_end_alone() -> None:
    found = events(NativeStream(), b'{"response":"a"}', usage={"input_tokens": 2, "output_tokens": 3})
    assert found[-1] == {"response": "", "usage": {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}}


DELTAS = st.fixed_dictionaries(
    {},
    optional={
        "content": st.none() | st.text(max_size=5),
        "tool_calls": st.lists(
            st.fixed_dictionaries({"index": st.integers(0, 2)}, optional={"id": st.none() | st.text(max_size=3)}), max_size=2
        ),
    },
)


@given(st.lists(st.tuples(DELTAS, st.sampled_from([None, None, "stop", "length", "tool_calls"])), max_size=6))
def test_whatever_comes_response_is_a_string_and_calls_are_never_empty(chunks: list[tuple[dict[str, Any], str | None]]) -> None:
    found = events(NativeStream(), *(chunk(delta, finish=finish) for delta, finish in chunks), usage_chunk())
    assert all(isinstance(event["response"], str) and event.get("tool_calls", True) for event in found)
    assert "".join(event["response"] for event in found) == "".join(delta.get("content") or "" for delta, _ in chunks)
    assert found[-1] == {"response": "", "usage": USAGE}


# ---- OpenAI, whole -------------------------------------------------------------------------------------------------------------


def test_a_chat_goes_through_under_the_name_that_was_asked_for() -> None:
    given = json.loads(chat("Paris.", calls=[CALL], service_tier="x"))
    assert json.loads(chat_completion(chat("Paris.", calls=[CALL], service_tier="x"), ME)) == {**given, "model": ME.model}


def test_a_native_answer_becomes_a_chat() -> None:
    answer = json.loads(chat_completion(dump({"response": "Hi", "usage": USAGE}), ME))
    assert answer == {
        "id": ME.id,
        "object": "chat.completion",
        "created": ME.created,
        "model": ME.model,
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "Hi", "refusal": None}, "finish_reason": "stop", "logprobs": None}
        ],
        "usage": USAGE,
    }


@pytest.mark.parametrize(
    ("body", "content"),
    [
        (b'"plain"', "plain"),
        (b'{"response":{"name":"India"}}', '{"name":"India"}'),
        (b'{"response":null}', ""),
        (b'{"label":"cat"}', '{"label":"cat"}'),
        (b"[1]", "[1]"),
        (dump({"object": "text_completion", "choices": [{"index": 0, "text": "raw"}]}), "raw"),
    ],
)
def test_any_answer_becomes_a_chat(body: bytes, content: str) -> None:
    answer = json.loads(chat_completion(body, ME, usage={"input_tokens": 4, "output_tokens": 2}))
    assert answer["choices"][0]["message"]["content"] == content
    assert answer["usage"] == {"prompt_tokens": 4, "completion_tokens": 2, "total_tokens": 6}


def test_native_calls_become_openais_with_ids_that_differ() -> None:
    answer = json.loads(chat_completion(dump({"response": "", "tool_calls": [NATIVE_CALL, NATIVE_CALL, CALL]}), ME))
    (choice,) = answer["choices"]
    calls = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] is None
    assert [call["id"] for call in calls] == ["call_1f2e_0", "call_1f2e_1", "call_9"]
    assert all(call["type"] == "function" and call["function"] == CALL["function"] for call in calls)


def test_completions_are_text_whatever_the_model_answers() -> None:
    raw = {"id": "y", "object": "text_completion", "created": 2, "model": "m", "choices": [{"index": 0, "text": "a"}], "usage": USAGE}
    assert json.loads(text_completion(dump(raw), ME)) == {**raw, "model": ME.model}
    for body in (chat("hello"), b'{"response":"hello"}', b'"hello"'):
        answer = json.loads(text_completion(body, ME))
        assert answer["object"] == "text_completion" and answer["id"] == ME.id
        assert answer["choices"] == [{"index": 0, "text": "hello", "finish_reason": "stop", "logprobs": None}]


def test_counts_that_are_none_are_zero() -> None:
    assert usage_of({"input_tokens": "many", "output_tokens": True}) == {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


# ---- OpenAI, streamed ----------------------------------------------------------------------------------------------------------


def test_chunks_go_through_and_usage_only_if_it_was_asked_for() -> None:
    items = [chunk({"role": "assistant", "content": "Hel"}), chunk({"content": "lo"}), chunk({}, finish="stop"), usage_chunk()]
    found = events(ChatStream(ME), *items)
    assert [event["choices"][0]["delta"] for event in found] == [{"role": "assistant", "content": "Hel"}, {"content": "lo"}, {}]
    assert found[-1]["choices"][0]["finish_reason"] == "stop"
    assert all(event["model"] == ME.model and event["id"] == ME.id and event["object"] == "chat.completion.chunk" for event in found)
    with_usage = events(ChatStream(ME, include_usage=True), *items)
    assert with_usage[:-1] == found and with_usage[-1]["choices"] == [] and with_usage[-1]["usage"] == USAGE


def test_native_items_become_chunks_with_a_beginning_and_an_end() -> None:
    found = events(ChatStream(ME, include_usage=True), b'{"response":"Hel"}', b'"lo"', b'{"response":"","usage":{"prompt_tokens":1}}')
    assert [event["choices"][0]["delta"] for event in found[:-1]] == [{"role": "assistant", "content": "Hel"}, {"content": "lo"}, {}]
    assert found[-2]["choices"][0]["finish_reason"] == "stop"
    assert found[-1]["usage"] == {"prompt_tokens": 1}


def test_native_calls_in_a_stream_have_their_numbers() -> None:
    calls = dump({"tool_calls": [NATIVE_CALL, CALL]})
    found = events(ChatStream(ME), calls, dump({"tool_calls": [NATIVE_CALL]}))
    made = [call for event in found for call in event["choices"][0]["delta"].get("tool_calls", [])]
    assert [(call["index"], call["id"]) for call in made] == [(0, "call_1f2e_0"), (1, "call_9"), (2, "call_1f2e_2")]
    assert found[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_each_answer_of_several_begins_and_ends_once() -> None:
    found = events(ChatStream(ME), chunk({"content": "a"}), chunk({"content": "b"}, index=1), chunk({}, finish="length", index=1))
    assert [(event["choices"][0]["index"], event["choices"][0]["finish_reason"]) for event in found] == [
        (0, None),
        (1, None),
        (1, "length"),
        (0, "stop"),
    ]
    assert [event["choices"][0]["delta"].get("role") for event in found[:2]] == ["assistant", "assistant"]


def test_a_stream_without_items_still_ends() -> None:
    (event,) = events(ChatStream(ME))
    assert event["choices"][0] == {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": "stop", "logprobs": None}


@pytest.mark.parametrize("item", [b'{"response":"a"}', b'"a"', chunk({"content": "a"}), text_chunk("a")])
def test_text_streams_are_text_whatever_the_model_yields(item: bytes) -> None:
    found = events(TextStream(ME, include_usage=True), item, usage={"input_tokens": 1, "output_tokens": 1})
    assert [event["object"] for event in found] == ["text_completion"] * 3
    assert found[0]["choices"] == [{"index": 0, "text": "a", "finish_reason": None, "logprobs": None}]
    assert found[1]["choices"][0] == {"index": 0, "text": "", "finish_reason": "stop", "logprobs": None}
    assert found[2]["usage"] == {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}


def test_items_of_any_kind_become_text() -> None:
    found = events(ChatStream(ME), b'{"label":"cat"}', b"[1]", b'{"response":{"a":1}}')
    assert [event["choices"][0]["delta"].get("content") for event in found[:3]] == ['{"label":"cat"}', "[1]", '{"a":1}']


@pytest.mark.parametrize("body", [b"[" * 100_000 + b"]" * 100_000, b'{"response":"\\ud800"}'])
def test_what_no_reader_takes_passes_ai_run_and_is_an_error_elsewhere(body: bytes) -> None:
    assert native_result(body) == body and NativeStream().item(body) == [body]
    for convert in (lambda: chat_completion(body, ME), lambda: text_completion(body, ME), lambda: ChatStream(ME).item(body)):
        with pytest.raises(ModelRaised):
            convert()
