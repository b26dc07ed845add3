"""What a gateway keeps of answers, and for whom."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fornada.core.errors import BadRequest, RunnerDied
from fornada.core.requests import AnswerHead
from tests.harness.client import Closed
from tests.http.edge_server.conftest import Served
from tests.http.edge_server.gateway.conftest import ASK, DATA, GATEWAYS, WAY, ask, logs, put, status
from tests.unit.edge.fakes import Behaviour, Submitted, answer, echo, items, refuse, stay_silent, until


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


def test_a_named_key_s_answer_is_found_by_none_that_could_not_read_it(edge: Served):
    whole, streamed = answer(b'{"response": "Hi"}'), items(b'{"response": "Hi"}')
    edge.inference.behaviour = lambda submitted: (streamed if submitted.request.stream else whole)(submitted)
    put(edge, account="local")
    said = {"model": "@test/text", "messages": [{"role": "user", "content": "Hi"}]}
    ways: dict[str, tuple[str, dict[str, Any]]] = {
        "chat": ("/v1/chat/completions", said),
        "message": ("/v1/messages", {**said, "max_tokens": 5}),
        "response": ("/v1/responses", {"model": "@test/text", "input": "Hi", "store": False}),
        "run": ("/client/v4/accounts/local/ai/run/@test/text", {"prompt": "Hi"}),
    }
    seen: dict[str, bytes] = {}
    for turn in ("MISS", "HIT"):
        for name, (target, body) in ways.items():
            for stream in (False, True):
                response = ask(edge, {**body, "stream": stream}, target, gateway_id="g", cache_key="same")
                assert (response.status, status(response)) == (200, turn), (name, stream, response.body)
                assert response.headers["content-type"].startswith("text/event-stream" if stream else "application/json"), (name, stream)
                assert seen.setdefault(f"{name} {stream}", response.body) == response.body
    assert len(set(seen.values())) == 8


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
