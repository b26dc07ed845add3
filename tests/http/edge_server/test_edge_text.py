"""Generated text in the forms of both doors, over a node that plays the runner."""

import json
from functools import partial
from typing import Any

import pytest

from fornada.core.errors import Busy, RunnerDied
from fornada.core.requests import AnswerHead
from fornada.edge.text_schemas import TEXT_GENERATION_IN
from tests.harness.adapters import FILE_NAMES, config, form, weights
from tests.http.edge_server.conftest import RUN, Served
from tests.unit.edge.fakes import Submitted, answer, items, refuse, stay_silent, until

MODEL = "@test/text"
ASK: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}]}
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Lisbon"}'}}


def completion(content: str | None = "Hello", finish: str = "stop", **message: object) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": content, **message}, "finish_reason": finish, "logprobs": None}
    frame = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "inner"}
    return json.dumps({**frame, "choices": [choice], "usage": USAGE}).encode()


def chunk(delta: dict | None = None, finish: str | None = None, usage: dict | None = None) -> bytes:
    frame = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "inner"}
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}]
    return json.dumps({**frame, "choices": choices, **({"usage": usage} if usage else {})}).encode()


SPOKEN = (
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": "Hel"}),
    chunk({"content": "lo"}),
    chunk({}, "stop"),
    chunk(usage=USAGE),
)
OWN = (b'{"response":"Hel"}', b'{"response":"lo"}')


@pytest.fixture(autouse=True)
def models(edge: Served) -> None:
    edge.catalog.add(MODEL, task="text-generation", aliases=["@cf/meta/llama"])
    edge.catalog.add("@test/openai", task="text-generation", settings={"output_family": "openai"})
    edge.inference.behaviour = answer(completion())


def chat(edge: Served, base: str = "/v1", route: str = "chat/completions", **payload: Any):
    return edge.fetch("POST", f"{base}/{route}", payload={"model": MODEL, **payload})


def arrived(edge: Served, before: int) -> bool:
    return len(edge.inference.requests) > before


def stream(edge: Served, target: str = "/v1/chat/completions", **payload: Any):
    with edge.connect() as connection:
        connection.send_request("POST", target, json.dumps({"stream": True, **payload}).encode())
        return connection.events_to_end()


# ---- chat -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", ["/v1", "/client/v4/accounts/acc/ai/v1"])
def test_a_chat_is_openai_s_object_under_the_name_that_was_asked(edge: Served, base: str):
    body = edge.fetch("POST", f"{base}/chat/completions/", payload={"model": "@cf/meta/llama", **ASK}).json()
    assert (body["object"], body["model"], body["usage"]) == ("chat.completion", "@cf/meta/llama", USAGE)
    assert body["choices"][0]["message"]["content"] == "Hello"
    assert edge.inference.last.request.account == ("local" if base == "/v1" else "acc")
    assert json.loads(edge.inference.last.body) == ASK, "neither the model's name nor anything of ours"


def test_every_parameter_goes_through_and_null_is_absent(edge: Served):
    given: dict[str, Any] = {
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "tool_choice": "auto",
        "n": 2,
        "logprobs": True,
        "seed": 5,
    }
    chat(edge, **ASK, **given, stop=None, user="u", invented=[1], max_completion_tokens=7, response_format={"type": "json_object"})
    assert json.loads(edge.inference.last.body) == {
        **ASK,
        **given,
        "user": "u",
        "invented": [1],
        "max_tokens": 7,
        "response_format": {"type": "json_object"},
    }


def test_null_content_and_parts_of_text_become_texts(edge: Served):
    picture = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]
    conversation = [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
        {"role": "user", "content": picture},
    ]
    assert chat(edge, messages=conversation).status == 200
    assert [message["content"] for message in json.loads(edge.inference.last.body)["messages"]] == ["a\nb", "", "sunny", picture]


def test_a_busy_model_can_be_asked_to_refuse_at_once(edge: Served):
    chat(edge, **ASK, options={"rejectIfBusy": True})
    assert edge.inference.last.request.reject_if_busy and json.loads(edge.inference.last.body) == ASK
    edge.inference.behaviour = refuse(Busy("the queue is full", retry_after_s=3))
    response = chat(edge, **ASK)
    assert (response.status, response.code, response.headers["retry-after"]) == (429, 3040, "3")
    assert response.json()["error"]["type"] == "rate_limit_error"


