"""Case 32, in every door: JSON never holds NaN or an infinity but null, and the body, or for bare bodies a header, says so; binary is exact."""

import base64
import json
import math
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from fornada.edge.dialects.oip.rpc import inference_pb2 as pb
from tests.harness.bundles import archive
from tests.harness.client import Response, strict_json
from tests.harness.node import Node
from tests.harness.waiting import until
from tests.harness.websocket import WebSocket
from tests.http.tensor_doors import MODEL, Doors, Given, bundle, digest, doors_in

TEXT, STREAM, VECTORS, PLAIN, LISTS = "@test/nan-text", "@test/nan-stream", "@test/nan-vectors", "@test/nan-plain", "@test/nan-lists"
TALKS = """
def handle_request(request, context):
    nan, inf = float("nan"), float("inf")
    answer = {"response": "hi", "logprobs": [nan, -inf], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}}
    return iter([answer]) if request.stream else answer
"""
STREAMS = """
def handle_request(request, context):
    yield {"response": "h", "score": float("nan")}
    yield {"response": "i", "score": float("-inf"), "deep": [{"a": [float("inf")]}]}
"""
EMBEDS = """
def handle_request(request, context):
    return {"shape": [1, 3], "data": [[float("nan"), 1.5, float("-inf")]]}
"""
NESTED = """
def handle_request(request, context):
    nan, inf = float("nan"), float("inf")
    return {"a": [{"b": [1.0, nan, [-inf]]}], "c": (inf, {"d": nan}), "text": "NaN"}
"""
NESTED_SHOWN = {"a": [{"b": [1.0, None, [None]]}], "c": [None, {"d": None}], "text": "NaN"}
RETURNS = """
def handle_request(request, context):
    return {"float32": [float("nan"), 1.0], "float64": [float("inf"), float("-inf")]}
"""
SCORED = "@test/nan-beside"
SCORES = """
def handle_request(request, context):
    return {"float32": request.tensors["float32"], "score": float("nan"), "low": float("-inf"), "fine": 0.5}
"""
MESSAGES: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    with doors_in(tmp_path_factory.mktemp("nan"), bundle()) as made:
        for name, task, code in (
            (TEXT, "text-generation", TALKS),
            (STREAM, "text-generation", STREAMS),
            (VECTORS, "text-embeddings", EMBEDS),
            (PLAIN, "custom", NESTED),
        ):
            made.node.deploy(name, archive({"model.toml": f'name = "{name}"\ntask = "{task}"\n', "model.py": code}))
        declared = "".join(
            f'[[tensors.{side}]]\nname = "{name}"\ndtype = "{dtype}"\nshape = [-1]\noptional = {optional}\n'
            for side, optional in (("inputs", "true"), ("outputs", "false"))
            for name, dtype in (("float32", "FP32"), ("float64", "FP64"))
        )
        made.node.deploy(LISTS, archive({"model.toml": f'name = "{LISTS}"\n{declared}', "model.py": RETURNS}))
        one = "".join(f'[[tensors.{side}]]\nname = "float32"\ndtype = "FP32"\nshape = [-1]\n' for side in ("inputs", "outputs"))
        made.node.deploy(SCORED, archive({"model.toml": f'name = "{SCORED}"\n{one}', "model.py": SCORES}))
        yield made


@pytest.fixture
def node(doors: Doors) -> Node:
    return doors.node


def bound_to(node: Node, model: str, inputs: Any, *, gateway: str = "") -> Response:
    """As `env.AI.run` asks."""
    path, options = ("ai-gateway/run", {"gateway": {"id": gateway}}) if gateway else ("run", {})
    shown = {"MF-URL": f"https://workers-binding.ai/{path}?version=3", "MF-Header-cf-consn-model-id": model}
    return node.fetch("POST", "/", payload={"inputs": inputs, "options": options}, headers=shown)


