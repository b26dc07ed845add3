"""Callers that leave, gateways that go, and deadlines."""

import json
from typing import Any

import pytest

from fornada.core.errors import ModelRaised
from fornada.core.requests import AnswerHead
from tests.harness.client import Closed
from tests.http.edge_server.conftest import Served, Windowed
from tests.http.edge_server.gateway.conftest import ASK, DATA, GATEWAYS, WAY, ask, failing, logs, put, status
from tests.unit.edge.fakes import echo, items, refuse, stay_silent, until


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
    with edge.connect(receive_buffer=4096, timeout_s=30) as connection:
        connection.send_request("POST", WAY, b'{"stream": true}')
        until(lambda: edge.inference.requests)
        model = Windowed(edge, edge.inference.last, 400)
        for _ in range(50):
            model.go_on()
        assert model.is_bounded()
        assert connection.read_head().status == 200
        model.read(connection)


def test_a_deadline_holds_over_all_attempts(edge: Served):
    edge.inference.behaviour = refuse(ModelRaised("a bug"))
    headers = {"cf-aig-max-attempts": "5", "cf-aig-retry-delay": "100", "x-timeout-ms": "50"}
    refused = edge.fetch("POST", WAY, b"{}", headers=headers)
    assert (refused.status, refused.code) == (408, 3046)
    assert len(edge.inference.requests) < 5
    put(edge, retry_max_attempts=5, retry_delay=60_000)
    refused = edge.fetch("POST", WAY, b"{}", headers={"x-timeout-ms": "50"})
    assert (refused.status, refused.code) == (408, 3046) and refused.took_s < 30, "wherever it waits"