@pytest.mark.parametrize("own", [b'{"response":"Hello"}', b'"Hello"'])
def test_models_that_answer_as_workers_ai_does_chat_too(edge: Served, own: bytes):
    edge.inference.behaviour = answer(own, usage={"input_tokens": 3, "output_tokens": 2})
    body = chat(edge, **ASK).json()
    assert body["choices"][0]["message"] == {"role": "assistant", "content": "Hello", "refusal": None}
    assert body["choices"][0]["finish_reason"] == "stop" and body["usage"] == USAGE and body["id"].startswith("chatcmpl-")


def test_plain_text_is_text_and_a_model_s_own_refusal_keeps_its_status(edge: Served):
    edge.inference.behaviour = answer(b"Hello", type="text/plain")
    assert chat(edge, **ASK).json()["choices"][0]["message"]["content"] == "Hello"
    edge.inference.behaviour = answer(b"{}", http_status=422, message="not that")
    response = chat(edge, **ASK)
    assert (response.status, response.code, response.json()["error"]["message"]) == (422, 3030, "not that")
    edge.inference.behaviour = answer(b"\x89PNG", type="image/png")
    assert (chat(edge, **ASK).status, chat(edge, **ASK).code) == (500, 3103)


# ---- streams --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("played", [SPOKEN, OWN])
def test_chunks_spell_the_answer_and_done_ends_them(edge: Served, played: tuple[bytes, ...]):
    edge.inference.behaviour = items(*played)
    events = stream(edge, model=MODEL, **ASK, stream_options={"include_usage": True})
    assert events.head.headers["content-type"] == "text/event-stream" and events.done and events.complete
    *chunks, last = events.items
    assert all(each["object"] == "chat.completion.chunk" and each["model"] == MODEL for each in chunks)
    assert "".join(each["choices"][0]["delta"].get("content") or "" for each in chunks) == "Hello"
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant" and chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert len({each["id"] for each in chunks}) == 1
    assert last["choices"] == [] and last["usage"]["total_tokens"] == (5 if played is SPOKEN else 0)
    assert edge.inference.last.request.stream
    assert all(each["choices"] for each in stream(edge, model=MODEL, **ASK).items), "no usage that nobody asked for"


