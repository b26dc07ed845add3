"""Each shape of input and output that Workers AI's models have (WORKERS_AI.md, 5), on a real node, with stand-ins: as JSON, raw bytes and forms."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jsonschema_rs
import pytest

from tests.docs.test_examples import CONTRACT, FORMS, expected, request_of
from tests.harness.client import Response
from tests.harness.node import RUN, Node, run_path
from tests.harness.waiting import until

BOUNDARY = "bOuNdArY"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("forms"))
    try:
        node.start()
        for folder in (*CONTRACT, *FORMS):
            node.deploy(f"@contract/{folder.name}", folder)
        yield node
        assert node.stop() == 0, node.said()
    finally:
        node.destroy()


def schema(node: Node, slug: str) -> Any:
    return node.fetch("GET", f"/client/v4/accounts/local/ai/models/schema?model={quote(f'@contract/{slug}', safe='')}").result


def raw(node: Node, slug: str, body: bytes, type: str = "application/x-www-form-urlencoded", *, query: str = "") -> Response:
    """As curl's --data-binary sends it."""
    return node.fetch("POST", f"{run_path(f'@contract/{slug}')}{query}", body, headers={"content-type": type})


@pytest.mark.parametrize("folder", [*CONTRACT, *FORMS], ids=lambda folder: folder.name)
def test_the_documented_request_gets_the_documented_shape(node: Node, folder: Path):
    path, wanted = request_of(folder), expected(folder)
    body = path.read_bytes()
    for type in ("application/json", "text/plain;charset=UTF-8", "application/x-www-form-urlencoded"):
        answer = raw(node, folder.name, body, type)
        assert answer.status == 200, answer.body[:500]
        if isinstance(wanted, bytes):
            assert answer.headers["content-type"] in ("image/png", "audio/mpeg") and answer.body == wanted, "raw, without an envelope"
            continue
        assert answer.result == wanted
        assert answer.json()["success"] is True and answer.json()["errors"] == answer.json()["messages"] == []
        jsonschema_rs.validate(schema(node, folder.name)["output"], answer.result)


@pytest.mark.parametrize("folder", [folder for folder in FORMS if (folder / "input.schema.json").exists()], ids=lambda folder: folder.name)
def test_what_a_shape_lacks_is_refused_by_name_before_it_is_loaded(node: Node, folder: Path):
    name = f"@contract/{folder.name}"
    given = json.loads(request_of(folder).read_bytes())
    required = schema(node, folder.name)["input"].get("required", [])
    loads = node.loads(name)
    assert node.unload(name).status == 200
    for field in required:
        answer = node.run(name, {key: value for key, value in given.items() if key != field})
        assert (answer.status, answer.code) == (400, 5006) and f"'{field}'" in answer.json()["errors"][0]["message"], answer.body
    assert node.run(name, []).status == 400 and node.run(name, "x").status == 400
    assert node.loads(name) == loads


def test_a_reranker_takes_null_for_what_is_left_out(node: Node):
    answer = node.ask("@contract/reranker", {"query": "ab", "contexts": [{"text": "b"}, {"text": "ab"}], "top_k": None})
    assert [each["id"] for each in answer["response"]] == [1, 0]
    assert node.run("@contract/reranker", {"query": "", "contexts": [{"text": "b"}]}).status == 400
    assert node.run("@contract/reranker", {"query": "a", "contexts": [{}]}).status == 400


def test_bge_m3_has_three_shapes(node: Node):
    assert node.ask("@contract/bge-m3", {"text": "aab"}) == {"shape": [1, 3], "data": [[2.0, 1.0, 0.0]], "pooling": "cls"}
    assert node.ask("@contract/bge-m3", {"text": ["a", "b"], "truncate_inputs": True})["shape"] == [2, 3]
    assert node.ask("@contract/bge-m3", {"contexts": [{"text": "c"}]}) == {"response": [[0.0, 0.0, 1.0]], "shape": [1, 3], "pooling": "cls"}
    assert node.ask("@contract/bge-m3", {"query": "a", "contexts": [{"text": "a"}]}) == {"response": [{"id": 0, "score": 1.0}]}
    assert node.run("@contract/bge-m3", {"query": "a"}).status == 400


def test_qwen3_embedding_takes_queries_documents_or_texts(node: Node):
    for name in ("queries", "documents", "text"):
        assert node.ask("@contract/qwen3-embedding", {name: "abc"})["shape"] == [1, 2]
        assert node.ask("@contract/qwen3-embedding", {name: ["abc", "x"]})["shape"] == [2, 2]
        assert node.run("@contract/qwen3-embedding", {name: []}).status == 400


