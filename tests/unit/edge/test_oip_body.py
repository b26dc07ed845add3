"""Requests of the Open Inference Protocol: every data type in JSON and in bytes, and whatever is broken is the caller's fault."""

import gzip
import json
import math
import random
import struct
import zlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fornada.core.errors import BadRequest, ModelRaised, TooLarge
from fornada.core.specs import TensorSpec, TensorsSpec
from fornada.core.tensors import WALKED_MOST, Place, Tensor, TensorsHead, check_inputs, check_wanted, head_of, split
from fornada.edge.dialects.oip.body import decompressed, read_request
from fornada.edge.dialects.oip.classes import classified
from fornada.edge.tensor_json import ELEMENTS_MOST, TEXT_MOST, check_size, check_text, read_values, texts, values
from fornada_sdk.wire.tensors import FORMS, nested, packed
from tests.bounds import count

INTS = {name: (8 * struct.calcsize(f"<{form}"), form.islower()) for name, form in FORMS.items() if form in "bBhHiIqQ"}


def values_of(dtype: str) -> st.SearchStrategy[Any]:
    if dtype in INTS:
        bits, signed = INTS[dtype]
        return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) if signed else st.integers(0, (1 << bits) - 1)
    finite: dict[str, Any] = {"allow_nan": False, "allow_infinity": False}
    kinds: dict[str, st.SearchStrategy[Any]] = {
        "BOOL": st.booleans(),
        "BYTES": st.text(st.characters(codec="utf-8"), max_size=9),
        "FP16": st.floats(width=16, **finite),
        "FP32": st.floats(width=32, **finite),
        "FP64": st.floats(**finite),
        "BF16": st.integers(-200, 200).map(lambda whole: whole / 4),
    }
    return kinds[dtype]


@st.composite
def tensors(draw: st.DrawFn) -> tuple[str, list[int], list[Any]]:
    dtype = draw(st.sampled_from([*FORMS, "BF16", "BYTES"]))
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    size = math.prod(shape)
    return dtype, shape, draw(st.lists(values_of(dtype), min_size=size, max_size=size))


def body(*inputs: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"inputs": list(inputs), **more}).encode()


def one(dtype: str, shape: list[int], data: Any, **more: Any) -> dict[str, Any]:
    return {"name": "x", "datatype": dtype, "shape": shape, "data": data, **more}


@given(tensors(), st.booleans())
def test_every_data_type_is_read_from_lists_of_either_form(made: tuple[str, list[int], list[Any]], flat: bool):
    dtype, shape, given_values = made
    data = given_values if flat or not shape else nested(given_values, shape)
    (tensor,) = read_request(body(one(dtype, shape, data)), None).tensors
    expected = packed(given_values, dtype)
    assert bytes(tensor.data) == expected
    shown, nonfinite = values(tensor)
    assert not nonfinite
    if dtype == "BYTES":
        assert texts(shown) == (given_values, False)
    else:
        assert packed(msgspec.json.decode(msgspec.json.encode(shown)), dtype) == expected


@given(tensors())
def test_every_data_type_is_read_from_bytes_behind_the_json(made: tuple[str, list[int], list[Any]]):
    dtype, shape, given_values = made
    data = packed(given_values, dtype)
    described = {"name": "x", "datatype": dtype, "shape": shape, "parameters": {"binary_data_size": len(data)}}
    text = body(described, id="7")
    asked = read_request(text + data, str(len(text)))
    check_inputs(asked.tensors, None)
    assert (asked.id, bytes(asked.tensors[0].data)) == ("7", data)
    assert split(head_of(asked.tensors, {}), data) == [Tensor("x", dtype, shape, data)]


