"""OpenAI's responses, over a node that plays the runner."""

import json
from typing import Any

import msgspec
import pytest

from fornada.core.errors import Busy, RunnerDied
from fornada.edge.dialects.openai.responses.kept import KEPT_S, MOST, MOST_BYTES
from tests.http.edge_server.conftest import Served
from tests.http.edge_server.test_edge_text import CALL, MODEL, OWN, SPOKEN, USAGE, chunk, completion
from tests.unit.edge.fakes import answer, items, refuse

PATH = "/v1/responses"
WEATHER = {"type": "function", "name": "weather", "description": "d", "parameters": {"type": "object"}, "strict": True}
CALLED = {"id": "call_1", "type": "function", "index": 0, "function": {"name": "weather", "arguments": ""}}


@pytest.fixture(autouse=True)
def models(edge: Served) -> None:
    edge.catalog.add(MODEL, task="text-generation", aliases=["@cf/meta/llama"])
    edge.inference.behaviour = answer(completion())


def respond(edge: Served, path: str = PATH, **payload: Any):
    return edge.fetch("POST", path, payload={"model": MODEL, "input": "Hi", **payload})


def told(edge: Served) -> dict[str, Any]:
    """What the runner got."""
    value: dict[str, Any] = json.loads(edge.inference.last.body)
    return value


def events(edge: Served, path: str = PATH, **payload: Any) -> list[dict[str, Any]]:
    with edge.connect() as connection:
        connection.send_request("POST", path, json.dumps({"model": MODEL, "input": "Hi", "stream": True, **payload}).encode())
        text = connection.read_response(of="POST").body.decode()
    found = []
    for block in text.split("\n\n")[:-1]:
        name, data = block.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


# ---- what goes in ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", ["/v1", "/client/v4/accounts/acc/ai/v1"])
def test_a_text_becomes_a_chat_and_the_answer_a_response(edge: Served, base: str):
    body = respond(edge, f"{base}/responses", model="@cf/meta/llama", instructions="Be brief.", max_output_tokens=9, temperature=0).json()
    assert told(edge) == {
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
        "max_tokens": 9,
        "temperature": 0,
    }
    assert (body["object"], body["status"], body["model"], body["instructions"]) == ("response", "completed", "@cf/meta/llama", "Be brief.")
    (message,) = body["output"]
    assert (message["type"], message["role"], message["status"]) == ("message", "assistant", "completed")
    assert message["content"] == [{"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}]
    assert body["usage"]["input_tokens"] == 3 and body["usage"]["output_tokens"] == 2 and body["usage"]["total_tokens"] == 5
    assert edge.inference.last.request.account == ("local" if base == "/v1" else "acc")


def test_items_become_messages_calls_and_results(edge: Served):
    given = [
        {"role": "developer", "content": "Be kind."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [{"type": "output_text", "text": "c"}]},
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
        {"type": "function_call", "call_id": "c2", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "rain"}]},
        {
            "role": "user",
            "content": [{"type": "input_text", "text": "see"}, {"type": "input_image", "image_url": "data:image/png;base64,AA=="}],
        },
    ]
    assert respond(edge, input=given, instructions="Be brief.").status == 200
    calls = [{"id": id, "type": "function", "function": {"name": "weather", "arguments": "{}"}} for id in ("c1", "c2")]
    assert told(edge)["messages"] == [
        {"role": "system", "content": "Be brief.\n\nBe kind."},
        {"role": "user", "content": "a\nb"},
        {"role": "assistant", "content": "c", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
        {"role": "tool", "tool_call_id": "c2", "content": "rain"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}],
        },
    ]