def test_a_whole_answer_is_streamed_to_whom_asks_for_a_stream(edge: Served):
    edge.inference.behaviour = answer(completion(None, "tool_calls", tool_calls=[CALL]))
    events = stream(edge, model=MODEL, **ASK)
    assert events.done and events.items[0]["choices"][0]["delta"]["tool_calls"] == [{"index": 0, **CALL}]
    assert events.items[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_a_stream_is_gathered_for_whom_asks_for_none(edge: Served):
    for played in (SPOKEN, OWN):
        edge.inference.behaviour = items(*played)
        body = chat(edge, **ASK).json()
        assert body["choices"][0]["message"]["content"] == "Hello" and body["model"] == MODEL and body["object"] == "chat.completion"
        assert edge.run(ASK, model=MODEL).result["response"] == "Hello"
    edge.inference.behaviour = items(chunk({"tool_calls": [{"index": 0, **CALL}]}), chunk({}, "tool_calls"))
    (choice,) = chat(edge, **ASK).json()["choices"]
    assert choice["message"]["tool_calls"] == [CALL] and choice["finish_reason"] == "tool_calls"


def test_a_failure_in_a_stream_is_one_error_event_without_done(edge: Served):
    for target, more in (("/v1/chat/completions", {"model": MODEL}), (RUN + MODEL, {})):
        edge.inference.behaviour = items(*OWN, error=RunnerDied("it died"))
        events = stream(edge, target, **ASK, **more)
        assert len(events.errors) == 1 and not events.done
        assert events.errors[0].json()["error"]["code"] == "3101"
        edge.inference.behaviour = items(error=RunnerDied("it died"))
        with edge.connect() as connection:
            connection.send_request("POST", target, json.dumps({"stream": True, **ASK, **more}).encode())
            assert connection.read_response().status == 502, "nothing was sent yet"


@pytest.mark.parametrize(
    "bad",
    [
        b'{"object":"chat.completion.chunk","choices":[5]}',
        b"[" * 5000,
    ],
)
def test_items_that_lie_about_their_shape_break_the_stream_and_nothing_else(edge: Served, bad: bytes):
    for target, more in (("/v1/chat/completions", {"model": MODEL}), (RUN + MODEL, {})):
        edge.inference.behaviour = stay_silent
        with edge.connect() as connection:
            seen = len(edge.inference.requests)
            connection.send_request("POST", target, json.dumps({"stream": True, **ASK, **more}).encode())
            until(partial(arrived, edge, seen))
            submitted: Submitted = edge.inference.last
            edge.tell(submitted.sink.stream_begins, AnswerHead())
            edge.tell(submitted.sink.item, OWN[0])
            edge.tell(submitted.sink.item, bad)
            if target == RUN + MODEL and bad.startswith(b"[["):
                edge.tell(submitted.sink.stream_ends, None)  # what is no OpenAI object goes through there as it is
                continue
            events = connection.events_to_end()
            assert events.errors[0].json()["error"]["code"] == "3103" and not events.done
            until(partial(getattr, submitted, "left"), what="the runner's work is cancelled")
    lies = (b'{"object":"chat.completion.chunk","choices":[{"index":%s,"delta":{}}]}' % index for index in (b'"a"', b"0"))
    edge.inference.behaviour = items(*lies)
    events = stream(edge, model=MODEL, **ASK)
    assert len(events.errors) == 1 and not events.done, "found out at the end"
    edge.inference.behaviour = answer(b"[" * 5000)
    assert chat(edge, **ASK).code == 3103


# ---- completions ----------------------------------------------------------------------------------------------------------------


def test_a_completion_goes_on_from_a_text_without_a_template(edge: Served):
    for base in ("/v1", "/client/v4/accounts/acc/ai/v1"):
        for prompt in ("Once", ["Once"]):
            body = chat(edge, base, "completions", prompt=prompt, max_tokens=3).json()
            assert (body["object"], body["model"], body["choices"][0]["text"]) == ("text_completion", MODEL, "Hello")
            assert json.loads(edge.inference.last.body) == {"prompt": "Once", "max_tokens": 3, "raw": True}
    edge.inference.behaviour = items(*OWN)
    events = stream(edge, "/v1/completions", model=MODEL, prompt="Once")
    assert "".join(each["choices"][0]["text"] for each in events.items) == "Hello" and events.done
    assert {each["object"] for each in events.items} == {"text_completion"}
    edge.catalog.add("@test/gguf", task="text-generation", engine="gguf")
    edge.inference.behaviour = answer(completion())
    assert chat(edge, route="completions", model="@test/gguf", prompt=["a", "b"]).status == 200
    assert json.loads(edge.inference.last.body)["prompt"] == ["a", "b"]


# ---- refusals -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("route", "payload", "word"),
    [
        ("chat/completions", {}, "messages"),
        ("chat/completions", {"messages": None}, "messages"),
        ("chat/completions", {"messages": []}, "messages"),
        ("chat/completions", {"messages": "Hi"}, "messages"),
        ("chat/completions", {"messages": [{"content": "x"}]}, "role"),
        ("chat/completions", {"messages": [{"role": "user", "content": 5}]}, "content"),
        ("chat/completions", {**ASK, "temperature": 9}, "temperature"),
        ("chat/completions", {**ASK, "stream": "yes"}, "stream"),
        ("chat/completions", {**ASK, "stream_options": 5}, "stream_options"),
        ("chat/completions", {**ASK, "max_completion_tokens": 0}, "max_completion_tokens"),
        ("chat/completions", {**ASK, "max_completion_tokens": []}, "max_completion_tokens"),
        ("completions", {"model": "@test/text", "prompt": "x", "max_completion_tokens": "many"}, "max_completion_tokens"),
        ("chat/completions", {**ASK, "tools": {}}, "tools"),
        ("chat/completions", {**ASK, "stop": 5}, "stop"),
        ("chat/completions", {**ASK, "response_format": {"type": "xml"}}, "response_format"),
        ("chat/completions", {**ASK, "model": None}, "model"),
        ("chat/completions", {**ASK, "model": 5}, "model"),
        ("chat/completions", {**ASK, "options": 5}, "options"),
        ("chat/completions", {"messages": [{"role": "alien", "content": "x"}]}, "/messages/0/role"),
        ("chat/completions", {"messages": [{"role": "user", "content": [5]}]}, "/messages/0/content/0"),
        ("chat/completions", {**ASK, "response_format": {"type": "json_schema"}}, "json_schema"),
        ("chat/completions", {**ASK, "tools": [{"type": "function"}]}, "/tools/0"),
        ("chat/completions", {**ASK, "tools": [{"type": "function", "function": {"name": "f", "description": False}}]}, "description"),
        ("chat/completions", {**ASK, "tool_choice": "any"}, "/tool_choice"),
        ("chat/completions", {**ASK, "tool_choice": {"type": "function"}}, "/tool_choice"),
        ("chat/completions", {**ASK, "logprobs": 3}, "/logprobs"),
        ("chat/completions", {**ASK, "top_logprobs": 21}, "/top_logprobs"),
        ("chat/completions", {**ASK, "n": 0}, "/n"),
        ("chat/completions", {**ASK, "parallel_tool_calls": "yes"}, "/parallel_tool_calls"),
        ("chat/completions", {**ASK, "lora": ""}, "/lora"),
        ("chat/completions", {**ASK, "model": "@test/a"}, "task"),
        ("completions", {}, "prompt"),
        ("completions", {"prompt": ""}, "prompt"),
        ("completions", {"prompt": [1, 2]}, "prompt"),
        ("completions", {"prompt": ["a", "b"]}, "prompt"),
        ("completions", {"prompt": {}}, "prompt"),
        ("completions", {"prompt": "a", "logprobs": True}, "/logprobs"),
        ("completions", {"prompt": "a", "best_of": 2}, "best_of"),
    ],
)
def test_what_can_t_be_is_refused_by_name_before_anything_is_loaded(edge: Served, route: str, payload: dict, word: str):
    response = chat(edge, route=route, **payload)
    assert (response.status, response.code) == (400, 5006), response.body
    assert word in response.message and response.json()["error"]["type"] == "invalid_request_error"
    assert edge.inference.requests == []