@pytest.mark.parametrize(
    ("given_input", "why"),
    [
        (one("FP32", [2], [1]), "input 'x': it holds 1 elements, and shape [2] takes 2"),
        (one("FP32", [7], [1]), "input 'x': it holds 1 elements, and shape [7] takes 7"),
        (one("FP32", [-1], [1]), "input 'x': each dimension of its shape must be a whole number from 0 to 2^63 - 1"),
        (one("FP32", [10**9, 10**9], [1]), "input 'x': it holds 1 elements, and shape [1000000000, 1000000000] takes"),
        (one("FP32", [1] * 33, [1]), "more than 32"),
        (one("FP32", [1], ["a"]), "input 'x': data[0]: Expected `float`, got `str`"),
        (one("FP32", [1], [None]), "input 'x': data[0]: Expected `float`, got `null`"),
        (one("FP32", [1], [1e300]), "input 'x': a value is no FP32"),
        (one("FP16", [1], [70000]), "input 'x': a value is no FP16"),
        (one("INT64", [1], [1.5]), "input 'x': data[0]: Expected `int`, got `float`"),
        (one("UINT8", [1], [256]), "input 'x': a value is no UINT8"),
        (one("UINT64", [1], [-1]), "input 'x': a value is no UINT64"),
        (one("INT64", [1], [1 << 64]), "input 'x'"),
        (one("BOOL", [1], [1]), "input 'x': data[0]: Expected `bool`, got `int`"),
        (one("INT32", [1], [True]), "input 'x': data[0]: Expected `int`, got `bool`"),
        (one("BYTES", [1], [1]), "input 'x': data[0]: Expected `str`, got `int`"),
        (one("BYTES", [1], ["%"], parameters={"content_type": "base64"}), "input 'x': an element is no base64"),
        (one("FLOAT", [1], [1]), "input 'x': there is no datatype 'FLOAT'"),
        (one("FP32", [1], 1), "input 'x': its data must stand in a list"),
        (one("FP32", [2, 2], [[1, 2], [3]]), "input 'x': its data isn't of shape [2, 2]"),
        (one("FP32", [2, 2], [[[1, 2], [3, 4]]]), "input 'x': its data must stand in a list"),
        ({"name": "x", "datatype": "FP32", "shape": [1]}, "input 'x': it has neither 'data' nor 'binary_data_size'"),
        ({"name": "x", "datatype": "FP32", "shape": ["a"], "data": [1]}, "'inputs[0].shape[0]'"),
        ({"name": 1, "datatype": "FP32", "shape": [1], "data": [1]}, "'inputs[0].name'"),
        (one("FP32", [1], [1], parameters={"shared_memory_region": "r"}), "there is no shared memory here"),
        (one("FP32", [1], [1], parameters={"a": [1]}), "input 'x': 'a' must be a text, a number, true or false"),
    ],
)
def test_a_broken_tensor_is_named(given_input: dict[str, Any], why: str):
    with pytest.raises(BadRequest) as refusal:
        read_request(body(given_input), None)
    assert why in refusal.value.message


@pytest.mark.parametrize(
    ("length", "size", "why"),
    [
        ("x", 4, "must be a whole number"),
        ("-1", 4, "must be a whole number"),
        ("9" * 30, 4, "must be a whole number"),
        ("100000", 4, "and the body has"),
        (None, 5, "'binary_data_size' says 5 bytes, and 4 are left"),
        (None, -1, "'binary_data_size' says -1 bytes"),
        (None, True, "'binary_data_size' says True bytes"),
        (None, 3, "1 bytes follow the last binary tensor"),
    ],
)
def test_sizes_that_lie_are_refused(length: str | None, size: Any, why: str):
    text = body({"name": "x", "datatype": "FP32", "shape": [1], "parameters": {"binary_data_size": size}})
    with pytest.raises(BadRequest) as refusal:
        read_request(text + b"\0" * 4, length or str(len(text)))
    assert why in refusal.value.message


def test_bytes_as_base64_and_as_text_are_the_same_bytes():
    plain = read_values("b", "BYTES", [1], b'["\\u00e9"]')
    coded = read_values("b", "BYTES", [1], b'["w6k="]', is_base64=True)
    assert plain == coded == packed(["é".encode()], "BYTES")
    assert texts([b"\xff", b"a"]) == (["/w==", "YQ=="], True)


def test_what_is_no_number_is_told():
    tensor = Tensor("y", "FP32", [3], packed([math.nan, math.inf, 1], "FP32"))
    flat, nonfinite = values(tensor)
    assert nonfinite and msgspec.json.encode(flat) == b"[null,null,1.0]"
    large = Tensor("y", "FP64", [2], packed([1.7e308, 1.7e308], "FP64"))
    assert values(large) == ([1.7e308, 1.7e308], False)


def test_compressed_bodies_are_read_within_their_bound():
    for coding, packed_body in (("gzip", gzip.compress(VALID)), ("deflate", zlib.compress(VALID)), ("identity", VALID)):
        assert decompressed(packed_body, coding, len(VALID)) == VALID
    for wrong in (VALID, gzip.compress(VALID)[:-3], gzip.compress(VALID) + b"x"):
        with pytest.raises(BadRequest, match="Content-Encoding"):
            decompressed(wrong, "gzip", 10**6)
    with pytest.raises(BadRequest, match="isn't understood"):
        decompressed(VALID, "br", 10**6)
    with pytest.raises(TooLarge, match="1000 bytes"):
        decompressed(gzip.compress(bytes(10**8)), "gzip", 1000)


DECLARED = TensorsSpec([TensorSpec("x", "INT64", [-1, 2]), TensorSpec("o", "FP32", [1], optional=True)], [TensorSpec("y", "FP32", [-1])])