def test_tools_formats_and_a_model_s_own_fields_go_through(edge: Served):
    function = {"name": "weather", "description": "d", "parameters": {"type": "object"}, "strict": True}
    respond(edge, tools=[WEATHER], tool_choice={"type": "function", "name": "weather"}, parallel_tool_calls=False, seed=5, user="u")
    assert told(edge) == {
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [{"type": "function", "function": function}],
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "parallel_tool_calls": False,
        "seed": 5,
    }
    other = {**WEATHER, "name": "other"}
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "weather"}]}
    respond(edge, tools=[other, WEATHER], tool_choice=allowed)
    assert [tool["function"]["name"] for tool in told(edge)["tools"]] == ["weather"] and told(edge)["tool_choice"] == "required"
    schema = {"type": "object", "properties": {}}
    edge.inference.behaviour = answer(completion("{}"))
    body = respond(edge, text={"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": True}}).json()
    assert told(edge)["response_format"] == {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}}
    assert body["text"]["format"]["name"] == "n"
    respond(edge, include=["message.output_text.logprobs"], top_logprobs=2)
    assert (told(edge)["logprobs"], told(edge)["top_logprobs"]) == (True, 2)
    respond(edge, options={"rejectIfBusy": True})
    assert edge.inference.last.request.reject_if_busy and told(edge).keys() == {"messages"}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "/input"),
        ({"input": 5}, "/input"),
        ({"input": ["x"]}, "/input/0"),
        ({"input": [{"role": "robot", "content": ""}]}, "/input/0/role"),
        ({"input": [{"content": "x"}]}, "/input/0"),
        ({"input": [{"role": "user", "content": 5}]}, "/input/0/content"),
        ({"input": [{"role": "user", "content": ["x"]}]}, "/input/0/content/0"),
        ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "/input/0/content/0"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]}, "image_url"),
        ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "/input/0/content/0/type"),
        ({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, "call_id"),
        ({"input": [{"type": "function_call_output", "call_id": "c"}]}, "output"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "/input/0/type"),
        ({"input": [{"role": "user"}] * 10_001}, "/input"),
        ({"tools": [WEATHER] * 129}, "/tools"),
        ({"input": [{"type": "computer_call"}]}, "/input/0/type"),
        ({"instructions": 5}, "/instructions"),
        ({"tools": [{"type": "web_search"}]}, "/tools/0"),
        ({"tools": [{"type": "function"}]}, "/tools/0"),
        ({"tools": [WEATHER], "tool_choice": "any"}, "/tool_choice"),
        ({"tools": [WEATHER], "tool_choice": {"type": "function", "name": "other"}}, "/tool_choice/name"),
        ({"tool_choice": "required"}, "/tool_choice"),
        ({"text": {"format": {"type": "xml"}}}, "/text/format"),
        ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "/text/format"),
        ({"max_output_tokens": 0}, "/max_output_tokens"),
        ({"temperature": "hot"}, "/temperature"),
        ({"metadata": {"a": 1}}, "/metadata"),
        ({"background": True}, "/background"),
        ({"conversation": "conv_1"}, "/conversation"),
        ({"previous_response_id": "resp_none"}, "previous_response_id"),
        ({"model": 5}, "model"),
        ({"stop": 5}, "/stop"),
    ],
)
def test_a_bad_field_is_named_and_loads_nothing(edge: Served, given: dict, named: str):
    response = respond(edge, **given)
    assert response.status == 400 and named in response.json()["error"]["message"], response.body
    assert edge.inference.requests == []


# ---- what comes out -------------------------------------------------------------------------------------------------------------