@pytest.mark.parametrize(
    ("name", "least", "most", "beyond"),
    [
        ("max_tokens", 1, 10**6, [0, "5", 1.5]),
        ("temperature", 0, 5, [-0.1, 5.1, True]),
        ("top_p", 0, 2, [-0.1, 2.1]),
        ("top_k", 1, 50, [0, 51, "9"]),
        ("seed", 1, 9999999999, [0, 10000000000, "1"]),
        ("repetition_penalty", 0, 2, [-0.1, 2.1]),
        ("frequency_penalty", -2, 2, [-2.1, 2.1]),
        ("presence_penalty", -2, 2, [-2.1, 2.1]),
    ],
)
def test_the_ranges_of_ai_run_are_workers_ai_s(edge: Served, name: str, least: float, most: float, beyond: list[Any]):
    for value in (least, most, None):
        assert edge.run({**ASK, name: value}, model=MODEL).status == 200, value
    for value in beyond:
        response = edge.run({**ASK, name: value}, model=MODEL)
        assert (response.status, response.code) == (400, 5006) and f"/{name}" in response.message, value


def test_openai_s_callers_have_openai_s_ranges(edge: Served):
    wider: list[dict[str, Any]] = [{"seed": 0}, {"seed": -1}, {"top_k": 100}, {"top_k": -1}, {"top_p": 0}]
    for more in wider:
        assert chat(edge, **ASK, **more).status == 200, more


def test_every_optional_field_may_be_null(edge: Served):
    names = [name for name in TEXT_GENERATION_IN["properties"] if name != "messages"]
    assert {"lora", "stop", "tools", "tool_choice", "response_format", "raw", "functions", "reasoning_effort"} <= set(names)
    assert edge.run({**ASK, **dict.fromkeys(names)}, model=MODEL).status == 200
    assert json.loads(edge.inference.last.body) == ASK
    nothing: dict[str, Any] = dict.fromkeys([*names, "options"])
    assert chat(edge, **ASK, **nothing).status == 200
    message = {"role": "assistant", "content": None, "name": None, "tool_calls": None, "tool_call_id": None}
    assert edge.run({"messages": [*ASK["messages"], message]}, model=MODEL).status == 200


def test_unknown_models_are_not_found(edge: Served):
    for route in ("chat/completions", "completions"):
        response = chat(edge, route=route, model="@no/such", prompt="x", **ASK)
        assert (response.status, response.code, response.json()["error"]["code"]) == (404, 5007, "5007")


# ---- ai/run ---------------------------------------------------------------------------------------------------------------------


def test_ai_run_answers_a_text_and_its_counts(edge: Served):
    assert edge.run(ASK, model=MODEL).result == {"response": "Hello", "usage": USAGE}
    assert json.loads(edge.inference.last.body) == ASK
    parts = [
        {"role": "system", "content": None},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    ]
    assert edge.run({"messages": parts}, model=MODEL).status == 200
    assert [message["content"] for message in json.loads(edge.inference.last.body)["messages"]] == ["", "a\nb"]
    edge.inference.behaviour = answer(completion("", "tool_calls", tool_calls=[CALL]))
    result = edge.run({"prompt": "Hi"}, model=MODEL).result
    assert result["response"] == "" and result["tool_calls"] == [{"name": "weather", "arguments": {"city": "Lisbon"}}]