def test_any_result_of_ai_run_and_of_a_gateway_before_it(node: Node):
    for path in (f"/client/v4/accounts/local/ai/run/{PLAIN}", f"/gateway/v1/local/default/workers-ai/{PLAIN}"):
        body = node.fetch("POST", path, payload={}).json()
        assert (body["result"], body["nonfinite"]) == (NESTED_SHOWN, True)


@pytest.mark.parametrize("model", [TEXT, STREAM])
@pytest.mark.parametrize(
    ("path", "payload"),
    [
        ("/v1/chat/completions", MESSAGES),
        ("/client/v4/accounts/local/ai/v1/chat/completions", MESSAGES),
        ("/gateway/v1/local/default/compat/chat/completions", MESSAGES),
        ("/v1/completions", {"prompt": "hi"}),
        ("/v1/responses", {"input": "hi"}),
        ("/v1/messages", {**MESSAGES, "max_tokens": 5}),
        ("/client/v4/accounts/local/ai/run/{model}", MESSAGES),
    ],
)
def test_texts(node: Node, model: str, path: str, payload: dict[str, Any]):
    named = {} if "{model}" in path else {"model": f"workers-ai/{model}" if "compat" in path else model}
    target = path.replace("{model}", model)
    answer = node.fetch("POST", target, payload={**payload, **named})
    assert answer.status == 200, answer.body
    assert answer.json()["nonfinite"] is True
    with node.connect() as connection:
        connection.send_request("POST", target, json.dumps({**payload, **named, "stream": True}).encode())
        stream = connection.events_to_end()
    assert stream.items, "each is strict JSON"
    assert not stream.errors
    assert "hi" in "".join(str(item) for item in stream.items) or "'h'" in str(stream.items)


@pytest.mark.parametrize("gateway", ["", "default"])
@pytest.mark.parametrize("model", [PLAIN, TEXT, STREAM])
def test_the_binding_says_it_in_a_header(node: Node, model: str, gateway: str):
    answer = bound_to(node, model, MESSAGES if model != PLAIN else {}, gateway=gateway)
    assert answer.status == 200, answer.body
    said = answer.json()
    assert "success" not in said, "the envelope has no place here"
    assert answer.headers["x-fornada-nonfinite"] == "true"
    if model == PLAIN:
        assert said == NESTED_SHOWN


def test_vectors(node: Node):
    for path in ("/v1/embeddings", "/client/v4/accounts/local/ai/v1/embeddings"):
        body = node.fetch("POST", path, payload={"model": VECTORS, "input": "a"}).json()
        assert body["data"][0]["embedding"] == [None, 1.5, None]
        assert body["nonfinite"] is True
        body = node.fetch("POST", path, payload={"model": VECTORS, "input": "a", "encoding_format": "base64"}).json()
        first, second, third = struct.unpack("<3f", base64.b64decode(body["data"][0]["embedding"]))
        assert math.isnan(first)
        assert second == 1.5
        assert not math.isfinite(third)
        assert body["nonfinite"] is True


def test_a_conversation(node: Node):
    with WebSocket(node.address, f"/client/v4/accounts/local/ai/run/{PLAIN}") as socket:
        assert strict_json(str(socket.receive()).encode()) == NESTED_SHOWN


def test_an_item_of_a_job(node: Node):
    path = f"/client/v4/accounts/local/ai/run/{PLAIN}?queueRequest=true"
    id = node.fetch("POST", path, payload={"requests": [{}, {}]}).result["request_id"]
    answer = until(lambda: _done(node, path, id), within_s=20, what="the job is done")
    assert [each["result"] for each in answer["responses"]] == [NESTED_SHOWN] * 2