def test_calls_become_items_and_a_cut_answer_is_incomplete(edge: Served):
    edge.inference.behaviour = answer(completion(None, "tool_calls", tool_calls=[CALL]))
    (item,) = respond(edge, tools=[WEATHER]).json()["output"]
    assert item == {**item, "type": "function_call", "call_id": "call_1", "name": "weather", "arguments": '{"city":"Lisbon"}'}
    edge.inference.behaviour = answer(completion("Hel", "length"))
    body = respond(edge).json()
    assert (body["status"], body["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert body["output"][0]["status"] == "incomplete"


def test_thoughts_and_logprobs_have_their_places(edge: Served):
    logprob = {"token": "Hello", "logprob": -0.5, "bytes": [72], "top_logprobs": []}
    value = json.loads(completion(reasoning_content="hm"))
    value["choices"][0]["logprobs"] = {"content": [logprob]}
    edge.inference.behaviour = answer(json.dumps(value).encode())
    thought, message = respond(edge).json()["output"]
    assert (thought["type"], thought["content"]) == ("reasoning", [{"type": "reasoning_text", "text": "hm"}])
    assert message["content"][0]["logprobs"] == [logprob]


@pytest.mark.parametrize("own", [b'{"response":"Hello"}', b'"Hello"'])
def test_models_with_answers_of_their_own_respond_too(edge: Served, own: bytes):
    edge.inference.behaviour = answer(own, usage={"input_tokens": 3, "output_tokens": 2})
    body = respond(edge).json()
    assert body["output"][0]["content"][0]["text"] == "Hello" and body["usage"]["total_tokens"] == 5
    edge.inference.behaviour = items(*OWN)
    assert respond(edge).json()["output"][0]["content"][0]["text"] == "Hello", "items that nobody asked for are put together"
    edge.inference.behaviour = answer(b"Hello", type="text/plain")
    assert respond(edge).json()["output"][0]["content"][0]["text"] == "Hello"


@pytest.mark.parametrize("played", [items(*SPOKEN), items(*OWN), answer(completion()), answer(b"Hello", type="text/plain")])
def test_events_come_in_openai_s_order_and_spell_the_response(edge: Served, played: Any):
    edge.inference.behaviour = played
    found = events(edge)
    kinds = [event["type"].removeprefix("response.") for event in found]
    assert list(dict.fromkeys(kinds)) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    assert "".join(event["delta"] for event in found if event["type"].endswith(".delta")) == "Hello"
    final = found[-1]["response"]
    assert found[0]["response"]["status"] == "in_progress" and found[0]["response"]["output"] == []
    assert final["status"] == "completed" and final["output"][0]["content"][0]["text"] == "Hello"
    assert final["id"] == found[0]["response"]["id"] and edge.inference.last.request.stream


def test_calls_are_streamed_one_item_after_the_other(edge: Served):
    second = {"id": "call_2", "type": "function", "index": 1, "function": {"name": "time", "arguments": "{}"}}
    edge.inference.behaviour = items(
        chunk({"role": "assistant", "content": "Let me see."}),
        chunk({"tool_calls": [CALLED]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"city":'}}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": '"Rome"}'}}]}),
        chunk({"tool_calls": [second]}),
        chunk({}, "tool_calls"),
        chunk(usage=USAGE),
    )
    found = events(edge, tools=[WEATHER])
    done = [event["item"] for event in found if event["type"] == "response.output_item.done"]
    assert [(item["type"], item.get("name"), item.get("arguments")) for item in done] == [
        ("message", None, None),
        ("function_call", "weather", '{"city":"Rome"}'),
        ("function_call", "time", "{}"),
    ]
    assert [event["output_index"] for event in found if event["type"] == "response.output_item.added"] == [0, 1, 2]
    arguments = [event for event in found if event["type"] == "response.function_call_arguments.delta" and event["output_index"] == 1]
    assert "".join(event["delta"] for event in arguments) == '{"city":"Rome"}'
    assert found[-1]["response"]["output"] == done and found[-1]["response"]["usage"]["output_tokens"] == 2


def test_a_failure_on_the_way_is_told_and_before_it_has_a_status(edge: Served):
    edge.inference.behaviour = items(SPOKEN[1], error=RunnerDied("the runner died"))
    with edge.connect() as connection:
        connection.send_request("POST", PATH, json.dumps({"model": MODEL, "input": "Hi", "stream": True}).encode())
        stream = connection.events_to_end()
    assert not stream.complete and not stream.done
    failed, error = stream.items[-1], stream.errors[-1].json()
    assert failed["type"] == "response.failed" and failed["response"]["error"]["message"] == "the runner died"
    assert error["error"]["code"] == error["code"] == "3101" and error["type"] == "error"
    edge.inference.behaviour = refuse(Busy("full"))
    assert respond(edge, stream=True).status == 429
    assert edge.responses.kept == {}, "what failed isn't kept"


def test_bytes_that_are_no_answer_are_refused(edge: Served):
    for body in (
        b'{"object":"chat.completion","choices":[{"index":0,"message":{"content":[1]}}]}',
        b'{"object":"chat.completion","choices":[5]}',
    ):
        edge.inference.behaviour = answer(body)
        response = respond(edge)
        assert (response.status, response.code) == (500, 3103)
    out_of_turn = [{"index": 1, "id": "a", "function": {"name": "f", "arguments": ""}}, {"index": 0, "function": {"arguments": "{}"}}]
    edge.inference.behaviour = items(chunk({"tool_calls": out_of_turn}))
    assert respond(edge, stream=True).status == 500


# ---- conversations that the node remembers --------------------------------------------------------------------------------------


def test_a_response_goes_on_from_one_that_was_kept(edge: Served):
    first = respond(edge, instructions="Be brief.").json()
    edge.inference.behaviour = answer(completion(None, "tool_calls", tool_calls=[CALL]))
    second = respond(edge, previous_response_id=first["id"], input="And now?", tools=[WEATHER]).json()
    assert second["previous_response_id"] == first["id"]
    assert told(edge)["messages"] == [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "And now?"},
    ], "instructions aren't taken over"
    result = {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}
    respond(edge, previous_response_id=second["id"], input=[result])
    assert told(edge)["messages"][3:] == [
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
    ]


def test_kept_responses_are_shown_and_forgotten_to_their_account_alone(edge: Served):
    base = "/client/v4/accounts/acc/ai/v1/responses"
    body = respond(edge, base, input=[{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]).json()
    assert edge.fetch("GET", f"{base}/{body['id']}").json() == body
    assert edge.fetch("GET", f"{base}/{body['id']}?stream=true").status == 400
    listed = edge.fetch("GET", f"{base}/{body['id']}/input_items").json()
    assert [item["content"][0]["text"] for item in listed["data"]] == ["b", "a"] and not listed["has_more"]
    after = listed["data"][0]["id"]
    page = edge.fetch("GET", f"{base}/{body['id']}/input_items?order=desc&limit=1&after={after}").json()
    assert [item["content"][0]["text"] for item in page["data"]] == ["a"]
    assert edge.fetch("GET", f"{base}/{body['id']}/input_items?order=up").status == 400
    for response in (edge.fetch("GET", f"/v1/responses/{body['id']}"), edge.fetch("DELETE", f"/v1/responses/{body['id']}")):
        assert (response.status, response.code) == (404, 5017)
    assert respond(edge, previous_response_id=body["id"]).status == 400
    assert edge.fetch("DELETE", f"{base}/{body['id']}").json() == {"id": body["id"], "object": "response", "deleted": True}
    assert edge.fetch("GET", f"{base}/{body['id']}").status == 404


def test_a_conversation_that_outgrows_the_model_s_bodies_is_too_large(edge: Served):
    edge.catalog.add("@test/small", task="text-generation", serving={"max_body": "1KiB"})
    first = respond(edge, model="@test/small", input="x" * 600).json()
    response = respond(edge, model="@test/small", input="y" * 600, previous_response_id=first["id"])
    assert (response.status, response.code) == (413, 3006) and len(edge.inference.requests) == 1


def test_what_is_not_to_be_stored_isn_t_and_a_full_disk_costs_no_answer(edge: Served):
    assert respond(edge, store=False).json()["store"] is False and edge.responses.kept == {}
    edge.responses.full = True
    body = respond(edge).json()
    assert body["store"] is False and body["output"][0]["content"][0]["text"] == "Hello"


def test_a_stream_is_kept_as_it_ended(edge: Served):
    edge.inference.behaviour = items(*SPOKEN)
    final = events(edge)[-1]["response"]
    assert edge.fetch("GET", f"{PATH}/{final['id']}").json() == final


def test_no_numbers_are_flagged(edge: Served):
    edge.inference.behaviour = answer(completion(), nonfinite=True)
    assert respond(edge).json()["nonfinite"] is True


def test_responses_are_kept_for_thirty_days(edge: Served):
    assert (KEPT_S, MOST, MOST_BYTES) == (30 * 86400, 4096, 64 * 1024**2)
    body = respond(edge).json()
    (kept,) = edge.responses.kept.values()
    edge.responses.kept[kept.id] = msgspec.structs.replace(kept, created=kept.created - KEPT_S - 60)
    assert edge.fetch("GET", f"{PATH}/{body['id']}").status == 404
    assert respond(edge, previous_response_id=body["id"]).status == 400