@pytest.mark.parametrize(
    ("given_tensors", "why"),
    [
        ([Tensor("x", "INT32", [1, 2], bytes(8))], "input 'x': got INT32, expects INT64"),
        ([Tensor("x", "INT64", [2], bytes(16))], "input 'x': got shape [2], expects [-1, 2]"),
        ([Tensor("x", "INT64", [1, 3], bytes(24))], "input 'x': got shape [1, 3], expects [-1, 2]"),
        ([Tensor("z", "INT64", [1, 2], bytes(16))], "input 'z': the model has no such input; it takes 'x' INT64 [-1, 2], 'o' FP32 [1]"),
        ([Tensor("o", "FP32", [1], bytes(4))], "input 'x' is missing"),
        ([Tensor("x", "INT64", [1, 2], bytes(16))] * 2, "input 'x' comes twice"),
        ([Tensor("x", "INT64", [1, 2], bytes(15))], "input 'x': it holds 15 bytes, and INT64 [1, 2] takes 16"),
    ],
)
def test_inputs_are_what_the_model_declares(given_tensors: list[Tensor], why: str):
    with pytest.raises(BadRequest) as refusal:
        check_inputs(given_tensors, DECLARED)
    assert why in refusal.value.message
    check_inputs([Tensor("x", "INT64", [5, 2], bytes(80))], DECLARED)
    check_wanted(["y"], DECLARED)
    with pytest.raises(BadRequest, match="output 'z': the model has no such output"):
        check_wanted(["z"], DECLARED)


def test_what_would_hold_up_the_node_as_json_is_refused():
    check_size([Tensor("y", "UINT8", [ELEMENTS_MOST], b"")])
    with pytest.raises(BadRequest, match="ask for binary tensors"):
        check_size([Tensor("y", "UINT8", [1], b""), Tensor("z", "UINT8", [ELEMENTS_MOST], b"")])
    with pytest.raises(TooLarge, match="send them as binary data"):
        check_text(TEXT_MOST + 1)


def test_many_elements_that_lie_are_found_out_where_they_are_written():
    many = WALKED_MOST + 1
    for data in (b"\0\0\0\0" * many + b"\1", b"\0\0\0\0" * (many + 1), b"\xff\0\0\0" * many):
        (tensor,) = split(TensorsHead([Place("b", "BYTES", [many], len(data))]), data)
        with pytest.raises(ModelRaised, match="broken"):
            values(tensor)


def test_classes_are_the_largest_values_of_the_last_dimension():
    scores = Tensor("y", "FP32", [2, 3], packed([0.25, math.nan, 0.5, 3, 2, 1], "FP32"))
    whole = Tensor("n", "INT64", [2], packed([5, 7], "INT64"))
    best, most, other = classified([scores, whole, whole._replace(name="m")], {"y": 2, "n": 9})
    assert (best.dtype, list(best.shape)) == ("BYTES", [2, 2])
    assert values(best)[0] == [b"0.500000:2", b"0.250000:0", b"3.000000:0", b"2.000000:1"]
    assert (list(most.shape), values(most)[0], other.dtype) == ([2], [b"7:1", b"5:0"], "INT64")
    for none in (Tensor("y", "BYTES", [0], b""), Tensor("y", "FP32", [], bytes(4))):
        with pytest.raises(BadRequest, match="has no classes"):
            classified([none], {"y": 1})
    for wrong in (-1, 1.5, True, "2"):
        with pytest.raises(BadRequest, match="whole number"):
            read_request(body(one("FP32", [1], [1]), outputs=[{"name": "y", "parameters": {"classification": wrong}}]), None)


def test_a_runner_that_lies_about_its_tensors_is_found_out():
    for places in (
        [["y", "FP32", [1], 8]],
        [["y", "FP32", [2], 4]],
        [["y", "FP32", [1], 4], ["y", "FP32", [0], 0]],
        [["y", "F", [1], 4]],
        [],
    ):
        head = msgspec.json.decode(json.dumps({"tensors": places}), type=TensorsHead)
        with pytest.raises(ValueError, match=r".+"):
            split(head, b"\0" * 4)


VALID = body(
    one("FP32", [2, 2], [[1, 2], [3, 4]]),
    {"name": "n", "datatype": "INT64", "shape": [1], "data": [5], "parameters": {"p": 1}},
    id="a",
    parameters={"k": "v"},
    outputs=[{"name": "y", "parameters": {"binary_data": True}}],
)


def test_any_mutation_is_understood_or_refused():
    chance = random.Random(33)
    refused: list[str] = []
    for _ in range(count(500, long=5000)):
        broken = bytearray(VALID)
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(broken))
            kind = chance.randrange(4)
            if kind == 0:
                broken[at] = chance.randrange(256)
            elif kind == 1:
                del broken[at : at + chance.randrange(1, 9)]
            elif kind == 2:
                broken[at:at] = chance.choice([b"[", b"]", b"{", b"-", b"9" * 30, b'"', b"null", b"1e999", b"\0", b',"id":1'])
            else:
                broken += bytes(chance.randrange(256) for _ in range(3))
            if not broken:
                broken = bytearray(b"x")
        length = chance.choice([None, str(chance.randrange(len(broken) + 3)), str(len(broken))])
        try:
            asked = read_request(bytes(broken), length)
            check_inputs(asked.tensors, None)
        except BadRequest as refusal:
            refused.append(refusal.message)
    assert all(refused)
    assert len(refused) > count(500, long=5000) / 2
