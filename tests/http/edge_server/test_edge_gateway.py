"""Requests through an AI gateway, over a node that plays the runner."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import pytest

from fornada.core.errors import BadRequest, Busy, ModelRaised, RunnerDied
from fornada.core.requests import AnswerHead
from fornada.core.settings import GatewaysSettings
from tests.harness.client import Closed, Response
from tests.http.edge_server.conftest import RUN, Served
from tests.unit.edge.fakes import Behaviour, Submitted, answer, echo, items, refuse, stay_silent, until

GATEWAYS = "/client/v4/accounts/acc/ai-gateway/gateways"
DATA = "/gateway/v1/acc/g"
WAY = f"{DATA}/workers-ai/@test/a"
ASK = {"x": 1}


@pytest.fixture(scope="module")
def shared() -> Iterator[Served]:
    served = Served(gateways=GatewaysSettings())
    served.start()
    served.catalog.add("@test/text", task="text-generation", aliases=["@cf/meta/llama"], price={"input_token": 1000, "output_token": 0})
    served.catalog.add("@test/b")
    yield served
    served.close()


@pytest.fixture
def edge(shared: Served) -> Served:
    """With a fresh gateway "g" that does nothing of its own."""
    shared.inference.requests.clear()
    shared.inference.behaviour = echo
    shared.fetch("DELETE", f"{GATEWAYS}/g")
    put(shared)
    return shared


def put(edge: Served, id: str = "g", account: str = "acc", **settings: Any) -> Response:
    base = GATEWAYS.replace("/acc/", f"/{account}/")
    if edge.fetch("GET", f"{base}/{id}").status == 200:
        response = edge.fetch("PUT", f"{base}/{id}", payload=settings)
    else:
        response = edge.fetch("POST", base, payload={"id": id, **settings})
    assert response.status == 200, response.body
    return response


def ask(edge: Served, payload: Any = ASK, target: str = WAY, **named: object) -> Response:
    headers = {f"cf-aig-{name.replace('_', '-')}": str(value) for name, value in named.items()}
    return edge.fetch("POST", target, payload=payload, headers=headers)


def status(response: Response) -> str:
    return response.headers["cf-aig-cache-status"]


def logs(edge: Served, **query: object) -> list[dict[str, Any]]:
    text = "&".join(f"{name}={value}" for name, value in query.items())
    listed: list[dict[str, Any]] = edge.fetch("GET", f"{GATEWAYS}/g/logs?{text}").result
    return listed


def failing(times: int, error: Exception | None = None) -> Behaviour:
    """Fails so often, then answers."""
    left = [times]

    def play(submitted: Submitted) -> None:
        left[0] -= 1
        if left[0] >= 0:
            submitted.sink.refuse(error or ModelRaised("a bug"))  # type: ignore[arg-type]
        else:
            echo(submitted)

    return play


# ---- ways in


@pytest.mark.parametrize("way", ["workers-ai/@test/a", "workers-ai/@test%2Fa", "workers-ai/%40test%2Fa", "workers-ai/run/@test/a"])
def test_each_spelling_reaches_the_model_and_is_answered_as_without_a_gateway(edge: Served, way: str):
    direct = edge.run(ASK)
    response = ask(edge, target=f"{DATA}/{way}")
    assert (response.status, response.body) == (200, direct.body)
    assert edge.inference.last.request.account == "acc"
    for name in ("cache-status", "log-id", "step", "request-id", "event-id"):
        assert response.headers[f"cf-aig-{name}"], name
    assert response.headers["content-type"] == "application/json"


COMPLETION = json.dumps(
    {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "inner",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop", "logprobs": None}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    }
).encode()


@pytest.mark.parametrize(
    ("way", "model"),
    [
        ("workers-ai/v1/chat/completions", "@test/text"),
        ("compat/chat/completions", "workers-ai/@test/text"),
        ("compat/chat/completions", "@cf/meta/llama"),
    ],
)
def test_openai_s_routes_are_behind_a_gateway_too(edge: Served, way: str, model: str):
    edge.inference.behaviour = answer(COMPLETION)
    response = ask(edge, {"model": model, "messages": [{"role": "user", "content": "Hi"}]}, f"{DATA}/{way}")
    assert response.json()["choices"][0]["message"]["content"] == "Hi", response.body
    (log,) = logs(edge)
    assert (log["tokens_in"], log["tokens_out"], log["model_type"]) == (3, 2, "text-generation")
    assert log["cost"] == pytest.approx(3 * 1000 * 0.011 / 1000)


@pytest.mark.parametrize("target", [RUN + "@test/a", "/v1/chat/completions"])
def test_a_header_leads_any_request_through_a_gateway(edge: Served, target: str):
    edge.inference.behaviour = answer(COMPLETION)
    body = {"model": "@test/text", "prompt": "x", "messages": [{"role": "user", "content": "Hi"}]}
    plain = edge.fetch("POST", target, payload=body)
    assert plain.status == 200 and not [name for name in plain.headers if name.startswith("cf-aig")]
    put(edge, account="local")
    response = ask(edge, body, target, gateway_id="g", cache_ttl=60)
    assert (response.status, status(response)) == (200, "MISS"), response.body
    assert status(ask(edge, body, target, gateway_id="g", cache_ttl=60)) == "HIT"
    refused = ask(edge, body, target, gateway_id="nothing")
    assert (refused.status, refused.code) == (404, 2001)
    assert ask(edge, body, target, gateway_id="no/name").status == 400


def test_every_account_has_a_default_gateway_and_no_other(edge: Served):
    assert ask(edge, target="/gateway/v1/somebody/default/workers-ai/@test/a").status == 200
    refused = ask(edge, target="/gateway/v1/somebody/g/workers-ai/@test/a")
    assert (refused.status, refused.code) == (404, 2001)


@pytest.mark.parametrize("provider", ["openai", "anthropic", "nothing"])
def test_what_is_elsewhere_is_refused_in_words(edge: Served, provider: str):
    refused = ask(edge, target=f"{DATA}/{provider}/chat/completions")
    assert refused.status == 400 and provider in refused.message and "workers-ai" in refused.message


def test_a_refusal_keeps_its_form_and_has_the_gateway_s_headers(edge: Served):
    refused = ask(edge, target=f"{DATA}/workers-ai/@test/nothing")
    assert (refused.status, refused.code) == (400, 5007)
    assert refused.headers["cf-aig-log-id"] and status(refused) == "MISS"
    superset = ask(edge, {"model": "@test/nothing"}, f"{DATA}/compat/chat/completions")
    assert superset.status == 404 and superset.json()["error"]["code"] == "5007"
    edge.inference.behaviour = refuse(Busy("full", retry_after_s=7))
    assert ask(edge).headers["retry-after"] == "7"


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("cache_ttl", "5"),
        ("cache_ttl", "soon"),
        ("skip_cache", "maybe"),
        ("max_attempts", "6"),
        ("max_attempts", "0"),
        ("retry_delay", "5001"),
        ("request_timeout", "-1"),
        ("backoff", "never"),
        ("metadata", "[]"),
        ("metadata", '{"a": {}}'),
        ("custom_cost", '{"per_token_in": "x"}'),
        ("custom_cost", '{"per_token_in": 1e308}'),
        ("custom_cost", '{"total_cost": -1}'),
        ("cache_key", "k" * 513),
    ],
)
def test_a_header_that_can_t_be_is_named(edge: Served, header: str, value: str):
    refused = ask(edge, **{header: value})
    assert refused.status == 400 and f"cf-aig-{header.replace('_', '-')}" in refused.message
    assert not edge.inference.requests


# ---- what is kept


def test_an_identical_request_is_answered_from_what_is_kept(edge: Served):
    put(edge, cache_ttl=60)
    first = ask(edge, {"a": 1, "b": [2]})
    typed = {"user-agent": "another", "content-type": "application/x-www-form-urlencoded"}
    again = edge.fetch("POST", WAY, b'{ "b": [2],\n "a": 1 }', headers=typed)
    assert (status(first), status(again)) == ("MISS", "HIT")
    assert again.body == first.body and again.headers["content-type"] == first.headers["content-type"]
    assert again.headers["cf-aig-log-id"] != first.headers["cf-aig-log-id"]
    assert len(edge.inference.requests) == 1
    assert status(ask(edge, {"a": 1, "b": [3]})) == "MISS"
    hit, *_ = logs(edge, cached="true")
    assert hit["request_content_type"] == "application/json", "what curl calls a form"
    assert edge.fetch("GET", f"{GATEWAYS}/g/logs/{hit['id']}/request").json() == {"a": 1, "b": [2]}
    assert hit["cached"] is True and hit["cost"] == 0 and hit["success"] is True


def test_without_a_word_nothing_is_kept(edge: Served):
    assert [status(ask(edge)) for _ in range(3)] == ["MISS"] * 3
    assert len(edge.inference.requests) == 3


def test_a_request_s_word_about_keeping_beats_the_gateway_s(edge: Served):
    assert [status(ask(edge, cache_ttl=60)) for _ in range(2)] == ["MISS", "HIT"]
    assert status(ask(edge, cache_ttl=60, skip_cache="true")) == "MISS"
    assert status(edge.fetch("POST", WAY, payload=ASK, headers={"cf-cache-ttl": "60"})) == "HIT", "the old name"
    assert status(edge.fetch("POST", WAY, payload=ASK, headers={"cf-cache-ttl": "60", "cf-skip-cache": "true"})) == "MISS"


def test_a_named_key_finds_its_answer_whatever_is_asked(edge: Served):
    first = ask(edge, {"q": "one"}, cache_key="k")
    other = ask(edge, {"q": "two"}, f"{DATA}/workers-ai/@test/b", cache_key="k")
    assert (status(other), other.body) == ("HIT", first.body)
    assert status(ask(edge, {"q": "one"}, cache_key="l")) == "MISS"


def test_nobody_else_finds_it_neither_another_account_nor_another_gateway(edge: Served):
    for way in ("/gateway/v1/acc/g", "/gateway/v1/acc/default", "/gateway/v1/other/default", "/gateway/v1/other/h"):
        if way.endswith("h"):
            put(edge, "h", "other")
        for more in ({"cache_ttl": 60}, {"cache_key": "same"}):
            assert status(ask(edge, target=f"{way}/workers-ai/@test/a", **more)) == "MISS", (way, more)
            assert status(ask(edge, target=f"{way}/workers-ai/@test/a", **more)) == "HIT"


def test_another_version_of_a_model_answers_anew(edge: Served):
    edge.catalog.add("@test/c")
    way = f"{DATA}/workers-ai/@test/c"
    assert [status(ask(edge, target=way, cache_ttl=60)) for _ in range(2)] == ["MISS", "HIT"]
    edge.catalog.add("@test/c", description="mended")
    edge.catalog.models["@test/c"] = edge.catalog.add("@test/c-next")  # a digest of its own
    assert status(ask(edge, target=way, cache_ttl=60)) == "MISS"
    del edge.catalog.models["@test/c"], edge.catalog.models["@test/c-next"]
    assert ask(edge, target=way, cache_ttl=60).status == 400, "what is gone isn't answered for"


@pytest.mark.parametrize(
    ("behaviour", "kept"),
    [
        (answer(b"\x89PNG", type="image/png"), True),
        (answer(b"words", type="text/plain"), True),
        (answer(b"ID3", type="audio/mpeg"), False),
        (answer(b"{}", http_status=418), False),
        (refuse(BadRequest("no")), False),
        (items(b'{"a":1}', b'{"a":2}'), True),
        (items(b'{"a":1}', error=RunnerDied("gone")), False),
    ],
)
def test_only_good_whole_texts_and_pictures_are_kept(edge: Served, behaviour: Behaviour, kept: bool):
    edge.inference.behaviour = behaviour
    first = read(edge, {"stream": True})
    assert read(edge, {"stream": True}) == first
    assert len(edge.inference.requests) == (1 if kept else 2)


def read(edge: Served, payload: Any) -> tuple[int, str, bytes]:
    """Status, type and bytes, also of a stream that breaks."""
    with edge.connect() as connection:
        connection.send_request("POST", WAY, json.dumps(payload).encode(), {"cf-aig-cache-ttl": "60"})
        try:
            response = connection.read_response()
        except Closed as closed:
            return (0, "", closed.got[-60:])
        return (response.status, response.headers["content-type"], response.body if response.status == 200 else b"")


def test_a_stream_comes_as_it_is_made_and_again_as_it_was(edge: Served):
    edge.inference.behaviour = stay_silent
    with edge.connect() as connection:
        connection.send_request("POST", WAY, b'{"stream": true}', {"cf-aig-cache-ttl": "60"})
        until(lambda: edge.inference.requests)
        sink = edge.inference.last.sink
        edge.tell(sink.stream_begins, AnswerHead())
        edge.tell(sink.item, b'{"step":0}')
        head, events = connection.read_head(), connection.read_events()
        assert next(events).json() == {"step": 0}, "before the rest is there"
        assert head.headers["cf-aig-cache-status"] == "MISS"
        assert head.headers["content-type"] == "text/event-stream"
        edge.tell(sink.item, b'{"step":1}')
        edge.tell(sink.stream_ends, None)
        assert [event.data for event in events] == ['{"step":1}', "[DONE]"]
    again = ask(edge, {"stream": True}, cache_ttl=60)
    assert status(again) == "HIT" and again.headers["content-type"] == "text/event-stream"
    assert again.body == b'data: {"step":0}\n\ndata: {"step":1}\n\ndata: [DONE]\n\n'


def test_what_asks_for_a_job_or_after_one_is_never_kept(edge: Served):
    for target in (f"{WAY}?queueRequest=true", WAY):
        body = {"requests": [{}]} if "?" in target else {"requests": [{}], "options": {"queueRequest": True}}
        ids = {ask(edge, body, target, cache_ttl=60).result["request_id"] for _ in range(2)}
        assert len(ids) == 2


def test_a_stampede_of_identical_requests_is_answered_alike(edge: Served):
    waiting: list[Submitted] = []
    edge.inference.behaviour = waiting.append
    with ThreadPoolExecutor(16) as pool:
        asked = [pool.submit(ask, edge, ASK, cache_ttl=60) for _ in range(16)]
        until(lambda: len(waiting) == 16)
        for submitted in waiting:
            edge.tell(echo, submitted)
        responses = [each.result() for each in asked]
    assert {(each.status, status(each)) for each in responses} == {(200, "MISS")}, "nothing was kept yet when they came"
    assert len({each.body for each in responses}) == 1
    assert [status(ask(edge, cache_ttl=60)) for _ in range(3)] == ["HIT"] * 3
    assert len({log["id"] for log in logs(edge, per_page=100)}) == 19


# ---- attempts and entries


@pytest.mark.parametrize(
    ("failures", "attempts", "tries", "answered"), [(0, 3, 1, 200), (2, 3, 3, 200), (3, 3, 3, 500), (9, 5, 5, 500), (1, 1, 1, 500)]
)
def test_a_failed_request_is_tried_as_often_as_asked_and_each_try_is_a_request_of_the_model(
    edge: Served, failures: int, attempts: int, tries: int, answered: int
):
    edge.inference.behaviour = failing(failures)
    response = ask(edge, max_attempts=attempts, retry_delay=0)
    assert (response.status, len(edge.inference.requests)) == (answered, tries)
    (log,) = logs(edge)
    assert (log["attempts"], log["success"], log["status_code"]) == (tries, answered == 200, answered)


def test_a_gateway_s_own_attempts_count_where_the_request_says_nothing(edge: Served):
    put(edge, retry_max_attempts=2, retry_delay=0)
    edge.inference.behaviour = failing(1)
    assert ask(edge).status == 200
    edge.inference.behaviour = failing(1)
    assert ask(edge, max_attempts=1).status == 500


@pytest.mark.parametrize("error", [BadRequest("no"), None])
def test_what_the_caller_must_mend_is_tried_once(edge: Served, error: Exception | None):
    edge.inference.behaviour = failing(9, error) if error else answer(b"{}", http_status=422)
    assert ask(edge, max_attempts=5, retry_delay=0).status in (400, 422)
    assert len(edge.inference.requests) == 1


def test_a_slow_first_byte_ends_an_attempt_and_the_last_one_may_take_its_time(edge: Served):
    edge.inference.behaviour = stay_silent
    with edge.connect() as connection:
        headers = {"cf-aig-request-timeout": "20", "cf-aig-max-attempts": "3", "cf-aig-retry-delay": "0"}
        connection.send_request("POST", WAY, b"{}", headers)
        until(lambda: len(edge.inference.requests) == 3)
        assert [each.left for each in edge.inference.requests[:2]] == [True, True], "the work of those before is cancelled"
        edge.tell(echo, edge.inference.last)
        assert connection.read_response().status == 200
    refused = ask(edge, request_timeout=20)
    assert (refused.status, refused.code) == (408, 3046)
    assert edge.inference.last.left


def test_a_stream_that_has_begun_is_not_hurried(edge: Served):
    edge.inference.behaviour = stay_silent
    with edge.connect() as connection:
        connection.send_request("POST", WAY, b'{"stream": true}', {"cf-aig-request-timeout": "5000"})
        until(lambda: edge.inference.requests)
        sink = edge.inference.last.sink
        edge.tell(sink.stream_begins, AnswerHead())
        edge.tell(sink.item, b'{"step":0}')
        head, events = connection.read_head(), connection.read_events()
        next(events)
        edge.tell(sink.stream_ends, RunnerDied("gone"))
        stream = connection.rest_of_events(head)
        assert [event.name for event in stream.events] == ["error"] and not stream.complete
    (log,) = logs(edge)
    assert (log["success"], log["status_code"]) == (False, 502)


def test_a_stream_that_fails_before_its_first_item_is_tried_again(edge: Served):
    plays = [items(error=RunnerDied("gone")), items(b'{"a":1}')]
    edge.inference.behaviour = lambda submitted: plays.pop(0)(submitted)
    response = ask(edge, {"stream": True}, max_attempts=2, retry_delay=0)
    assert response.status == 200 and b'{"a":1}' in response.body


ENTRIES = [
    {"provider": "workers-ai", "endpoint": "@test/nothing", "query": {}},
    {"provider": "openai", "endpoint": "chat/completions", "headers": {"Authorization": "Bearer x"}, "query": {}},
    {"provider": "workers-ai", "endpoint": "@test/a", "query": {"x": "a"}},
    {"provider": "workers-ai", "endpoint": "@test/b", "query": {"x": "b"}},
]


def test_entries_are_tried_in_their_order_until_one_answers(edge: Served):
    response = ask(edge, ENTRIES, DATA)
    assert response.result["echo"] == {"x": "a"} and response.headers["cf-aig-step"] == "2"
    edge.inference.behaviour = failing(1)
    response = ask(edge, ENTRIES, DATA)
    assert response.result["echo"] == {"x": "b"} and response.headers["cf-aig-step"] == "3"
    edge.inference.behaviour = refuse(ModelRaised("a bug"))
    response = ask(edge, ENTRIES, DATA)
    assert (response.status, response.code, response.headers["cf-aig-step"]) == (500, 3103, "3"), "the last one's refusal"
    assert [log["step"] for log in logs(edge, order_by_direction="asc")] == [2, 3, 3]


def test_an_entry_has_attempts_of_its_own(edge: Served):
    edge.inference.behaviour = failing(3)
    entries = [{**ENTRIES[2], "config": {"maxAttempts": 3, "retryDelay": 0}}, ENTRIES[3]]
    response = ask(edge, entries, DATA)
    assert (response.status, response.headers["cf-aig-step"], len(edge.inference.requests)) == (200, "1", 4)


def test_an_entry_may_be_one_of_openai_s_routes(edge: Served):
    edge.inference.behaviour = answer(COMPLETION)
    query = {"messages": [{"role": "user", "content": "Hi"}]}
    for provider, model, endpoint in (
        ("workers-ai", "@test/text", "v1/chat/completions"),
        ("compat", "workers-ai/@test/text", "chat/completions"),
    ):
        entry = {"provider": provider, "endpoint": endpoint, "query": {"model": model, **query}}
        assert ask(edge, [entry], DATA).json()["object"] == "chat.completion"


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"[]", "1 to 20"),
        (b"{", "JSON"),
        (b"3", "entries"),
        (b'[{"endpoint": "x"}]', "provider"),
        (json.dumps([{"provider": "workers-ai", "endpoint": "@test/a", "config": {"maxAttempts": 9}}]).encode(), "maxAttempts"),
        (json.dumps([{"provider": "workers-ai", "endpoint": "@test/a"}] * 21).encode(), "1 to 20"),
    ],
)
def test_a_list_that_can_t_be_is_refused_in_words(edge: Served, body: bytes, named: str):
    refused = edge.fetch("POST", DATA, body)
    assert refused.status == 400 and named in refused.message, refused.body


# ---- leaving


@pytest.mark.parametrize("payload", [{"x": 1}, {"x": 1, "stream": True}])
def test_a_gateway_that_is_removed_under_a_request_answers_it_and_keeps_nothing(edge: Served, payload: dict[str, Any]):
    put(edge, cache_ttl=60)
    edge.inference.behaviour = stay_silent
    with edge.connect() as connection:
        connection.send_request("POST", WAY, json.dumps(payload).encode(), {"content-type": "application/json"})
        until(lambda: edge.inference.requests)
        assert edge.fetch("DELETE", f"{GATEWAYS}/g").status == 200
        edge.tell(items(b'{"a": 1}') if "stream" in payload else echo, edge.inference.last)
        assert connection.read_response().status == 200
    put(edge, cache_ttl=60)
    edge.inference.behaviour = echo
    assert status(ask(edge, payload)) == "MISS", "another one has its name"


def test_what_was_asked_of_a_removed_gateway_is_in_no_log_of_the_next_one_of_its_name(edge: Served):
    edge.inference.behaviour = stay_silent
    with edge.connect() as connection:
        connection.send_request("POST", WAY, json.dumps(ASK).encode(), {"content-type": "application/json"})
        until(lambda: edge.inference.requests)
        assert edge.fetch("DELETE", f"{GATEWAYS}/g").status == 200
        put(edge)
        edge.tell(echo, edge.inference.last)
        assert connection.read_response().status == 200
    assert logs(edge) == []


def test_a_gateway_that_is_removed_between_two_entries_asks_the_second(edge: Served):
    put(edge, cache_ttl=60)
    edge.inference.behaviour = stay_silent
    with edge.connect() as connection:
        entries: list[dict[str, Any]] = [{"provider": "workers-ai", "endpoint": name, "query": {}} for name in ("@test/a", "@test/b")]
        connection.send_request("POST", DATA, json.dumps(entries).encode(), {"content-type": "application/json"})
        until(lambda: edge.inference.requests)
        assert edge.fetch("DELETE", f"{GATEWAYS}/g").status == 200
        edge.tell(refuse(ModelRaised("a bug")), edge.inference.last)
        until(lambda: len(edge.inference.requests) == 2)
        edge.tell(echo, edge.inference.last)
        assert connection.read_response().headers["cf-aig-step"] == "1"


@pytest.mark.parametrize("attempts", [1, 3])
@pytest.mark.parametrize("named", [{}, {"cf-aig-gateway-id": "g"}])
def test_a_stream_that_its_door_gives_up_ends_at_once_and_is_not_tried_again(edge: Served, named: dict[str, str], attempts: int):
    put(edge, account="local")
    edge.inference.behaviour = stay_silent
    body = {"model": "@test/text", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    with edge.connect() as connection:
        headers = {**named, "cf-aig-max-attempts": str(attempts), "content-type": "application/json"}
        connection.send_request("POST", "/v1/chat/completions", json.dumps(body).encode(), headers)
        until(lambda: edge.inference.requests)
        sink = edge.inference.last.sink
        edge.tell(sink.stream_begins, AnswerHead())
        edge.tell(sink.item, b'{"response": "a"}')
        assert connection.read_head().status == 200
        edge.tell(sink.item, b'{"response": "b", "tool_calls": -5}')
        told: list[str] = []
        with pytest.raises(Closed):
            told.extend(event.data for event in connection.read_events())
    assert "3103" in told[-1]
    assert len(edge.inference.requests) == 1 and edge.inference.last.left


def test_a_caller_that_leaves_cancels_the_attempt(edge: Served):
    edge.inference.behaviour = stay_silent
    with edge.connect() as connection:
        connection.send_request("POST", WAY, b"{}", {"cf-aig-max-attempts": "5", "cf-aig-retry-delay": "0"})
        until(lambda: edge.inference.requests)
    until(lambda: edge.inference.last.left)
    until(lambda: logs(edge))
    (log,) = logs(edge)
    assert (log["success"], log["status_code"]) == (False, 499)
    assert len(edge.inference.requests) == 1


def test_a_caller_that_leaves_between_two_attempts_ends_them(edge: Served):
    edge.inference.behaviour = failing(9)
    with edge.connect() as connection:
        connection.send_request("POST", WAY, b"{}", {"cf-aig-max-attempts": "5", "cf-aig-retry-delay": "5000"})
        until(lambda: edge.inference.requests)
    until(lambda: logs(edge))
    assert len(edge.inference.requests) == 1


def test_what_a_reader_takes_is_given_back_to_the_model_and_no_more(edge: Served):
    edge.inference.behaviour = stay_silent
    item = json.dumps({"text": "x" * 16_000}).encode()
    with edge.connect(receive_buffer=4096, timeout_s=30) as connection:
        connection.send_request("POST", WAY, b'{"stream": true}')
        until(lambda: edge.inference.requests)
        submitted = edge.inference.last
        edge.tell(submitted.sink.stream_begins, AnswerHead())
        sent = 0

        def send_until_full() -> None:
            nonlocal sent
            while sent - submitted.taken < 262_144 and sent < 400 * len(item):  # as a runner with a window would
                submitted.sink.item(item)
                sent += len(item)

        for _ in range(50):
            edge.tell(send_until_full)
        assert 0 < sent - submitted.taken <= 262_144 + len(item)
        head = connection.read_head()
        assert head.status == 200
        for number, _ in enumerate(connection.read_events(), 1):
            edge.tell(send_until_full)
            if number == 400:
                break
        until(lambda: submitted.taken == sent == 400 * len(item), what="all of it was taken")
        edge.tell(submitted.sink.stream_ends, None)


def test_a_deadline_holds_over_all_attempts(edge: Served):
    edge.inference.behaviour = refuse(ModelRaised("a bug"))
    headers = {"cf-aig-max-attempts": "5", "cf-aig-retry-delay": "100", "x-timeout-ms": "50"}
    refused = edge.fetch("POST", WAY, b"{}", headers=headers)
    assert (refused.status, refused.code) == (408, 3046)
    assert len(edge.inference.requests) < 5
    put(edge, retry_max_attempts=5, retry_delay=60_000)
    refused = edge.fetch("POST", WAY, b"{}", headers={"x-timeout-ms": "50"})
    assert (refused.status, refused.code) == (408, 3046) and refused.took_s < 30, "wherever it waits"


# ---- rates


@pytest.mark.parametrize("technique", ["fixed", "sliding"])
def test_no_more_come_through_than_the_limit_says_however_many_come_at_once(edge: Served, technique: str):
    put(edge, rate_limiting_interval=3600, rate_limiting_limit=7, rate_limiting_technique=technique)
    with ThreadPoolExecutor(8) as pool:
        responses = [each.result() for each in [pool.submit(ask, edge) for _ in range(24)]]
    assert sorted(each.status for each in responses) == [200] * 7 + [429] * 17
    assert len(edge.inference.requests) == 7
    refused = next(each for each in responses if each.status == 429)
    assert refused.code == 3106 and 0 < int(refused.headers["retry-after"]) <= 3600
    assert ask(edge, target="/gateway/v1/acc/default/workers-ai/@test/a").status == 200, "each gateway counts for itself"
    put(edge, rate_limiting_interval=None, rate_limiting_limit=None)
    assert ask(edge).status == 200
    assert len(logs(edge, success="false", per_page=100)) == 17


def test_attempts_and_entries_count_once(edge: Served):
    put(edge, rate_limiting_interval=3600, rate_limiting_limit=2)
    edge.inference.behaviour = failing(4)
    assert ask(edge, max_attempts=5, retry_delay=0).status == 200
    assert ask(edge, ENTRIES, DATA).status == 200
    assert ask(edge).status == 429


# ---- gateways and logs, for their owners


def test_gateways_are_made_changed_listed_in_pages_that_end_and_removed(edge: Served):
    base = GATEWAYS.replace("/acc/", "/crud/")
    made = put(
        edge,
        "one",
        "crud",
        cache_ttl=60,
        collect_logs=True,
        cache_invalidate_on_update=True,
        rate_limiting_interval=0,
        rate_limiting_limit=0,
    )
    assert made.result["id"] == "one" and made.result["cache_ttl"] == 60 and made.result["is_default"] is False
    assert edge.fetch("POST", base, payload={"id": "one"}).status == 409
    changed = edge.fetch("PUT", f"{base}/one", payload={"retry_max_attempts": 3}).result
    assert (changed["retry_max_attempts"], changed["cache_ttl"], changed["created_at"]) == (3, 60, made.result["created_at"])
    put(edge, "two", "crud")
    pages = [edge.fetch("GET", f"{base}?per_page=2&page={page}") for page in (1, 2, 3)]
    assert [[each["id"] for each in page.result] for page in pages] == [["default", "one"], ["two"], []]
    assert pages[0].json()["result_info"]["total_count"] == 3
    assert [each["id"] for each in edge.fetch("GET", f"{base}?search=TW").result] == ["two"]
    assert edge.fetch("DELETE", f"{base}/one").result["id"] == "one"
    assert edge.fetch("GET", f"{base}/one").code == edge.fetch("DELETE", f"{base}/one").code == 2001
    assert edge.fetch("GET", f"{GATEWAYS}/two").status == 404, "another account's isn't there"


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({}, "id"),
        ({"id": "a b"}, "id"),
        ({"id": 5}, "id"),
        ({"id": "x", "cache_ttl": "long"}, "cache_ttl"),
        ({"id": "x", "cache_ttl": -1}, "cache_ttl"),
        ({"id": "x", "retry_backoff": "never"}, "retry_backoff"),
        ({"id": "x", "collect_logs": 3}, "collect_logs"),
        ({"id": "x", "dlp": {"enabled": True, "action": "BLOCK", "profiles": []}}, "dlp"),
        ([], "object"),
    ],
)
def test_a_gateway_that_can_t_be_is_refused_by_its_field(edge: Served, body: Any, named: str):
    refused = edge.fetch("POST", GATEWAYS, payload=body)
    assert refused.status == 400 and named in refused.message, refused.body


def test_a_log_tells_what_was_asked_and_answered(edge: Served):
    response = ask(edge, metadata='{"user": "ann", "n": 3, "late": true}', event_id="event-7", custom_cost='{"total_cost": 0.5}')
    one = f"{GATEWAYS}/g/logs/{response.headers['cf-aig-log-id']}"
    assert response.headers["cf-aig-event-id"] == "event-7"
    log = edge.fetch("GET", one).result
    assert json.loads(log["metadata"]) == {"user": "ann", "n": 3, "late": True}
    assert (log["provider"], log["model"], log["status_code"], log["success"]) == ("workers-ai", "@test/a", 200, True)
    assert (log["cost"], log["custom_cost"], log["event_id"]) == (0.5, True, "event-7")
    assert json.loads(log["request_head"]) == ASK and log["request_head_complete"] and log["request_size"] == len(json.dumps(ASK))
    assert log["response_head"].encode() == response.body and log["response_size"] == len(response.body)
    assert edge.fetch("GET", f"{one}/request").json() == ASK
    assert edge.fetch("GET", f"{one}/response").body == response.body
    assert edge.fetch("GET", one.replace("/acc/", "/other/").replace("/g/", "/default/")).code == 2002


@pytest.mark.parametrize("tokens", [-1, 2**63, 10**30, 10**400])
def test_whatever_a_model_says_it_counted_its_log_can_be_read(edge: Served, tokens: int):
    edge.catalog.add("@test/dear", task="text-generation", price={"input_token": 1e308})
    body = json.loads(COMPLETION)
    edge.inference.behaviour = answer(json.dumps({**body, "usage": dict.fromkeys(body["usage"], tokens)}).encode())
    for named in ({}, {"custom_cost": '{"per_token_in": 1e9, "per_token_out": 1e9}'}):
        response = ask(edge, {"prompt": "x"}, f"{DATA}/workers-ai/@test/dear", **named)
        assert response.status == 200, response.body
    assert [log["cost"] >= 0 and 0 <= log["tokens_in"] < 2**32 for log in logs(edge)] == [True, True]


def test_a_body_that_is_a_page_is_shown_and_never_run(edge: Served):
    response = edge.fetch("POST", WAY, b"<script>alert(1)</script>", headers={"content-type": "text/html"})
    for part in ("request", "response"):
        shown = edge.fetch("GET", f"{GATEWAYS}/g/logs/{response.headers['cf-aig-log-id']}/{part}")
        assert shown.status == 200 and shown.headers["content-security-policy"] == "sandbox", shown
        assert shown.headers["x-content-type-options"] == "nosniff"


def test_only_what_is_to_be_written_down_is(edge: Served):
    bare = ask(edge, collect_log_payload="false")
    (log,) = logs(edge)
    shown = edge.fetch("GET", f"{GATEWAYS}/g/logs/{log['id']}").result
    assert (shown["request_head"], shown["response_head"], shown["response_size"]) == ("", "", len(bare.body))
    assert not shown["request_head_complete"]
    assert "cf-aig-log-id" not in ask(edge, collect_log="false").headers
    put(edge, collect_logs=False)
    assert "cf-aig-log-id" not in ask(edge).headers
    assert ask(edge, collect_log="true").headers["cf-aig-log-id"]
    put(edge, collect_logs=True, zdr=True, cache_ttl=60)
    assert "cf-aig-log-id" not in ask(edge, collect_log="true").headers and status(ask(edge)) == "MISS"
    assert len(logs(edge)) == 2


def test_a_long_body_is_kept_to_its_bound(edge: Served):
    response = ask(edge, {"text": "x" * 100_000})
    log = edge.fetch("GET", f"{GATEWAYS}/g/logs/{response.headers['cf-aig-log-id']}").result
    assert not log["request_head_complete"] and not log["response_head_complete"] and log["response_size"] > 100_000
    assert len(edge.fetch("GET", f"{GATEWAYS}/g/logs/{log['id']}/request").body) == 64 * 1024


def test_feedback_score_and_metadata_are_said_afterwards(edge: Served):
    one = f"{GATEWAYS}/g/logs/{ask(edge, metadata=json.dumps({'a': 1})).headers['cf-aig-log-id']}"
    assert edge.fetch("PATCH", one, payload={"feedback": 1, "score": 77.5}).result["feedback"] == 1
    log = edge.fetch("PATCH", one, payload={"metadata": {"b": "x"}, "feedback": None}).result
    assert (log["feedback"], log["score"], json.loads(log["metadata"])) == (None, 77.5, {"b": "x"})
    wrongs: list[dict[str, Any]] = [{"feedback": 5}, {"score": "x"}, {"metadata": {"a": []}}, {"score": 1000}]
    for wrong in wrongs:
        refused = edge.fetch("PATCH", one, payload=wrong)
        assert refused.status == 400 and next(iter(wrong)) in refused.message
    assert edge.fetch("PATCH", f"{GATEWAYS}/g/logs/nothing", payload={}).code == 2002
    assert edge.fetch("GET", one).result["score"] == 77.5


def test_logs_are_found_by_what_they_say(edge: Served):
    ask(edge, metadata='{"user": "Ann"}', cache_ttl=60)
    ask(edge, metadata='{"user": "Bob"}', cache_ttl=60)
    ask(edge, target=f"{DATA}/workers-ai/@test/nothing")
    ask(edge, target=f"{DATA}/workers-ai/@test/b")
    everything = logs(edge)
    assert [log["model"] for log in everything] == ["@test/b", "@test/nothing", "@test/a", "@test/a"]
    assert len(logs(edge, success="false")) == 1 and len(logs(edge, cached="true")) == 1
    assert len(logs(edge, model="@test/a")) == 2 and logs(edge, provider="openai") == []
    assert len(logs(edge, search="ann")) == 1
    assert [log["model"] for log in logs(edge, order_by="model", order_by_direction="asc", per_page=1)] == ["@test/a"]
    for filter, count in (
        ({"key": "model", "operator": "contains", "value": ["TEST/B", "nothing"]}, 2),
        ({"key": "metadata.value", "operator": "eq", "value": ["Bob"]}, 1),
        ({"key": "metadata.key", "operator": "eq", "value": ["user"]}, 2),
        ({"key": "metadata.value", "operator": "neq", "value": ["Bob"]}, 3),
        ({"key": "status_code", "operator": "gt", "value": [399]}, 1),
        ({"key": "success", "operator": "neq", "value": [True]}, 1),
        ({"key": "feedback", "operator": "eq", "value": [None]}, 4),
        ({"key": "model", "operator": "eq", "value": ["x' OR 1=1 --"]}, 0),
    ):
        assert len(logs(edge, filters=quote(json.dumps([filter])))) == count, filter
        piece = {name: value if isinstance(value, str) else str(value[-1]).lower() for name, value in filter.items()}
        if len(filter["value"]) == 1 and filter["value"] != [None] and "Bob" not in filter["value"]:
            given = "&".join(f"filters[{name}]={quote(value)}" for name, value in piece.items())
            assert len(edge.fetch("GET", f"{GATEWAYS}/g/logs?{given}").result) == count, given
    several = "filters.key=model&filters.operator=eq&filters.value=@test/b&filters.value=@test/nothing"
    assert len(edge.fetch("GET", f"{GATEWAYS}/g/logs?{several}").result) == 2
    both = f"{several.rpartition('&')[0]}&filters.key=success&filters.operator=eq&filters.value=true"
    assert len(edge.fetch("GET", f"{GATEWAYS}/g/logs?{both}").result) == 1
    assert edge.fetch("GET", f"{GATEWAYS}/g/logs?{both}&filters.value=x").status == 400
    middle = everything[1]["created_at"]
    assert {log["id"] for log in logs(edge, start_date=middle)} | {log["id"] for log in logs(edge, end_date=middle)} == {
        log["id"] for log in everything
    }
    for wrong in ("order_by=x", "page=0", "per_page=1000", "success=2", "start_date=never", "min_cost=x", "filters=x", "filters=[{}]"):
        refused = edge.fetch("GET", f"{GATEWAYS}/g/logs?{wrong}")
        assert refused.status == 400 and wrong.partition("=")[0] in refused.message, wrong


def test_pages_of_logs_end_and_what_is_deleted_is_gone(edge: Served):
    for _ in range(5):
        ask(edge)
    pages = [logs(edge, page=page, per_page=2) for page in (1, 2, 3, 4)]
    assert [len(page) for page in pages] == [2, 2, 1, 0]
    assert len({log["id"] for page in pages for log in page}) == 5
    oldest = pages[2][0]["id"]
    assert edge.fetch("DELETE", f"{GATEWAYS}/g/logs?limit=1").json()["success"] is True
    assert edge.fetch("GET", f"{GATEWAYS}/g/logs/{oldest}").code == 2002
    filter = quote(json.dumps([{"key": "id", "operator": "eq", "value": [pages[0][0]["id"]]}]))
    edge.fetch("DELETE", f"{GATEWAYS}/g/logs?filters={filter}")
    assert len(logs(edge)) == 3
    edge.fetch("DELETE", f"{GATEWAYS}/g/logs")
    assert logs(edge) == []


def test_an_address_is_told_for_each_provider_that_is_here(edge: Served):
    host = f"127.0.0.1:{edge.address[1]}"
    for provider, rest in (("workers-ai", "/workers-ai"), ("compat", "/compat"), ("universal", "")):
        url = edge.fetch("GET", f"{GATEWAYS}/g/url/{provider}", headers={"host": host}).result
        assert url == f"http://{host}/gateway/v1/acc/g{rest}"
    assert edge.fetch("GET", f"{GATEWAYS}/g/url/openai").status == 400
    assert edge.fetch("GET", f"{GATEWAYS}/nothing/url/compat").status == 404
