"""What is written down, and who finds it."""

import json
from typing import Any
from urllib.parse import quote

import pytest

from tests.http.edge_server.conftest import Served
from tests.http.edge_server.gateway.conftest import ASK, COMPLETION, DATA, GATEWAYS, WAY, ask, logs, put, status
from tests.unit.edge.fakes import answer


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
    put(edge, collect_logs=True, cache_ttl=60)
    for _ in range(2):
        bare = ask(edge, {"x": "nothing of it"}, zdr="true", collect_log="true", cache_key="k")
        assert "cf-aig-log-id" not in bare.headers and status(bare) == "MISS"
    put(edge, zdr=True)
    assert "cf-aig-log-id" not in ask(edge, zdr="false").headers, "it can't be taken back by a request"
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
    wrongs: list[dict[str, Any]] = [
        *({"feedback": value} for value in (5, "1", True, 0.5)),
        *({"score": value} for value in ("x", 1000, -1, True)),
        *({"metadata": value} for value in ("x", {"k" * 513: 1}, {"a": "x" * 513})),
        {"metadata": {"a": []}},
        {"metadata": []},
        {"feedbak": 1},
        {"id": "x"},
    ]
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
