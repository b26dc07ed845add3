"""OpenAI's embeddings over a text-embeddings model."""

import base64
import json
import math
import struct
from pathlib import Path

import pytest

from fornada.core.errors import Busy
from tests.harness.waiting import until
from tests.http.edge_server.conftest import Served
from tests.unit.edge.fakes import Submitted, answer, items, refuse, stay_silent


def vectors(submitted: Submitted) -> None:
    texts = json.loads(submitted.body)["text"]
    data = [[float(len(text)), 0.25, -1.5] for text in texts]
    answer(json.dumps({"shape": [len(texts), 3], "data": data, "pooling": "mean"}).encode(), usage={"prompt_tokens": 7})(submitted)


@pytest.fixture(autouse=True)
def models(edge: Served) -> None:
    edge.catalog.add("@test/texts", task="text-embeddings", aliases=["@cf/baai/bge"])
    edge.inference.behaviour = vectors


def ask(edge: Served, base: str = "/v1", **payload: object):
    return edge.fetch("POST", f"{base}/embeddings", payload={"model": "@test/texts", **payload})


@pytest.mark.parametrize("base", ["/v1", "/client/v4/accounts/acc/ai/v1"])
def test_texts_become_a_list_of_embeddings(edge: Served, base: str):
    body = ask(edge, base, input=["a", "bcd"]).json()
    assert body == {
        "object": "list",
        "data": [
            {"object": "embedding", "index": 0, "embedding": [1.0, 0.25, -1.5]},
            {"object": "embedding", "index": 1, "embedding": [3.0, 0.25, -1.5]},
        ],
        "model": "@test/texts",
        "usage": {"prompt_tokens": 7, "total_tokens": 7},
    }
    assert edge.inference.last.request.account == ("local" if base == "/v1" else "acc")
    assert ask(edge, base, input="ab").json()["data"][0]["embedding"][0] == 2.0
    assert edge.fetch("POST", f"{base}/embeddings/", payload={"model": "@cf/baai/bge", "input": "x"}).json()["model"] == "@cf/baai/bge"


def test_base64_holds_little_endian_floats(edge: Served):
    (item,) = ask(edge, input="abc", encoding_format="base64").json()["data"]
    assert struct.unpack("<3f", base64.b64decode(item["embedding"])) == (3.0, 0.25, -1.5)
    edge.inference.behaviour = answer(b'{"data":[[1,null]]}', nonfinite=True)
    body = ask(edge, input="abc", encoding_format="base64").json()
    first, second = struct.unpack("<2f", base64.b64decode(body["data"][0]["embedding"]))
    assert first == 1 and math.isnan(second) and body["nonfinite"] is True
    body = ask(edge, input="abc").json()
    assert body["data"][0]["embedding"] == [1, None] and body["usage"] == {"prompt_tokens": 0, "total_tokens": 0}


def test_dimensions_cut_and_scale(edge: Served):
    (item,) = ask(edge, input="abc", dimensions=2).json()["data"]
    assert item["embedding"] == pytest.approx([3 / math.hypot(3, 0.25), 0.25 / math.hypot(3, 0.25)])
    assert ask(edge, input="abc", dimensions=3).json()["data"][0]["embedding"] == [3.0, 0.25, -1.5]
    assert (ask(edge, input="abc", dimensions=4).status, ask(edge, input="abc", dimensions=4).code) == (400, 5006)


def test_more_texts_than_a_model_must_take_are_run_a_hundred_at_a_time(edge: Served):
    body = ask(edge, input=["x" * (number % 7 + 1) for number in range(250)]).json()
    assert [item["index"] for item in body["data"]] == list(range(250))
    assert [item["embedding"][0] for item in body["data"]] == [number % 7 + 1 for number in range(250)]
    assert body["usage"] == {"prompt_tokens": 21, "total_tokens": 21}, "of all runs together"
    runs = edge.inference.requests
    assert [len(json.loads(run.body)["text"]) for run in runs] == [100, 100, 50]
    assert len({(run.request.deadline, run.request.version) for run in runs}) == 1, "within one deadline, by one version"
    assert runs[0].request.version and runs[0].request.deadline
    assert len(ask(edge, input=["x"] * 2000, encoding_format="base64", dimensions=2).json()["data"]) == 2000
    edge.inference.requests.clear()
    ask(edge, input=["x"] * 100)
    assert len(edge.inference.requests) == 1


