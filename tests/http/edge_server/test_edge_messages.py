"""Anthropic's messages, over a node that plays the runner."""

import json
from typing import Any

import pytest

from fornada.core.errors import Busy, RunnerDied
from tests.http.edge_server.conftest import Served
from tests.http.edge_server.test_edge_text import CALL, MODEL, OWN, SPOKEN, USAGE, chunk, completion
from tests.unit.edge.fakes import answer, items, refuse

PATH = "/v1/messages"
WEATHER = {"name": "weather", "description": "d", "input_schema": {"type": "object"}}
SAID: list[Any] = [{"role": "user", "content": "Hi"}]


@pytest.fixture(autouse=True)
def models(edge: Served) -> None:
    edge.catalog.add(MODEL, task="text-generation", aliases=["@cf/meta/llama"])
    edge.inference.behaviour = answer(completion())


def ask(edge: Served, path: str = PATH, **payload: Any):
    headers = {"x-api-key": "any", "anthropic-version": "2023-06-01"}
    return edge.fetch("POST", path, payload={"model": MODEL, "max_tokens": 9, "messages": SAID, **payload}, headers=headers)


def told(edge: Served) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(edge.inference.last.body)
    return value


def events(edge: Served, **payload: Any) -> list[dict[str, Any]]:
    found = []
    for block in ask(edge, stream=True, **payload).body.decode().split("\n\n")[:-1]:
        name, data = block.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


# ---- what goes in ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", ["/v1", "/client/v4/accounts/acc/ai/v1"])
def test_a_conversation_becomes_a_chat_and_the_answer_a_message(edge: Served, base: str):
    given = {"system": "Be brief.", "stop_sequences": ["END"], "temperature": 0, "top_k": 5, "metadata": {"user_id": "u"}, "seed": 1}
    body = ask(edge, f"{base}/messages", model="@cf/meta/llama", **given).json()
    assert told(edge) == {
        "messages": [{"role": "system", "content": "Be brief."}, *SAID],
        "max_tokens": 9,
        "stop": ["END"],
        "temperature": 0,
        "top_k": 5,
        "seed": 1,
    }
    assert body["id"].startswith("msg_")
    assert {name: body[name] for name in body if name not in ("id", "usage")} == {
        "type": "message",
        "role": "assistant",
        "model": "@cf/meta/llama",
        "content": [{"type": "text", "text": "Hello"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
    }
    assert (body["usage"]["input_tokens"], body["usage"]["output_tokens"]) == (3, 2)
    assert edge.inference.last.request.account == ("local" if base == "/v1" else "acc")


def test_blocks_become_messages_calls_and_results(edge: Served):
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
    conversation = [
        {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "b"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": ""},
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Rome"}},
                {"type": "tool_use", "id": "t2", "name": "weather", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "sunny"},
                {"type": "tool_result", "tool_use_id": "t2", "content": [{"type": "text", "text": "no"}], "is_error": True},
                {"type": "text", "text": "and?"},
            ],
        },
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t3", "name": "weather", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t3"}]},
        {"role": "user", "content": [picture, {"type": "text", "text": "see"}]},
    ]
    assert ask(edge, messages=conversation, system=[{"type": "text", "text": "x"}, {"type": "text", "text": "y"}]).status == 200

    def call(id: str, arguments: str) -> dict[str, Any]:
        return {"id": id, "type": "function", "function": {"name": "weather", "arguments": arguments}}

    assert told(edge)["messages"] == [
        {"role": "system", "content": "x\ny"},
        {"role": "user", "content": "a\nb"},
        {"role": "assistant", "content": "Let me see.", "tool_calls": [call("t1", '{"city":"Rome"}'), call("t2", "{}")]},
        {"role": "tool", "tool_call_id": "t1", "content": "sunny"},
        {"role": "tool", "tool_call_id": "t2", "content": "Error:\nno"},
        {"role": "user", "content": "and?"},
        {"role": "assistant", "content": "", "tool_calls": [call("t3", "{}")]},
        {"role": "tool", "tool_call_id": "t3", "content": ""},
        {
            "role": "user",
            "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}, {"type": "text", "text": "see"}],
        },
    ]


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [
        ({"type": "auto"}, {"tool_choice": "auto"}),
        ({"type": "any", "disable_parallel_tool_use": True}, {"tool_choice": "required", "parallel_tool_calls": False}),
        ({"type": "none"}, {"tool_choice": "none"}),
        ({"type": "tool", "name": "weather"}, {"tool_choice": {"type": "function", "function": {"name": "weather"}}}),
        (None, {}),
    ],
)
def test_tools_and_their_choice_go_through(edge: Served, choice: Any, wanted: dict):
    assert ask(edge, tools=[WEATHER], tool_choice=choice).status == 200
    function = {"name": "weather", "description": "d", "parameters": {"type": "object"}}
    assert told(edge) == {"messages": SAID, "max_tokens": 9, "tools": [{"type": "function", "function": function}], **wanted}