def test_ai_run_streams_texts_then_usage_then_done(edge: Served):
    edge.inference.behaviour = items(*SPOKEN)
    events = stream(edge, RUN + MODEL, prompt="Hi")
    assert events.done and all(isinstance(each["response"], str) and "tool_calls" not in each for each in events.items)
    assert "".join(each["response"] for each in events.items) == "Hello" and events.items[-1]["usage"] == USAGE
    edge.inference.behaviour = answer(b'{"response":"Hello"}', usage={"input_tokens": 3, "output_tokens": 2})
    events = stream(edge, RUN + MODEL, prompt="Hi")
    assert events.done and events.items == [{"response": "Hello"}, {"response": "", "usage": USAGE}]


def test_what_a_model_counted_while_it_streamed_is_told_at_the_end(edge: Served):
    edge.inference.behaviour = items(*OWN, end=AnswerHead(usage={"input_tokens": 3, "output_tokens": 2}))
    assert stream(edge, RUN + MODEL, prompt="Hi").items[-1] == {"response": "", "usage": USAGE}
    assert edge.run(ASK, model=MODEL).result == {"response": "Hello", "usage": USAGE}
    assert stream(edge, model=MODEL, **ASK, stream_options={"include_usage": True}).items[-1]["usage"] == USAGE
    assert chat(edge, **ASK).json()["usage"] == USAGE


def test_prompt_and_messages_exclude_each_other(edge: Served):
    for payload, word in (({**ASK, "prompt": "x"}, "mutually exclusive"), ({}, "prompt"), ({"prompt": ""}, "prompt")):
        response = edge.run(payload, model=MODEL)
        assert (response.status, response.code) == (400, 5006) and word in response.message
    assert edge.inference.requests == []
    assert edge.run({**ASK, "prompt": None}, model=MODEL).status == 200
    assert edge.run({"prompt": "x", "raw": "true"}, model=MODEL).status == 200


def test_a_model_may_choose_openai_s_family_for_ai_run(edge: Served):
    result = edge.run(ASK, model="@test/openai").result
    assert (result["object"], result["model"], result["usage"]) == ("chat.completion", "@test/openai", USAGE)
    edge.inference.behaviour = items(*OWN)
    events = stream(edge, RUN + "@test/openai", **ASK)
    assert events.done and events.items[0]["choices"][0]["delta"]["content"] == "Hel" and events.items[-1]["choices"] == []
    edge.inference.behaviour = answer(completion())
    result = edge.run({"prompt": "Hi"}, model="@test/openai").result
    assert result["object"] == "text_completion" and result["choices"][0]["text"] == "Hello" and result["id"].startswith("cmpl-")
    edge.inference.behaviour = items(*OWN)
    events = stream(edge, RUN + "@test/openai", prompt="Hi")
    assert events.done and "".join(each["choices"][0]["text"] for each in events.items[:-1]) == "Hello"
    edge.catalog.add("@test/odd", task="text-generation", settings={"output_family": "french"})
    response = edge.run(ASK, model="@test/odd")
    assert response.code == 5010 and "output_family" in response.message


def test_an_input_to_openai_s_family_is_answered_with_a_response(edge: Served):
    asked = {"input": "Hi", "instructions": "Be short.", "store": False, "messages": None}
    response = edge.run(asked, model="@test/openai")
    result = response.result
    assert (result["object"], result["model"], result["status"]) == ("response", "@test/openai", "completed"), response.body
    assert result["output"][0]["content"][0]["text"] == "Hello" and result["usage"]["total_tokens"] == 5
    conversation = json.loads(edge.inference.last.body)["messages"]
    assert [(message["role"], message["content"]) for message in conversation] == [("system", "Be short."), ("user", "Hi")]
    universal = {"model": "@test/openai", "input": {"input": "Hi"}, "options": {"rejectIfBusy": True}}
    assert edge.fetch("POST", "/client/v4/accounts/acc/ai/run", payload=universal).result["object"] == "response"
    assert edge.inference.last.request.reject_if_busy
    edge.inference.behaviour = items(*SPOKEN)
    with edge.connect() as connection:
        connection.send_request("POST", RUN + "@test/openai", json.dumps({"input": "Hi", "stream": True}).encode())
        said = connection.read_response(of="POST").body.decode()
    assert "event: response.completed" in said and '"delta":"Hel"' in said
    for payload, model, word in (
        ({"input": 5}, "@test/openai", "input"),
        ({"input": "Hi", **ASK}, "@test/openai", "oneOf"),
        ({"input": "Hi"}, MODEL, "prompt"),
    ):
        refused = edge.run(payload, model=model)
        assert (refused.status, refused.code) == (400, 5006) and word in refused.message


