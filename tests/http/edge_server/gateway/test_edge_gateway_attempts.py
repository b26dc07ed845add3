"""Attempts, entries and rates."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from fornada.core.errors import BadRequest, ModelRaised, RunnerDied
from fornada.core.requests import AnswerHead
from tests.http.edge_server.conftest import Served
from tests.http.edge_server.gateway.conftest import COMPLETION, DATA, WAY, ask, failing, logs, put
from tests.unit.edge.fakes import answer, echo, items, refuse, stay_silent, until


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