def test_a_form_for_the_answer_goes_through(edge: Served):
    ask(edge, output_config={"format": {"type": "json_schema", "schema": {"type": "object"}}}, options={"rejectIfBusy": True})
    assert told(edge)["response_format"]["json_schema"]["schema"] == {"type": "object"}
    assert edge.inference.last.request.reject_if_busy


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "/max_tokens"),
        ({"model": None}, "model"),
        ({"messages": []}, "/messages"),
        ({"messages": "x"}, "/messages"),
        ({"messages": SAID * 10_001}, "/messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "/messages/0/role"),
        ({"messages": [{"role": "user"}]}, "/messages/0"),
        ({"messages": [{"role": "user", "content": 5}]}, "/messages/0/content"),
        ({"messages": [{"role": "user", "content": [{}]}]}, "/messages/0/content"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "/messages/0/content/0"),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "/messages/0/content/0/type"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "source"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "file"}}]}]}, "source/type"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_use", "id": "x", "name": "f"}]}]}, "/messages/0/content/0/type"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, "tool_use_id"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": 5}]}]}, "content/0/content"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [5]}]}]}, "content/0/content/0"),
        ({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": 5}]}]}, "input"),
        ({"messages": [{"role": "assistant", "content": [{"type": "thinking"}]}]}, "/messages"),
        ({"system": 5}, "/system"),
        ({"system": [{"type": "image"}]}, "/system/0/type"),
        ({"stop_sequences": "x"}, "/stop_sequences"),
        ({"temperature": 2}, "/temperature"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "/tools/0"),
        ({"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "other"}}, "/tool_choice/name"),
        ({"tool_choice": {"type": "any"}}, "/tool_choice"),
        ({"tools": [WEATHER], "tool_choice": "any"}, "/tool_choice"),
    ],
)
def test_a_bad_field_is_named_in_anthropic_s_shape_and_loads_nothing(edge: Served, given: dict, named: str):
    response = ask(edge, **given)
    body = response.json()
    assert (response.status, body["type"], body["error"]["type"]) == (400, "error", "invalid_request_error")
    assert named in body["error"]["message"], body["error"]["message"]
    assert edge.inference.requests == []


# ---- what comes out -------------------------------------------------------------------------------------------------------------


def test_calls_become_blocks_and_reasons_are_anthropic_s(edge: Served):
    edge.inference.behaviour = answer(completion(None, "tool_calls", tool_calls=[CALL]))
    body = ask(edge, tools=[WEATHER]).json()
    assert body["content"] == [{"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "Lisbon"}}]
    assert body["stop_reason"] == "tool_use"
    edge.inference.behaviour = answer(completion("Hel", "length"))
    assert ask(edge).json()["stop_reason"] == "max_tokens"
    edge.inference.behaviour = answer(completion(""))
    assert ask(edge).json()["content"] == [{"type": "text", "text": ""}]


def test_thoughts_are_shown_to_those_who_ask(edge: Served):
    edge.inference.behaviour = answer(completion(reasoning_content="hm"))
    assert [block["type"] for block in ask(edge).json()["content"]] == ["text"]
    thought = ask(edge, thinking={"type": "enabled", "budget_tokens": 1024}).json()["content"][0]
    assert thought == {"type": "thinking", "thinking": "hm", "signature": ""}


@pytest.mark.parametrize("own", [b'{"response":"Hello"}', b'"Hello"'])
def test_models_with_answers_of_their_own_do_too(edge: Served, own: bytes):
    edge.inference.behaviour = answer(own, usage={"input_tokens": 3, "output_tokens": 2})
    body = ask(edge).json()
    assert body["content"][0]["text"] == "Hello" and body["usage"]["output_tokens"] == 2
    edge.inference.behaviour = items(*OWN)
    assert ask(edge).json()["content"][0]["text"] == "Hello"


@pytest.mark.parametrize("played", [items(*SPOKEN), items(*OWN), answer(completion()), answer(b"Hello", type="text/plain")])
def test_events_come_in_anthropic_s_order_and_spell_the_message(edge: Served, played: Any):
    edge.inference.behaviour = played
    found = events(edge)
    kinds = list(dict.fromkeys(event["type"] for event in found))
    assert kinds == [
        "message_start",
        "ping",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert "".join(event["delta"]["text"] for event in found if event["type"] == "content_block_delta") == "Hello"
    assert found[0]["message"]["content"] == [] and found[0]["message"]["stop_reason"] is None
    assert found[-2]["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    assert edge.inference.last.request.stream


def test_calls_are_streamed_as_blocks_of_their_own(edge: Served):
    first = {"id": "t1", "type": "function", "index": 0, "function": {"name": "weather", "arguments": ""}}
    second = {"id": "t2", "type": "function", "index": 1, "function": {"name": "time", "arguments": "{}"}}
    edge.inference.behaviour = items(
        chunk({"role": "assistant", "content": "Well."}),
        chunk({"tool_calls": [first]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"city":'}}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": '"Rome"}'}}]}),
        chunk({"tool_calls": [second]}),
        chunk({}, "tool_calls"),
        chunk(usage=USAGE),
    )
    found = events(edge, tools=[WEATHER])
    begun = [event for event in found if event["type"] == "content_block_start"]
    assert [(event["index"], event["content_block"].get("name")) for event in begun] == [(0, None), (1, "weather"), (2, "time")]
    pieces = [event["delta"]["partial_json"] for event in found if event["type"] == "content_block_delta" and event["index"] == 1]
    assert json.loads("".join(pieces)) == {"city": "Rome"}
    assert found[-2]["delta"]["stop_reason"] == "tool_use" and found[-2]["usage"]["output_tokens"] == 2


def test_a_failure_on_the_way_is_an_error_event_and_before_it_has_a_status(edge: Served):
    edge.inference.behaviour = items(SPOKEN[1], error=RunnerDied("the runner died"))
    with edge.connect() as connection:
        connection.send_request("POST", PATH, json.dumps({"model": MODEL, "max_tokens": 9, "messages": SAID, "stream": True}).encode())
        stream = connection.events_to_end()
    error = stream.errors[-1].json()
    assert not stream.complete and (error["type"], error["error"]["message"]) == ("error", "the runner died")
    edge.inference.behaviour = refuse(Busy("full", retry_after_s=3))
    response = ask(edge, stream=True)
    assert (response.status, response.headers["retry-after"], response.json()["error"]["type"]) == (429, "3", "rate_limit_error")
    assert ask(edge, model="no/such-model").json()["error"]["type"] == "not_found_error"
