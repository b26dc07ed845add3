"""Case 34: a tensor of the declared data type and shape arrives exactly, by whichever door; any other is a 400 that says both."""

import math
import struct
from collections.abc import Iterator
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest

from fornada.edge.dialects.oip.rpc import inference_pb2 as pb
from tests.http.tensor_doors import DTYPES, MODEL, TYPED, WAYS, Doors, Given, bundle, digest, doors_in
from tests.http.test_grpc import code_of

SHAPES = {"any": [-1, -1], "rows": [-1, 2], "fixed": [2, 3], "one": [1]}
VALUE: dict[str, Any] = {"BOOL": True, "BYTES": "a"}
"""A value of the type; of all others 1."""
TAKEN: list[tuple[str, Any, Any]] = [
    ("INT64", 2**63 - 1, 2**63 - 1),
    ("INT64", -(2**63), -(2**63)),
    ("UINT64", 2**64 - 1, 2**64 - 1),
    ("INT8", -128, -128),
    ("BOOL", False, False),
    ("FP64", 1, 1.0),
    ("FP64", 5e-324, 5e-324),
    ("FP32", 2, 2.0),
    ("FP32", 0.1, struct.unpack("<f", struct.pack("<f", 0.1))[0]),
    ("FP32", 2**24 + 1, 2.0**24),
    ("FP32", -0.0, -0.0),
    ("FP32", 3.4028234663852886e38, 3.4028234663852886e38),
    ("FP16", 65519, 65504.0),
    ("BF16", 3.39e38, 3.3895313892515355e38),
    ("BYTES", "ünïcödé", "ünïcödé"),
]
"""(declared, value in JSON, what the model gets)."""
REFUSED: list[tuple[str, Any]] = [
    *(("INT64", value) for value in (1.5, 2.0, 1e2, 2**63, -(2**63) - 1, "1", True, None, [1])),
    *(("INT8", value) for value in (128, -129, 0.5)),
    *(("UINT8", value) for value in (-1, 256, "a")),
    *(("UINT64", value) for value in (2**64, -1)),
    *(("BOOL", value) for value in (0, 1, "true", None)),
    *(("FP16", value) for value in (65520, -70000, "1", True)),
    *(("BF16", value) for value in (3.4e38, -1e39, None)),
    *(("FP32", value) for value in (3.5e38, 1e300, 10**300, "1.0", False, None)),
    *(("FP64", value) for value in ("1", True, 10**400)),
    *(("BYTES", value) for value in (1, True, None, ["a"])),
]


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    with doors_in(tmp_path_factory.mktemp("types"), bundle(SHAPES)) as made:
        yield made


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("declared", DTYPES)
def test_a_data_type_is_the_declared_one_or_is_named(doors: Doors, way: str, declared: str):
    for sent in DTYPES:
        tensor = Given(declared.lower(), sent, [1], [VALUE.get(sent, 1)])
        if way == "typed" and sent not in TYPED:
            continue
        said = doors.ask(way, tensor)
        if sent == declared:
            assert (said.refusal, said.outputs[tensor.name], said.seen) == ("", tensor.raw, digest(tensor))
        else:
            assert (said.code, said.refusal) == (5006, f"input '{declared.lower()}': got {sent}, expects {declared}")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("name", "sent", "fits"),
    [
        ("any", [1, 4], True), ("any", [3, 1], True), ("any", [0, 3], True), ("any", [4], False), ("any", [1, 2, 2], False),
        ("rows", [2, 2], True), ("rows", [0, 2], True), ("rows", [2, 3], False), ("rows", [4, 1], False), ("rows", [4], False),
        ("fixed", [2, 3], True), ("fixed", [3, 2], False), ("fixed", [6], False), ("fixed", [1, 2, 3], False), ("fixed", [0, 3], False),
        ("one", [1], True), ("one", [2], False), ("one", [], False), ("one", [1, 1], False), ("one", [0], False),
    ],
)  # fmt: skip
def test_a_shape_is_the_declared_one_or_is_named(doors: Doors, way: str, name: str, sent: list[int], fits: bool):
    tensor = Given(name, "FP32", sent, [float(number) for number in range(math.prod(sent))])
    said = doors.ask(way, tensor)
    if fits:
        assert (said.refusal, said.outputs[name], said.seen) == ("", tensor.raw, digest(tensor))
    else:
        assert (said.code, said.refusal) == (5006, f"input '{name}': got shape {sent}, expects {SHAPES[name]}")


