"""Tensors as JSON, and several requests in one call: what engines share."""

from typing import Any

import numpy as np
import pytest

from fornada_sdk import BadRequest, Context, Request
from fornada_sdk.api_tensors import Tensor as Sent
from fornada_sdk.api_tensors import Tensors
from fornada_sdk.runner.engines.tensors import TensorInfo, from_json, from_tensors, metadata, run_together
from fornada_sdk.runner.engines.weights import Declarative
from fornada_sdk.runner.tensor_answers import as_json, of_result

X = TensorInfo("x", "float32", (-1, 2))
N = TensorInfo("n", "int64", (-1,))
S = TensorInfo("s", "object", (-1,))
ANY = TensorInfo("any", "float32", None)


def test_named_inputs_become_arrays_of_the_models_types() -> None:
    arrays = from_json({"inputs": {"x": [[1, 2.5]], "n": [3], "s": ["é", {"b64": "AP8="}]}}, [X, N, S])
    assert {name: array.dtype.name for name, array in arrays.items()} == {"x": "float32", "n": "int64", "s": "object"}
    assert arrays["x"].tolist() == [[1, 2.5]] and arrays["n"].tolist() == [3] and arrays["s"].tolist() == ["é".encode(), b"\0\xff"]


def test_a_model_with_one_input_takes_it_without_its_name() -> None:
    assert from_json({"inputs": [[1, 2]]}, [X])["x"].tolist() == [[1, 2]]
    assert from_json({"inputs": 3}, [ANY])["any"].shape == ()
    assert from_json({"inputs": []}, [N])["n"].shape == (0,)


@pytest.mark.parametrize(
    ("value", "infos", "why"),
    [
        ([], [X], "the body must be"),
        ({"input": 1}, [X], "takes x FP32"),
        ({"inputs": [1]}, [X, N], "has 2 inputs"),
        ({"inputs": {"y": 1}}, [X], "no input is called y"),
        ({"inputs": {"x": [[1, 2]]}}, [X, N], "input n is missing"),
        ({"inputs": [1, 2]}, [X], r"x must be FP32 \[-1, 2\]; it came as \[2\]"),
        ({"inputs": [[1, 2, 3]]}, [X], r"it came as \[1, 3\]"),
        ({"inputs": [[1], [2, 3]]}, [X], "input x must be FP32"),
        ({"inputs": [["a", "b"]]}, [X], "another type"),
        ({"inputs": [[None, 1]]}, [X], "another type"),
        ({"inputs": [1.5]}, [N], "another type"),
        ({"inputs": [2**70]}, [N], "input n must be INT64"),
        ({"inputs": [2**63]}, [N], "out of range"),
        ({"inputs": [300]}, [TensorInfo("b", "uint8", (-1,))], "out of range"),
        ({"inputs": [-1]}, [TensorInfo("b", "uint8", (-1,))], "out of range"),
        ({"inputs": [1]}, [S], "write strings"),
        ({"inputs": [["a"], ["b", "c"]]}, [TensorInfo("s", "object", (-1, -1))], "input s must be BYTES"),
        ({"inputs": [{"b64": "%"}]}, [S], "no base64"),
    ],
)
def test_what_doesnt_fit_is_the_callers_fault(value: Any, infos: list[TensorInfo], why: str) -> None:
    with pytest.raises(BadRequest, match=why):
        from_json(value, infos)


def test_outputs_are_nested_lists_and_bytes_are_text_where_they_can_be() -> None:
    strings = np.array(["é".encode(), b"\xff"], dtype=object)
    outputs = {"y": np.array([[1.5]], np.float32), "s": strings, "one": np.array(b"a", dtype=object)}
    assert as_json(Tensors(outputs)) == {"outputs": {"y": [[1.5]], "s": ["é", {"b64": "/w=="}], "one": "a"}}


def test_metadata_speaks_the_open_inference_protocol() -> None:
    assert metadata([X, S, ANY, TensorInfo("b", "bfloat16", (1,))]) == [("x", "FP32", [-1, 2]), ("s", "BYTES", [-1]), ("any", "FP32", [-1])]


