"""The Open Inference Protocol over HTTP against a node: what its specification and Triton's extensions say, and cases 32 to 37 in it."""

import json
import math
import random
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from tests.bounds import count
from tests.harness.client import Response
from tests.harness.node import Node

MODEL = "@test/tensors"
INFER = f"/v2/models/{MODEL}/infer"
LENGTH = "Inference-Header-Content-Length"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    made = Node(tmp_path_factory.mktemp("oip")).start()
    try:
        made.deploy_probe(MODEL)
        made.load(MODEL)
        yield made
        assert made.stop() == 0, made.said()
    finally:
        made.destroy()


def x(data: Any = (1.0, 2.5), **more: Any) -> dict[str, Any]:
    return {"name": "x", "datatype": "FP32", "shape": [len(data)], "data": list(data), **more}


def infer(node: Node, payload: Any, *, path: str = INFER, headers: dict[str, str] | None = None) -> Response:
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return node.fetch("POST", path, body, headers=headers)


def strict(text: bytes) -> Any:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


def test_json_in_and_json_out(node: Node):
    given = {"id": "42", "inputs": [x(), {"name": "n", "datatype": "INT64", "shape": [1], "data": [2**53 + 1]}]}
    answer = infer(node, given)
    assert answer.status == 200, answer.body
    said = strict(answer.body)
    assert (said["model_name"], said["id"]) == (MODEL, "42")
    assert said["outputs"] == [
        {"name": "x", "datatype": "FP32", "shape": [2], "data": [1.0, 2.5]},
        {"name": "n", "datatype": "INT64", "shape": [1], "data": [2**53 + 1]},
    ]
    assert said["parameters"]["pid"] in node.pids(MODEL)


def test_only_the_outputs_that_are_asked_for_come(node: Node):
    given = {"inputs": [x(), {"name": "b", "datatype": "BYTES", "shape": [1], "data": ["é"]}], "outputs": [{"name": "b"}]}
    assert [each["name"] for each in strict(infer(node, given).body)["outputs"]] == ["b"]
    assert infer(node, {**given, "outputs": [{"name": "z"}]}).status == 400


def test_numbers_that_are_none_are_null_in_json_and_exact_as_bytes(node: Node):
    raw = struct.pack("<3f", math.nan, math.inf, -math.inf)
    text = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [3], "parameters": {"binary_data_size": 12}}]}).encode()
    said = strict(infer(node, text + raw, headers={LENGTH: str(len(text))}).body)
    assert said["outputs"][0]["data"] == [None, None, None]
    assert said["nonfinite"] is True
    text = text[:-1] + b',"outputs":[{"name":"x","parameters":{"binary_data":true}}]}'
    answer = infer(node, text + raw, headers={LENGTH: str(len(text))})
    size = int(answer.headers[LENGTH.lower()])
    assert answer.headers["content-type"] == "application/octet-stream"
    assert strict(answer.body[:size])["outputs"][0]["parameters"] == {"binary_data_size": 12}
    assert answer.body[size:] == raw


def test_the_same_bytes_reach_the_model_in_every_form(node: Node):
    element = b"\xff\x00a"
    framed = struct.pack("<I", 3) + element
    coded = {"name": "b", "datatype": "BYTES", "shape": [1], "data": ["/wBh"], "parameters": {"content_type": "base64"}}
    text = json.dumps({"inputs": [{"name": "b", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 7}}]}).encode()
    plain, binary = infer(node, {"inputs": [coded]}), infer(node, text + framed, headers={LENGTH: str(len(text))})
    for answer in (plain, binary):
        assert answer.status == 200, answer.body
        assert strict(answer.body)["outputs"] == [{**coded, "name": "b"}]


@pytest.mark.parametrize("declared", ["FP32", "INT64", "BYTES"])
@pytest.mark.parametrize("sent", ["BOOL", "UINT8", "INT32", "INT64", "FP16", "FP32", "FP64", "BYTES"])
def test_another_type_than_declared_is_named(node: Node, declared: str, sent: str):
    name = {"FP32": "x", "INT64": "n", "BYTES": "b"}[declared]
    value: Any = {"BOOL": True, "BYTES": "a"}.get(sent, 1)
    answer = infer(node, {"inputs": [{"name": name, "datatype": sent, "shape": [1], "data": [value]}]})
    if sent == declared:
        assert answer.status == 200, answer.body
        return
    assert answer.status == 400
    said = strict(answer.body)
    assert said["error"] == f"input '{name}': got {sent}, expects {declared}"
    assert (said["success"], said["errors"][0]["code"]) == (False, 5006)


def test_errors_are_texts_with_the_codes_of_every_door(node: Node):
    for path, body, status, code in (
        ("/v2/models/nobody/infer", {"inputs": [x()]}, 404, 5007),
        (f"/v2/models/{MODEL}/versions/0123456789ab/infer", {"inputs": [x()]}, 404, 5007),
        (f"/v2/models/{MODEL}/versions/9/infer", {"inputs": [x()]}, 400, 5006),
        ("/v2/models/@fornada/vader/infer", {"inputs": [x()]}, 400, 5006),
        ("/v2/models/..%2F..%2Fetc/infer", {"inputs": [x()]}, 400, 5006),
        (INFER, {"inputs": [x()], "parameters": {"sleep_s": 20, "timeout": 100000}}, 408, 3046),
        (INFER, {"inputs": [x()], "parameters": {"bad": True}}, 400, 5006),
    ):
        answer = infer(node, body, path=path)
        said = strict(answer.body)
        assert (answer.status, said["errors"][0]["code"]) == (status, code), answer.body
        assert isinstance(said["error"], str)
        assert said["error"]