@pytest.mark.parametrize(("declared", "value", "expected"), TAKEN)
def test_a_number_of_json_becomes_the_declared_type(doors: Doors, declared: str, value: Any, expected: Any):
    name = declared.lower()
    said = doors.ask("json", Given(name, declared, [1], [value]))
    exact = Given(name, declared, [1], [expected])
    assert (said.refusal, said.outputs.get(name), said.seen) == ("", exact.raw, digest(exact))
    for answer in (doors.columns({name: [value]}), doors.rows([{name: value}])):
        assert (answer.status, answer.json().get("error")) == (200, None)
    assert doors.columns({name: [value]}).json()["outputs"]["seen"] == [digest(exact)]


@pytest.mark.parametrize(("declared", "value"), REFUSED)
def test_a_number_that_the_declared_type_can_t_hold_is_refused(doors: Doors, declared: str, value: Any):
    name = declared.lower()
    said = doors.node.fetch(
        "POST", f"/v2/models/{MODEL}/infer", payload={"inputs": [{"name": name, "datatype": declared, "shape": [1], "data": [value]}]}
    )
    for answer in (said, doors.columns({name: [value]}), doors.rows([{name: value}])):
        assert (answer.status, answer.code) == (400, 5006), answer.body
        assert f"input '{name}': " in answer.json()["error"] or "is no JSON" in answer.json()["error"], answer.body


@pytest.mark.parametrize(("declared", "value"), [("UINT8", 256), ("UINT16", 2**16), ("INT8", -129), ("INT8", 128), ("INT16", 2**15)])
def test_typed_contents_of_a_wider_type_are_held_to_the_declared_one(doors: Doors, declared: str, value: int):
    said = doors.ask("typed", Given(declared.lower(), declared, [1], [value]))
    assert said.code == 5006
    assert said.refusal.startswith(f"input '{declared.lower()}': a value is no {declared}")


def _message(**more: Any) -> Any:
    request = pb.ModelInferRequest(model_name=MODEL, **more)
    request.inputs.add(name="fp32", datatype="FP32", shape=[2])
    return request


def _typed(**contents: Any) -> Any:
    request = _message()
    request.inputs[0].contents.CopyFrom(pb.InferTensorContents(**contents))
    return request


def _raw(shape: list[int], raw: bytes, *, dtype: str = "FP32") -> Any:
    request = _message(raw_input_contents=[raw])
    del request.inputs[0].shape[:]
    request.inputs[0].shape.extend(shape)
    request.inputs[0].datatype = dtype
    return request


def _both() -> Any:
    request = _typed(fp32_contents=[1.0, 2.0])
    request.raw_input_contents.append(bytes(8))
    return request


@pytest.mark.parametrize(
    "request_",
    [
        _typed(), _typed(fp32_contents=[1.0]), _typed(fp32_contents=[1.0] * 3), _typed(int64_contents=[1, 2]), _typed(fp64_contents=[1.0, 2.0]),
        _typed(fp32_contents=[1.0, 2.0], int64_contents=[3]), _typed(fp32_contents=[1.0, 2.0], bytes_contents=[b"a"]), _both(),
        *(_raw(shape, bytes(8)) for shape in ([1], [3], [-2], [-1], [], [2, 1], [2**62], [2**62, 4], [2**32, 2**32], [10**9, 10**9], [1] * 33)),
        *(_raw([2], bytes(size)) for size in (0, 7, 9, 100_000)), *(_raw([2], bytes(8), dtype=dtype) for dtype in ("", "FP33", "fp32", "x" * 500)),
    ],
)  # fmt: skip
def test_a_message_of_grpc_that_does_not_fit_is_refused_by_name(doors: Doors, request_: Any):
    with pytest.raises(grpc.RpcError) as refusal:
        doors.client.infer(request_)
    assert code_of(refusal) == ("INVALID_ARGUMENT", "5006")
    assert "input 'fp32'" in str(refusal.value.details())