def test_recordings_come_in_every_form_and_their_options_by_the_query(node: Node):
    sound = b"ID3sound"
    heard = {"audio": base64.b64encode(sound).decode()}
    for answer in (
        raw(node, "nova-3", sound, "audio/mpeg", query="?detect_language=true&unknown=1"),
        raw(node, "nova-3", sound, query="?detect_language=true"),
        node.run("@contract/nova-3", {**heard, "detect_language": True}),
        node.run("@contract/nova-3", {"audio": list(sound), "detect_language": True, "language": None}),
    ):
        assert answer.result["results"]["channels"][0]["alternatives"][0]["transcript"] == "8 bytes, any"
    turbo = {"vad_filter": False, "initial_prompt": "", "beam_size": 5, "hallucination_silence_threshold": None}
    assert node.ask("@contract/whisper-large-v3-turbo", {**heard, **turbo})["text"] == "8 bytes"
    assert raw(node, "whisper-large-v3-turbo", sound).result["word_count"] == 2
    assert node.run("@contract/whisper-large-v3-turbo", {**heard, "task": "sing"}).status == 400
    assert node.ask("@contract/smart-turn", {**heard, "dtype": "float32"}) == {"is_complete": True, "probability": 0.9}
    assert node.run("@contract/smart-turn", {**heard, "dtype": "int8"}).status == 400


def test_a_form_s_pictures_reach_a_model_that_takes_forms(node: Node):
    def part(name: str, more: str, data: bytes) -> bytes:
        return f'--{BOUNDARY}\r\ncontent-disposition: form-data; name="{name}"{more}\r\n\r\n'.encode() + data + b"\r\n"

    fields = part("prompt", "", b"cyberpunk cat") + part("steps", "", b"25") + part("width", "", b"512")
    end = f"--{BOUNDARY}--\r\n".encode()
    kind = f"multipart/form-data; boundary={BOUNDARY}"
    plain = raw(node, "flux-2", fields + end, kind)
    assert plain.result == expected(next(folder for folder in FORMS if folder.name == "flux-2"))
    pictured = raw(node, "flux-2", fields + part("input_image_0", '; filename="a.png"', b"\x89PNG\r\n") + end, kind)
    assert pictured.status == 200 and pictured.result != plain.result
    assert raw(node, "flux-2", part("prompt", "", b"x") + part("steps", "", b"many") + end, kind).status == 400


def test_moondream_has_four_tasks(node: Node):
    picture = "data:image/png;base64," + base64.b64encode(b"\x89PNG").decode()
    for task, field in (("query", "answer"), ("caption", "caption"), ("point", "points"), ("detect", "objects")):
        answer = node.ask("@contract/moondream", {"image": picture, "task": task, "target": "x"})
        assert field in answer and answer["finish_reason"] == "stop" and "input_tokens" in answer["metrics"]
    refused = node.run("@contract/moondream", {"image": "https://example.com/a.png", "task": "query"})
    assert refused.status == 400, "nothing is fetched for a caller"


def test_the_model_may_stand_in_the_body_and_its_own_model_field_within_the_input(node: Node):
    folder = next(folder for folder in FORMS if folder.name == "clairic")
    given = json.loads(request_of(folder).read_bytes())
    answer = node.fetch("POST", RUN.rstrip("/"), payload={"model": "@contract/clairic", "input": given})
    assert answer.result == expected(folder)


@pytest.mark.parametrize(
    "name", ["@contract/reranker", "@contract%2Freranker", "%40contract%2Freranker", "@contract/reranker/", "@contract/reranker?"]
)
def test_every_spelling_of_a_name_runs_it(node: Node, name: str):
    folder = next(folder for folder in FORMS if folder.name == "reranker")
    answer = node.fetch(
        "POST", f"{RUN}{name}", request_of(folder).read_bytes(), headers={"api-version": "2026-11-30", "x-stainless-lang": "js"}
    )
    assert answer.result == expected(folder)


def test_a_list_of_any_shape_can_be_queued(node: Node):
    folder = next(folder for folder in FORMS if folder.name == "indictrans2")
    given = json.loads(request_of(folder).read_bytes())
    name = "@contract/indictrans2"
    asked = [{**given, "external_reference": "one"}, {**given, "text": "x"}, {"text": "x"}]
    queued = node.fetch("POST", f"{run_path(name)}?queueRequest=true", payload={"requests": asked}).result
    assert queued["status"] == "queued" and queued["model"] == name
    poll = {"request_id": queued["request_id"]}
    until(lambda: "responses" in node.ask(name, poll), within_s=30, what="the job is done")
    results = {each["id"]: each for each in node.ask(name, poll)["responses"]}
    assert results[0]["result"] == expected(folder) and results[0]["external_reference"] == "one"
    assert results[1]["result"] == {"translations": ["x"]} and results[1]["external_reference"] is None
    assert results[2]["success"] is False and "target_language" in results[2]["error"]