class Doubles:
    """An engine that counts its calls."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def __call__(self, inputs: dict[str, Any]) -> dict[str, Any]:
        self.rows.append(len(inputs["x"]) if inputs["x"].ndim else 0)
        return {"y": inputs["x"] * 2}


def item(*rows: float) -> dict[str, Any]:
    return {"x": np.array(rows, np.float32)}


def test_requests_that_fit_share_one_call_and_each_gets_its_own_rows() -> None:
    run = Doubles()
    outputs = run_together(run, [item(1), item(2, 3), item(4)])
    assert run.rows == [4]
    assert [output["y"].tolist() for output in outputs] == [[2], [4, 6], [8]]


def test_requests_of_other_shapes_go_alone_and_the_order_stays() -> None:
    run = Doubles()
    wide = {"x": np.array([[1, 2]], np.float32)}
    scalar = {"x": np.array(5, np.float32)}
    double = {"x": np.array([7], np.float64)}
    outputs = run_together(run, [item(1), wide, scalar, item(2), double])
    assert sorted(run.rows) == [0, 1, 1, 2]
    assert [output["y"].tolist() for output in outputs] == [[2], [[2, 4]], 10, [4], [14]]


def test_a_model_whose_outputs_dont_count_rows_is_called_once_a_request() -> None:
    outputs = run_together(lambda inputs: {"sum": inputs["x"].sum()}, [item(1, 2), item(3)])
    assert [float(output["sum"]) for output in outputs] == [3, 3]
    ragged = {"x": np.zeros(2), "z": np.zeros(3)}
    assert run_together(lambda inputs: {"n": np.array(len(inputs))}, [ragged, ragged]) == [{"n": 2}, {"n": 2}]
    assert run_together(lambda inputs: {}, []) == []


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "value",
    [
        [0.1, 2.5, -3.0],
        [0.1, 2, True, 2**60],
        [[0.1, 1e-45], [1, 2]],
        [[1.5]],
        [[[0.5, 1.5]]],
        [0.5, 1e38],
    ],
)
def test_lists_of_floats_become_what_numpy_makes_of_them(value: Any, dtype: str) -> None:
    array = from_json({"inputs": value}, [TensorInfo("any", dtype, None)])["any"]
    wanted = np.asarray(value).astype(dtype)
    assert array.dtype == wanted.dtype and array.shape == wanted.shape and array.tolist() == wanted.tolist()
    array[...] = 0  # model code may write into what it is given


@pytest.mark.parametrize("value", [[0.5, None], [0.5, "1"], [[0.5, 1.0], [2.0]], [[0.5], 1.0], [[0.5], [[1.0]]], [0.5, [1.0]]])
def test_a_list_that_only_begins_with_floats_is_refused(value: Any) -> None:
    with pytest.raises(BadRequest, match="input any must be FP32"):
        from_json({"inputs": value}, [ANY])


def test_tensors_off_the_wire_become_arrays_and_misfits_are_named() -> None:
    infos = [TensorInfo("x", "float32", (-1, 2)), TensorInfo("s", "object", None)]
    x, s = Sent([[1, 2], [3, 4]], "FP32"), Sent(["a"], "BYTES")
    arrays = from_tensors({"x": x, "s": s}, infos)
    assert arrays["x"].dtype == np.float32 and arrays["x"].tolist() == [[1, 2], [3, 4]] and arrays["s"].tolist() == [b"a"]
    for given, why in (
        ({"x": Sent([1], "INT32"), "s": s}, "input 'x': got INT32, expects FP32"),
        ({"x": Sent([1], "FP32"), "s": s}, r"input 'x': got shape \[1\], expects \[-1, 2\]"),
        ({"x": x}, "input 's' is missing"),
        ({"x": x, "s": s, "z": s}, "input 'z': the model has no such input"),
    ):
        with pytest.raises(BadRequest, match=why):
            from_tensors(given, infos)


def test_a_model_without_code_answers_tensors_and_json_alike() -> None:
    class Doubles:
        def __init__(self) -> None:
            self.inputs = [TensorInfo("x", "float32", (-1,))]

        def run(self, inputs: Any) -> Any:
            return {"y": inputs["x"] * 2}

    model = Declarative()
    model.engine = Doubles()
    context = Context.inactive()
    for request in (Request(tensors={"x": Sent([1.5], "FP32")}), Request(json={"inputs": {"x": [1.5]}})):
        outputs = model.postprocess(model.run(model.preprocess(request, context), context), context)
        assert as_json(outputs) == {"outputs": {"y": [3.0]}}
        body, head = of_result(outputs, [], {})
        assert (body, head["tensors"]["tensors"]) == (np.float32(3).tobytes(), [["y", "FP32", [1], 4]])