def test_a_line_of_a_batch_file(node: Node):
    line = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {**MESSAGES, "model": TEXT}}
    parts = [("purpose", "", b"batch"), ("file", '; filename="a.jsonl"', json.dumps(line).encode())]
    form = b"".join(
        b'--xyz\r\nContent-Disposition: form-data; name="%b"%b\r\n\r\n%b\r\n' % (name.encode(), more.encode(), data)
        for name, more, data in parts
    )
    headers = {"content-type": "multipart/form-data; boundary=xyz"}
    file = node.fetch("POST", "/v1/files", form + b"--xyz--\r\n", headers=headers).json()["id"]
    asked = {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    id = node.fetch("POST", "/v1/batches", payload=asked).json()["id"]
    output = until(lambda: node.fetch("GET", f"/v1/batches/{id}").json().get("output_file_id"), within_s=20, what="the batch is done")
    answer = strict_json(node.fetch("GET", f"/v1/files/{output}/content").body.strip())
    assert answer["response"]["status_code"] == 200
    assert answer["response"]["body"]["nonfinite"] is True


NONFINITE = [math.nan, math.inf, -math.inf, 1.0]


@pytest.mark.parametrize("dtype", ["FP16", "FP32", "FP64", "BF16"])
def test_tensors_are_exact_as_binary_and_null_as_json(doors: Doors, dtype: str):
    tensor = Given(dtype.lower(), dtype, [4], NONFINITE)
    for way in ("binary", "raw", "typed"):
        if way == "typed" and dtype in ("FP16", "BF16"):
            continue
        said = doors.ask(way, tensor)
        assert (said.outputs[tensor.name], said.seen) == (tensor.raw, digest(tensor)), way
    text = json.dumps(
        {"inputs": [{"name": tensor.name, "datatype": dtype, "shape": [4], "parameters": {"binary_data_size": len(tensor.raw)}}]}
    ).encode()
    answer = doors.node.fetch(
        "POST", f"/v2/models/{MODEL}/infer", text + tensor.raw, headers={"Inference-Header-Content-Length": str(len(text))}
    )
    body = answer.json()
    assert (body["outputs"][0]["data"], body["nonfinite"]) == ([None, None, None, 1.0], True)


def test_lists_that_a_model_returns_as_tensors(doors: Doors):
    expected = {"float32": [None, 1.0], "float64": [None, None]}
    asked = {"inputs": [{"name": "float32", "datatype": "FP32", "shape": [1], "data": [1.0]}]}
    body = doors.node.fetch("POST", f"/v2/models/{LISTS}/infer", payload=asked).json()
    assert {each["name"]: each["data"] for each in body["outputs"]} == expected
    assert body["nonfinite"] is True
    body = doors.columns({"float32": [1.0]}, model=LISTS).json()
    assert (body["outputs"], body["nonfinite"]) == (expected, True)
    body = doors.rows([{"float32": 1.0}, {"float32": 2.0}], model=LISTS).json()
    assert (body["predictions"], body["nonfinite"]) == ([{"float32": None, "float64": None}, {"float32": 1.0, "float64": None}], True)
    said = doors.ask("raw", Given("float32", "FP32", [1], [1.0]), model=LISTS)
    assert struct.unpack("<2d", said.outputs["float64"]) == (math.inf, -math.inf)


def test_numbers_beside_tensors(doors: Doors):
    asked = {"inputs": [{"name": "float32", "datatype": "FP32", "shape": [1], "data": [1.0]}]}
    body = doors.node.fetch("POST", f"/v2/models/{SCORED}/infer", payload=asked).json()
    assert body["outputs"][0]["data"] == [1.0]
    assert (body["parameters"], body["nonfinite"]) == ({"score": None, "low": None, "fine": 0.5}, True)
    assert doors.columns({"float32": [1.0]}, model=SCORED).json() == {"outputs": [1.0]}, "there is no place for them"
    request = pb.ModelInferRequest(model_name=SCORED)
    request.inputs.add(name="float32", datatype="FP32", shape=[1]).contents.fp32_contents.append(1.0)
    said = {name: value.double_param for name, value in doors.client.infer(request).parameters.items()}
    assert math.isnan(said.pop("score"))
    assert said == {"low": -math.inf, "fine": 0.5}


def _done(node: Node, path: str, id: str) -> Any:
    body = node.fetch("POST", path, payload={"request_id": id}).result
    return body if "responses" in body else None
