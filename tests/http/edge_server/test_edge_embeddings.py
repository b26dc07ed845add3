"""OpenAI's embeddings over a text-embeddings model."""

import base64
import json
import math
import struct

import pytest

from fornada.core.errors import Busy
from tests.http.edge_server.conftest import Served
from tests.unit.edge.fakes import Submitted, answer, items, refuse


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


def test_more_texts_than_workers_ai_takes_are_fine_here(edge: Served):
    assert len(ask(edge, input=["x"] * 2000).json()["data"]) == 2000


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
