"""Tensors as model code sees them: every data type there and back, with numpy and without."""

import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fornada_sdk import Request, Tensor, Tensors
from fornada_sdk.runner.tensor_answers import as_json, of_result
from fornada_sdk.wire.tensors import FORMS, flattened, nested

INTS = {name: (struct.calcsize(f"<{form}") * 8, form.islower()) for name, form in FORMS.items() if form in "bBhHiIqQ"}


def values_of(dtype: str) -> st.SearchStrategy[Any]:
    if dtype == "BOOL":
        return st.booleans()
    if dtype == "BYTES":
        return st.binary(max_size=20)
    if dtype in INTS:
        bits, signed = INTS[dtype]
        return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) if signed else st.integers(0, (1 << bits) - 1)
    if dtype == "BF16":  # what half the bits of a float can hold
        return st.integers(-1000, 1000).map(lambda n: struct.unpack("<f", struct.pack("<f", n / 8))[0]).map(_as_bfloat)
    return st.floats(width=16) if dtype == "FP16" else st.floats(width=32) if dtype == "FP32" else st.floats()


def _as_bfloat(value: float) -> float:
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    found: float = struct.unpack("<f", struct.pack("<I", bits & 0xFFFF0000))[0]
    return found


@st.composite
def tensors(draw: st.DrawFn) -> tuple[str, list[int], list[Any]]:
    dtype = draw(st.sampled_from([*FORMS, "BF16", "BYTES"]))
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    size = math.prod(shape)
    return dtype, shape, draw(st.lists(values_of(dtype), min_size=size, max_size=size))


@given(tensors())
def test_every_data_type_comes_back_as_it_was(made: tuple[str, list[int], list[Any]]):
    dtype, shape, flat = made
    tensor = Tensor(flat, dtype, shape)
    again = Tensor.raw(dtype, shape, tensor.data)
    assert list(map(repr, again.flat())) == list(map(repr, flat))
    assert list(again.shape) == shape
    array = again.numpy()
    assert array.shape == tuple(shape)
    assert bytes(Tensor(array, dtype).data) == bytes(tensor.data)


def test_nested_lists_and_their_shape_are_one():
    assert flattened([[1, 2], [3, 4], [5, 6]]) == ([1, 2, 3, 4, 5, 6], [3, 2])
    assert nested([1, 2, 3, 4, 5, 6], [3, 2]) == [[1, 2], [3, 4], [5, 6]]
    assert nested([7], []) == 7
    assert nested([], [2, 0]) == [[], []]
    assert nested([], [0, 2]) == []
    for wrong in ([[1], [2, 3]], [1, [2]], [[1], 2]):
        with pytest.raises(ValueError, match="different lengths"):
            flattened(wrong)


@pytest.mark.parametrize(
    ("values", "dtype"), [([300], "UINT8"), ([-1], "UINT64"), ([1.5], "INT64"), ([1e300], "FP32"), ([70000.0], "FP16"), ([1], "BYTES")]
)
def test_what_a_type_cant_hold_is_refused(values: list[Any], dtype: str):
    with pytest.raises(ValueError, match=dtype):
        Tensor(values, dtype)


def test_bfloat_is_rounded_to_the_nearest():
    assert Tensor([1.0, 1.00390625, 1.01171875, math.inf], "BF16").flat() == [1.0, 1.0, 1.015625, math.inf]
    assert math.isnan(Tensor([math.nan], "BF16").flat()[0])


def test_a_request_made_by_hand_holds_tensors_and_their_lists():
    request = Request(tensors={"x": Tensor([[1.0, 2.0]], "FP32"), "b": Tensor(["é", b"\xff"])})
    assert request.tensors["x"].tolist() == [[1.0, 2.0]]
    assert request.tensors["b"].flat() == ["é".encode(), b"\xff"]
    assert request.body.json == {"x": [[1.0, 2.0]], "b": ["é", b"\xff"]}
    assert not Request(json={}).tensors


def test_answers_take_the_declared_type_and_leave_out_what_nobody_wants():
    from fornada_sdk.runner.engines import Tensor as Declared

    declared = [Declared("y", "FP32", [-1]), Declared("z", "INT64", [-1])]
    body, head = of_result({"y": [1, 2], "z": np.array([3]), "note": "a", "n": 5}, declared, {"tensors": {"wanted": ["y"]}})
    assert head["tensors"] == {"tensors": [["y", "FP32", [2], 8]], "parameters": {"note": "a", "n": 5}}
    assert body == struct.pack("<2f", 1, 2)
    with pytest.raises(TypeError, match="'w', which is none of the outputs"):
        of_result({"w": [1]}, declared, {})
    with pytest.raises(TypeError, match="named tensors"):
        of_result([1], declared, {})
    with pytest.raises(ValueError, match="output 'z'"):
        of_result({"z": [1.5]}, declared, {})


def test_tensors_answer_json_too():
    answer = Tensors({"y": np.array([[1.5]], "float32"), "s": Tensor(["é", b"\xff"])}, parameters={"k": 1})
    assert as_json(answer) == {"outputs": {"y": [[1.5]], "s": ["é", {"b64": "/w=="}]}, "parameters": {"k": 1}}