def test_a_run_that_fails_is_the_answer_to_the_whole_list(edge: Served):
    def second_refuses(submitted: Submitted) -> None:
        (refuse(Busy("the queue is full", retry_after_s=2)) if len(edge.inference.requests) == 2 else vectors)(submitted)

    edge.inference.behaviour = second_refuses
    assert ask(edge, input=["x"] * 350).code == 3040
    assert len(edge.inference.requests) == 2, "nothing is run after it"
    edge.inference.behaviour = answer(b'{"data":[[1]]}')
    assert "100 texts" in ask(edge, input=["x"] * 150).message


def test_who_leaves_takes_the_rest_of_a_list_along(edge: Served):
    def second_waits(submitted: Submitted) -> None:
        (stay_silent if len(edge.inference.requests) == 2 else vectors)(submitted)

    edge.inference.behaviour = second_waits
    with edge.connect() as connection:
        connection.send_request("POST", "/v1/embeddings", json.dumps({"model": "@test/texts", "input": ["x"] * 350}).encode())
        until(lambda: len(edge.inference.requests) == 2, within_s=5, what="the second run began")
    until(lambda: edge.inference.last.left, within_s=5, what="the second run was left")
    assert len(edge.inference.requests) == 2


def test_a_model_with_a_schema_of_its_own_says_how_many_it_takes(edge: Served, tmp_path: Path):
    schema = {"type": "object", "properties": {"text": {"type": "array", "maxItems": 150}}, "required": ["text"]}
    (tmp_path / "input.json").write_text(json.dumps(schema))
    edge.catalog.add("@test/own", task="text-embeddings", folder=str(tmp_path), schema={"input": "input.json"})
    assert len(ask(edge, model="@test/own", input=["x"] * 150).json()["data"]) == 150
    assert len(edge.inference.requests) == 1
    assert ask(edge, model="@test/own", input=["x"] * 151).code == 5006


@pytest.mark.parametrize(
    ("payload", "word"),
    [
        ({}, "input"),
        ({"input": 5}, "input"),
        ({"input": []}, "input"),
        ({"input": ""}, "input"),
        ({"input": ["a", ""]}, "input"),
        ({"input": [1, 2]}, "input"),
        ({"input": [[1, 2]]}, "input"),
        ({"input": ["a", 1]}, "input"),
        ({"input": ["x"] * 3000}, "input"),
        ({"input": "x", "encoding_format": "hex"}, "encoding_format"),
        ({"input": "x", "dimensions": 0}, "dimensions"),
        ({"input": "x", "dimensions": "3"}, "dimensions"),
        ({"input": "x", "model": 5}, "model"),
        ({"input": "x", "model": "a/../b"}, "name"),
    ],
)
def test_what_can_t_be_is_refused_by_name(edge: Served, payload: dict, word: str):
    response = ask(edge, **payload)
    assert (response.status, response.code) == (400, 5006), response.body
    assert word in response.message
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert edge.inference.requests == []


def test_broken_bodies_are_refused(edge: Served):
    for body in (b"", b"{", b"[]", b"5", b'{"model":"@test/texts","input":"\\ud800 alone"}', b'{"model":"a","model":"b","input":"x"}'):
        response = edge.fetch("POST", "/v1/embeddings", body)
        assert (response.status, response.code) == (400, 5006), body


def test_other_models_make_no_embeddings(edge: Served):
    response = ask(edge, input="x", model="@test/a")
    assert response.status == 400 and "embeddings" in response.message
    response = ask(edge, input="x", model="@no/such")
    assert (response.status, response.json()["error"]["code"]) == (404, "5007")


@pytest.mark.parametrize("body", [b"{}", b"[]", b'{"data":5}', b'{"data":[[1],[2]]}', b"nothing"])
@pytest.mark.parametrize("form", ["float", "base64"])
def test_a_model_that_answers_something_else_is_at_fault(edge: Served, body: bytes, form: str):
    edge.inference.behaviour = answer(body)
    response = ask(edge, input="x", encoding_format=form)
    assert (response.status, response.code) == (500, 3103)
    edge.inference.behaviour = items(b"{}")
    assert ask(edge, input="x").code == 3103
    assert edge.inference.last.left


def test_capacity_reads_as_openai_s_clients_expect(edge: Served):
    edge.inference.behaviour = refuse(Busy("the queue is full", retry_after_s=2))
    response = ask(edge, input="x")
    assert (response.status, response.code, response.headers["retry-after"]) == (429, 3040, "2")
    assert response.json()["error"] == {
        "message": "Capacity temporarily exceeded, please try again. (the queue is full)",
        "type": "rate_limit_error",
        "param": None,
        "code": "3040",
    }