def test_the_universal_form_generates_too(edge: Served):
    response = edge.fetch("POST", "/client/v4/accounts/acc/ai/run", payload={"model": MODEL, "input": ASK})
    assert response.result == {"response": "Hello", "usage": USAGE}


def test_what_model_code_answers_in_a_type_of_its_own_stays_so(edge: Served):
    edge.inference.behaviour = answer(b"Hello", type="text/plain")
    response = edge.run(ASK, model=MODEL)
    assert (response.headers["content-type"], response.body) == ("text/plain", b"Hello")
    edge.inference.behaviour = answer(b'{"response":"x"}', headers={"x-mine": "1"})
    assert edge.run(ASK, model=MODEL).headers["x-mine"] == "1"


# ---- fine-tunes -----------------------------------------------------------------------------------------------------------------


def fine_tuned(edge: Served, model: str = "@test/tunable", account: str = "acc", **fields: Any) -> str:
    """A complete fine-tune of a model of engine gguf, which is there from now on."""
    edge.catalog.add("@test/tunable", task="text-generation", engine="gguf")
    base = f"/client/v4/accounts/{account}/ai/finetunes"
    id = str(edge.fetch("POST", base, payload={"model": model, "name": "tone", **fields}).json()["result"]["id"])
    for name, data in zip(FILE_NAMES, (config(), weights()), strict=True):
        body, kind = form(name, data)
        edge.fetch("POST", f"{base}/{id}/finetune-assets", body, headers={"content-type": kind})
    return id


def test_a_fine_tune_is_named_to_the_runner_as_no_caller_can_name_it(edge: Served):
    id = fine_tuned(edge)
    for named in ("tone", id):
        assert edge.run({**ASK, "lora": named, "raw": True}, model="@test/tunable").status == 200
        assert json.loads(edge.inference.last.body) == {**ASK, "lora": {"finetune": id}, "raw": True}
        base = "/client/v4/accounts/acc/ai/v1"
        assert chat(edge, base, model="@test/tunable", **ASK, lora=named).status == 200
        assert json.loads(edge.inference.last.body)["lora"] == {"finetune": id}
        assert chat(edge, base, "completions", model="@test/tunable", prompt="a", lora=named).status == 200
        assert json.loads(edge.inference.last.body)["lora"] == {"finetune": id}
        universal = {"model": "@test/tunable", "input": {**ASK, "lora": named}}
        assert edge.fetch("POST", "/client/v4/accounts/acc/ai/run", payload=universal).status == 200
        assert json.loads(edge.inference.last.body)["lora"] == {"finetune": id}
    assert edge.run({**ASK, "lora": None}, model="@test/tunable").status == 200
    assert json.loads(edge.inference.last.body) == ASK


def test_fine_tunes_of_others_of_other_models_and_of_engines_without_are_refused(edge: Served):
    id = fine_tuned(edge, account="other")
    before = len(edge.inference.requests)
    for name in (id, "tone", "nothing"):
        response = edge.run({**ASK, "lora": name}, model="@test/tunable")
        assert response.status == 404, response.body
    for value in ({"finetune": id}, [id], 5, ""):
        response = edge.run({**ASK, "lora": value}, model="@test/tunable")
        assert (response.status, response.code) == (400, 5006) and "/lora" in response.message
        assert chat(edge, model="@test/tunable", **ASK, lora=value).code == 5006
    response = edge.run({**ASK, "lora": "tone"}, model=MODEL)
    assert (response.status, response.code) == (405, 5005) and "LoRa" in response.message
    edge.catalog.add("@test/second", task="text-generation", engine="gguf")
    fine_tuned(edge, model="@test/second")
    response = edge.run({**ASK, "lora": "tone"}, model="@test/tunable")
    assert response.status == 400 and "@test/second" in response.message
    response = edge.fetch("POST", "/client/v4/accounts/acc/ai/finetunes", payload={"model": "@test/tunable", "name": "empty"})
    assert edge.run({**ASK, "lora": "empty"}, model="@test/tunable").code == 3039
    assert len(edge.inference.requests) == before
