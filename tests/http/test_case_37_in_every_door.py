"""Case 37, in every door: list, metadata, run and delete agree on a name with slashes in each spelling; one that climbs is a 400 everywhere."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import grpc  # type: ignore[import-untyped]
import pytest

from fornada.edge.dialects.oip.rpc import inference_pb2 as pb
from tests.harness.client import Response, strict_json
from tests.harness.node import Node
from tests.harness.websocket import Refused, WebSocket
from tests.http.tensor_doors import MODEL, Doors, Given, bundle, doors_in
from tests.http.test_case_37_names_with_slashes import NAMES, spellings
from tests.http.test_grpc import code_of

TENSOR = Given("fp32", "FP32", [1], [1.5])
V2 = {"inputs": [{"name": "fp32", "datatype": "FP32", "shape": [1], "data": [1.5]}]}
COLUMNS = {"inputs": {"fp32": [1.5]}}
CLIMBS = [
    "..",
    "../x",
    "a/../b",
    "%2e%2e/x",
    "a%2F..%2Fb",
    "a/%2e%2e/b",
    "a%00b",
    "..%2f..%2fetc%2fpasswd",
    "%2e%2e%2f%2e%2e",
    "a%2F%2e%2e",
]


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    with doors_in(tmp_path_factory.mktemp("names"), bundle()) as made:
        yield made


@pytest.fixture
def node(doors: Doors) -> Node:
    return doors.node


def bound_to(node: Node, name: str, inputs: Any) -> Response:
    """As `env.AI.run` asks."""
    shown = {"MF-URL": "https://workers-binding.ai/run?version=3", "MF-Header-cf-consn-model-id": name}
    return node.fetch("POST", "/", payload={"inputs": inputs, "options": {}}, headers=shown)


def listed(node: Node) -> dict[str, set[str]]:
    """By door that has a list of tensor models: the names in it."""
    return {
        "openai": {each["id"] for each in node.fetch("GET", "/v1/models").json()["data"]},
        "v2": {each["name"] for each in node.fetch("POST", "/v2/repository/index", b"{}").json()},
        "admin": {each["name"] for each in node.fetch("GET", "/api/v1/models").json()["models"]},
    }


@pytest.mark.parametrize("name", NAMES)
def test_all_doors_agree_on_a_name(doors: Doors, name: str):
    node = doors.node
    version = node.deploy(name, bundle())["version"][:12]
    for door, names in listed(node).items():
        assert name in names, door
    for spelled in spellings(name):
        assert node.fetch("GET", f"/v2/models/{spelled}").json()["name"] == name
        for place in ("", f"/versions/{version}", "/versions/stable"):
            answer = node.fetch("POST", f"/v2/models/{spelled}{place}/infer", payload=V2)
            assert (answer.status, answer.json()["model_name"]) == (200, name), (spelled, place, answer.body)
            assert node.fetch("GET", f"/v2/models/{spelled}{place}/ready").status == 200
        status = node.fetch("GET", f"/v1/models/{spelled}").json()
        assert status["id"] == name
        number = status["model_version_status"][0]["version"]
        for place in ("", f"/versions/{number}", "/labels/stable"):
            answer = node.fetch("POST", f"/v1/models/{spelled}{place}:predict", payload=COLUMNS)
            assert answer.status == 200, (spelled, place, answer.body)
            assert node.fetch("GET", f"/v1/models/{spelled}{place}/metadata").json()["model_spec"]["name"] == name
        for way in (f"/gateway/v1/local/default/workers-ai/{spelled}", f"/client/v4/accounts/local/ai/run/{spelled}"):
            answer = node.fetch("POST", way, payload={})
            assert answer.status == 200, answer.body
        with WebSocket(node.address, f"/client/v4/accounts/local/ai/run/{spelled}") as socket:
            assert "seen" in strict_json(str(socket.receive()).encode())
    assert doors.ask("raw", TENSOR, model=name).refusal == ""
    said = doors.client.call("ModelMetadata", pb.ModelMetadataRequest(name=name), pb.ModelMetadataResponse)
    assert said.name == name
    if name.isascii():  # the runtime puts no other into a header
        assert bound_to(node, name, {}).status == 200
    assert node.fetch("DELETE", f"/api/v1/models/{spellings(name)[2]}").status in (200, 204)
    assert all(name not in names for names in listed(node).values())
    for spelled in spellings(name):
        for method, path, body in (
            ("GET", f"/v2/models/{spelled}", None),
            ("POST", f"/v2/models/{spelled}/infer", V2),
            ("GET", f"/v1/models/{spelled}", None),
            ("POST", f"/v1/models/{spelled}:predict", COLUMNS),
        ):
            answer = node.fetch(method, path, payload=body)
            assert (answer.status, answer.code) == (404, 5007), (path, answer.body)
    with pytest.raises(grpc.RpcError) as refusal:
        doors.client.call("ModelMetadata", pb.ModelMetadataRequest(name=name), pb.ModelMetadataResponse)
    assert code_of(refusal) == ("NOT_FOUND", "5007")
    assert doors.ask("raw", TENSOR, model=name).code == 5007


@pytest.mark.parametrize("spelled", CLIMBS)
def test_a_name_that_climbs_is_a_bad_request_in_every_door(doors: Doors, spelled: str):
    node = doors.node
    for method, path, body in (
        ("GET", f"/v2/models/{spelled}", None),
        ("GET", f"/v2/models/{spelled}/ready", None),
        ("GET", f"/v2/models/{spelled}/config", None),
        ("GET", f"/v2/models/{spelled}/stats", None),
        ("POST", f"/v2/models/{spelled}/infer", V2),
        ("POST", f"/v2/models/{spelled}/versions/stable/infer", V2),
        ("POST", f"/v2/models/{MODEL}/versions/{spelled}/infer", V2),
        ("POST", f"/v2/repository/models/{spelled}/load", {}),
        ("POST", f"/v2/repository/models/{spelled}/unload", {}),
        ("GET", f"/v1/models/{spelled}", None),
        ("GET", f"/v1/models/{spelled}/metadata", None),
        ("POST", f"/v1/models/{spelled}:predict", COLUMNS),
        ("POST", f"/v1/models/{spelled}/labels/stable:predict", COLUMNS),
        ("POST", f"/gateway/v1/local/default/workers-ai/{spelled}", {}),
        ("POST", f"/client/v4/accounts/local/ai/run/{spelled}", {}),
        ("GET", f"/client/v4/accounts/local/ai/models/schema?{urlencode({'model': '../x'})}", None),
    ):
        answer = node.fetch(method, path, payload=body)
        assert answer.status == 400, (method, path, answer.status, answer.body)
        assert answer.json()["success"] is False
    assert bound_to(node, spelled, {}).status == 400
    with pytest.raises(Refused) as refused:
        WebSocket(node.address, f"/client/v4/accounts/local/ai/run/{spelled}")
    assert refused.value.response.status == 400


@pytest.mark.parametrize("name", ["..", "../x", "a/../b", "a\0b", "../../etc/passwd", "a//b", "a/./b"])
def test_a_name_that_climbs_is_refused_in_a_body_too(doors: Doors, name: str):
    node = doors.node
    for path, body in (
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
        ("/v1/completions", {"prompt": "a"}),
        ("/v1/embeddings", {"input": "a"}),
        ("/v1/responses", {"input": "a"}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 5}),
        ("/client/v4/accounts/local/ai/run", {"input": {}}),
    ):
        answer = node.fetch("POST", path, payload={**body, "model": name})
        assert answer.status == 400, (path, answer.status, answer.body)
        answer.json()
    for asked in (
        lambda: doors.client.call("ModelMetadata", pb.ModelMetadataRequest(name=name), pb.ModelMetadataResponse),
        lambda: doors.client.call("ModelReady", pb.ModelReadyRequest(name=name), pb.ModelReadyResponse),
        lambda: doors.client.infer(pb.ModelInferRequest(model_name=name)),
    ):
        with pytest.raises(grpc.RpcError) as refusal:
            asked()
        assert code_of(refusal)[0] == "INVALID_ARGUMENT"