def test_a_body_beyond_the_models_limit_is_refused_with_the_limit(node: Node):
    answer = infer(node, {"inputs": [x([1.0] * 3_000_000)]})
    assert answer.status == 413
    assert "10485760" in strict(answer.body)["error"]
    # Few bytes of JSON can be more as tensors: what the runner gets is bounded, too.
    answer = infer(node, {"inputs": [{"name": "n", "datatype": "INT64", "shape": [2_000_000], "data": [1] * 2_000_000}]})
    assert answer.status == 413


def test_a_long_tensor_comes_back(node: Node):
    raw = random.Random(1).randbytes(4 * 500_000).replace(b"\x7f", b"\0").replace(b"\xff", b"\0")
    shown = {"name": "x", "datatype": "FP32", "shape": [500_000], "parameters": {"binary_data_size": len(raw)}}
    text = json.dumps({"inputs": [shown], "parameters": {"binary_data_output": True}}).encode()
    for _ in range(3):  # the first ones go in parts, the next ones by the file
        answer = infer(node, text + raw, headers={LENGTH: str(len(text))})
        assert answer.body[int(answer.headers[LENGTH.lower()]) :] == raw


def test_names_with_slashes_are_one_name_in_every_spelling(node: Node):
    for name in (MODEL, MODEL.replace("/", "%2F"), MODEL.replace("/", "%2F").replace("@", "%40"), f"{MODEL}:stable"):
        assert node.fetch("GET", f"/v2/models/{name}").status == 200
        assert node.fetch("GET", f"/v2/models/{name}/ready").status == 200
        assert infer(node, {"inputs": [x()]}, path=f"/v2/models/{name}/infer").status == 200
    version = node.model(MODEL)["version"][:12]
    assert infer(node, {"inputs": [x()]}, path=f"/v2/models/{MODEL}/versions/{version}/infer").status == 200
    assert node.fetch("GET", f"/v2/models/{MODEL}/versions/{version}/ready").status == 200


def test_metadata_says_what_the_model_takes(node: Node):
    said = strict(node.fetch("GET", f"/v2/models/{MODEL}").body)
    assert [(each["name"], each["datatype"], each["shape"]) for each in said["inputs"]] == [
        ("x", "FP32", [-1]),
        ("n", "INT64", [-1]),
        ("b", "BYTES", [-1]),
    ]
    assert said["versions"] == [node.model(MODEL)["version"][:12]]
    server = strict(node.fetch("GET", "/v2").body)
    assert server["name"] == "fornada"
    assert "binary_tensor_data" in server["extensions"]
    for path in ("/v2/health/live", "/v2/health/ready", f"/v2/models/{MODEL}/stats", f"/v2/models/{MODEL}/config"):
        assert node.fetch("GET", path).status == 200


def test_the_repository_loads_and_unloads(node: Node):
    name = "@test/in-the-repository"
    node.deploy_probe(name)
    node.load(name)
    index = {each["name"]: each["state"] for each in strict(node.fetch("POST", "/v2/repository/index", b"{}").body)}
    assert index[name] == "READY"
    assert node.fetch("POST", "/v2/repository/index", b'{"ready": "yes"}').status == 400
    assert "@fornada/vader" not in index
    assert node.fetch("POST", f"/v2/repository/models/{name}/unload", b"{}").status == 200
    assert node.state(name) == "stopped"
    assert node.fetch("GET", f"/v2/models/{name}/ready").status == 200, "it comes up with its first request"
    assert node.fetch("POST", f"/v2/repository/models/{name}/load", b"{}").status == 200
    assert node.state(name) == "ready"
    assert node.fetch("POST", f"/v2/repository/models/{name}/load", b'{"parameters": {"config": "{}"}}').status == 400
    node.remove(name)


def test_a_model_that_failed_is_not_ready(node: Node):
    name = "@test/fails"
    node.deploy_probe(name, settings={"fail_load_n": 99})
    node.act(name, "load")
    answer = node.fetch("GET", f"/v2/models/{name}/ready")
    assert (answer.status, strict(answer.body)["errors"][0]["code"]) == (503, 3102)
    node.remove(name)


def test_there_is_no_shared_memory_and_it_says_so(node: Node):
    assert strict(node.fetch("GET", "/v2/systemsharedmemory/status").body) == []
    answer = node.fetch("POST", "/v2/cudasharedmemory/region/r/register", b'{"byte_size": 8}')
    assert answer.status == 400
    assert "shared memory" in strict(answer.body)["error"]


def test_no_mutation_of_a_body_harms_the_server(node: Node):
    chance = random.Random(34)
    valid = json.dumps({"id": "1", "inputs": [x(), {"name": "b", "datatype": "BYTES", "shape": [2], "data": ["a", "b"]}]}).encode()
    pids, control = node.pids(MODEL), node.control_pid
    with node.connect() as connection:
        for _ in range(count(300, long=3000)):
            body = bytearray(valid)
            for _ in range(chance.randrange(1, 4)):
                at = chance.randrange(len(body))
                body[at : at + chance.randrange(3)] = chance.choice(
                    [b"[", b"}", b"-", b"99999999999999999999", b'"', b"null", b"\0", b"\xff", b""]
                )
            connection.send_request("POST", INFER, bytes(body), {})
            answer = connection.read_response()
            assert answer.status in (200, 400, 404), (bytes(body), answer.body)
            assert answer.status == 200 or strict(answer.body)["error"]
    assert (node.pids(MODEL), node.control_pid) == (pids, control)
