"""Weights without code: the engines find them, describe their tensors, and take and give tensors as JSON."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fornada_sdk.api_tensors import Tensor
from tests.models.conftest import MODELS, StartRunner
from tests.models.environments import digest, environment, made, run
from tests.models.onnx_file import FLOAT, INT64, STRING, add_model, identity_model
from tests.models.runner import Runner

pytestmark = [pytest.mark.packages, pytest.mark.slow, pytest.mark.timeout(600)]

HERE = Path(__file__).parent
LOCKS = {
    "tensorflow": MODELS / "efficientnet-lite0" / "requirements.lock",
    "onnx": MODELS / "minilm" / "requirements.lock",
    "litert": MODELS / "mobilenet-v2" / "requirements.lock",
}
Serve = Callable[..., Runner]


@pytest.fixture(scope="module")
def weights() -> Path:
    """Folders with small TensorFlow models."""
    script = HERE / "weights" / "make.py"

    def make(target: Path) -> None:
        target.mkdir()
        run(environment(LOCKS["tensorflow"]), "-I", "-B", script, target)

    return made(f"weights-{digest(script.read_bytes(), LOCKS['tensorflow'].read_bytes())}", make)


@pytest.fixture
def serve(start: StartRunner, tmp_path: Path) -> Serve:
    """Serves a folder of weights: `serve("onnx", {"m.onnx": bytes})`, `serve("tensorflow", folder)`."""

    def serve_weights(engine: str, content: Path | dict[str, bytes], *, code: str = "", example: str = "", **changes: Any) -> Runner:
        folder = tmp_path / f"model-{len(os.listdir(tmp_path))}"
        folder.mkdir()
        if isinstance(content, Path):
            shutil.copytree(content, folder, dirs_exist_ok=True)
        else:
            for name, data in content.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(data)
        python = '[python]\nentry = "model.py"\n' if code else ""
        (folder / "model.toml").write_text(f'name = "@test/weights"\nengine = "{engine}"\n{python}[serving]\nmax_batch = 4\n')
        (folder / "requirements.lock").write_bytes(LOCKS[engine].read_bytes())
        if code:
            (folder / "model.py").write_text(code)
        if example:
            (folder / "example").mkdir()
            (folder / "example" / "request.json").write_text(example)
        return start(folder, **changes)

    return serve_weights


def test_an_onnx_file_alone_is_a_model(serve: Serve) -> None:
    runner = serve("onnx", {"add.onnx": add_model()})
    assert runner.ready["tensors"] == {
        "inputs": [{"name": name, "dtype": "FP32", "shape": [-1, 2]} for name in ("a", "b")],
        "outputs": [{"name": "y", "dtype": "FP32", "shape": [-1, 2]}],
    }
    assert runner.ask({"inputs": {"a": [[1, 2], [3, 4]], "b": [[10, 20], [30, 40]]}}).json == {"outputs": {"y": [[11, 22], [33, 44]]}}
    for wrong, why in [
        ({"inputs": {"a": [[1, 2]]}}, "input b is missing"),
        ({"inputs": {"a": [[1, 2]], "b": [[1, 2, 3]]}}, "it came as [1, 3]"),
        ({}, "the body must be"),
    ]:
        answer = runner.ask(wrong)
        assert answer.status == "bad_request" and why in answer.head["message"]
    nonfinite = runner.ask({"inputs": {"a": [[3e38, 0]], "b": [[3e38, 0]]}})
    assert nonfinite.json == {"outputs": {"y": [[None, 0]]}} and nonfinite.head["nonfinite"]


def test_what_only_the_library_can_see_fails_the_request_and_the_model_goes_on(serve: Serve) -> None:
    runner = serve("onnx", {"add.onnx": add_model()})
    answer = runner.ask({"inputs": {"a": [[1, 2]] * 2, "b": [[1, 2]] * 3}})
    assert answer.status == "raised" and answer.head["message"]
    assert runner.ask({"inputs": {"a": [[1, 2]], "b": [[0, 0]]}}).json == {"outputs": {"y": [[1, 2]]}}


def test_requests_at_the_same_time_are_joined_and_split_again(serve: Serve) -> None:
    runner = serve("onnx", {"add.onnx": add_model(INT64)})
    bodies: list[Any] = [{"inputs": {"a": [[i, i]] * (i % 3 + 1), "b": [[1, 2]] * (i % 3 + 1)}} for i in range(9)]
    bodies[4] = {"inputs": {"a": [[1, 1]], "b": "no numbers"}}
    answers = runner.send_all([(json.dumps(body).encode(), "application/json", []) for body in bodies])
    assert answers[4].status == "bad_request"
    for i, answer in enumerate(answers):
        if i != 4:
            assert answer.json == {"outputs": {"y": [[i + 1, i + 2]] * (i % 3 + 1)}}


def test_strings_pass_through_onnx(serve: Serve) -> None:
    runner = serve("onnx", {"same.onnx": identity_model(STRING)})
    assert runner.ready["tensors"]["inputs"] == [{"name": "x", "dtype": "BYTES", "shape": [-1]}]
    assert runner.ask({"inputs": ["a", "é"]}).json == {"outputs": {"y": ["a", "é"]}}
    assert runner.ask({"inputs": []}).json == {"outputs": {"y": []}}
    assert runner.ask({"inputs": [{"b64": "AP8="}]}).status == "bad_request"
    answer = runner.ask_tensors({"x": Tensor(["a", "é"])})["y"]
    assert (answer.dtype, answer.flat()) == ("BYTES", [b"a", "é".encode()])


def test_a_saved_model_alone_is_a_model(serve: Serve, weights: Path) -> None:
    runner = serve("tensorflow", weights / "double", example='{"inputs": {"x": [[1, 1]], "n": [1]}}')
    assert sorted(each["name"] for each in runner.ready["tensors"]["inputs"]) == ["n", "x"]
    assert {"name": "rows", "dtype": "INT64", "shape": [-1]} in runner.ready["tensors"]["outputs"]
    answer = runner.ask({"inputs": {"x": [[1, 2.5]], "n": [4, 5]}})
    assert answer.json == {"outputs": {"y": [[2, 5]], "rows": [5, 6]}}
    tensors = runner.ask_tensors({"x": Tensor([[1, 2.5]], "FP32"), "n": Tensor([4, 5], "INT64")})
    assert (tensors["y"].tolist(), tensors["rows"].dtype, tensors["rows"].tolist()) == ([[2, 5]], "INT64", [5, 6])
    answers = runner.send_all([(b'{"inputs": {"x": [[%d, 1]], "n": [1]}}' % i, "application/json", []) for i in range(4)])
    assert [answer.json["outputs"]["y"] for answer in answers] == [[[2.0 * i, 2]] for i in range(4)]


def test_strings_and_a_signature_of_another_name_work_in_a_saved_model(serve: Serve, weights: Path) -> None:
    runner = serve("tensorflow", weights / "words")
    assert runner.ask({"inputs": ["oven", {"b64": "AP8="}]}).json == {"outputs": {"upper": ["OVEN", {"b64": "AP8="}], "length": [4, 2]}}
    (given,) = runner.ready["tensors"]["inputs"]
    assert runner.ask_tensors({given["name"]: Tensor(["oven", b"\0\xff"])})["upper"].flat() == [b"OVEN", b"\0\xff"]


def test_a_keras_file_alone_is_a_model(serve: Serve, weights: Path) -> None:
    runner = serve("tensorflow", weights / "sum")
    assert [each["name"] for each in runner.ready["tensors"]["inputs"]] == ["a", "b"]
    names = [each["name"] for each in runner.ready["tensors"]["outputs"]]
    answer = runner.ask({"inputs": {"a": [[1, 2, 3], [0, 0, 0]], "b": [[4, 5, 6], [1, 1, 1]]}}).json["outputs"]
    assert [answer[name] for name in names] == [[[21], [3]], [[[1]], [[0]]]]


def test_outputs_of_a_keras_file_keep_their_names(serve: Serve, weights: Path) -> None:
    assert serve("tensorflow", weights / "named").ask({"inputs": [[1, 2, 3]]}).json == {
        "outputs": {"half": [[0.5, 1, 1.5]], "same": [[1, 2, 3]]}
    }
    assert serve("tensorflow", weights / "row").ask({"inputs": {"in": [[1, 2]]}}).json == {"outputs": {"out": [[3, 6]]}}


def test_a_keras_file_with_code_in_it_is_refused(serve: Serve, weights: Path) -> None:
    with pytest.raises(AssertionError, match=r"(?i)lambda|unsafe"):
        serve("tensorflow", weights / "lambda")


def test_a_tflite_file_alone_is_a_model(serve: Serve, weights: Path) -> None:
    runner = serve("litert", weights / "lite")
    assert [(each["dtype"], each["shape"]) for each in runner.ready["tensors"]["inputs"]] == [("FP32", [-1, 2])]
    (output,) = runner.ready["tensors"]["outputs"]
    shapes: list[list[list[float]]] = [[[1, 2]], [[1, 2], [0.5, -1]], [[4, 5]]]
    for rows in shapes:
        assert runner.ask({"inputs": rows}).json == {"outputs": {output["name"]: [[3 * x for x in row] for row in rows]}}
    answers = runner.send_all([(b'{"inputs": [[%d, 1]]}' % i, "application/json", []) for i in range(9)])
    assert [answer.json["outputs"][output["name"]] for answer in answers] == [[[3.0 * i, 3]] for i in range(9)]
    (given,) = runner.ready["tensors"]["inputs"]
    assert runner.ask_tensors({given["name"]: Tensor([[1, 2.5]], "FP32")})[output["name"]].tolist() == [[3, 7.5]]
    answer = runner.ask({"inputs": [[1, 2, 3]]})
    assert answer.status == "bad_request" and "it came as [1, 3]" in answer.head["message"]


def test_one_interpreter_serves_several_callers_at_the_same_time(serve: Serve, weights: Path) -> None:
    runner = serve("litert", weights / "lite", serving={"concurrency": 4, "max_batch": 1, "max_wait_ms": 0})
    (output,) = runner.ready["tensors"]["outputs"]
    rows = [[[float(i), 1.0]] * 2000 for i in range(80)]
    answers = runner.send_all([(json.dumps({"inputs": each}).encode(), "application/json", []) for each in rows])
    assert [answer.status for answer in answers] == ["ok"] * len(rows)
    assert [answer.json["outputs"][output["name"]][0] for answer in answers] == [[3.0 * i, 3] for i in range(80)]


def test_quantised_tensors_are_the_numbers_that_they_stand_for(serve: Serve, weights: Path) -> None:
    runner = serve("litert", weights / "quantised")
    assert [(each["dtype"], each["shape"]) for each in runner.ready["tensors"]["inputs"]] == [("FP32", [1, 3])]
    (output,) = runner.ready["tensors"]["outputs"]
    assert output["dtype"] == "FP32"
    for row, total in (([0.5, 0.25, 0], 0.75), ([-1, -1, 0], -2), ([1, -0.5, 0.25], 0.75), ([100, 1, 0], 2)):  # beyond 1 is cut
        (found,) = runner.ask({"inputs": [row]}).json["outputs"][output["name"]]
        assert found == pytest.approx([total], abs=0.04)
    answers = runner.send_all([(b'{"inputs": [[0.%d, 0, 0]]}' % i, "application/json", []) for i in range(9)])
    sums = [answer.json["outputs"][output["name"]][0][0] for answer in answers]
    assert sums == pytest.approx([i / 10 for i in range(9)], abs=0.04)


def test_integers_of_the_files_own_type_go_in_as_they_are(serve: Serve, weights: Path) -> None:
    code = """
import numpy as np
import fornada_sdk

class Model(fornada_sdk.Model):
    def preprocess(self, request, context):
        return {self.engine.inputs[0].name: np.asarray([request.body.json["bytes"]], np.uint8)}

    def postprocess(self, outputs, context):
        return float(next(iter(outputs.values()))[0, 0])

    def warmup(self, context):
        pass
"""
    runner = serve("litert", weights / "quantised", code=code)
    zero, top = runner.ask({"bytes": [128, 128, 128]}).json, runner.ask({"bytes": [255, 255, 128]}).json
    assert zero == pytest.approx(0, abs=0.04) and top == pytest.approx(2, abs=0.04)


def test_an_authors_model_stands_around_the_weights(serve: Serve) -> None:
    code = """
import numpy as np
import fornada_sdk

class Model(fornada_sdk.Model):
    def preprocess(self, request, context):
        value = request.body.json["value"]
        if value < 0:
            raise fornada_sdk.BadRequest("no negative values")
        return {"a": np.full((1, 2), value, np.float64), "b": np.ones((1, 2))}

    def postprocess(self, outputs, context):
        return {"sum": float(outputs["y"].sum())}

    def warmup(self, context):
        self.engine.run({"a": np.zeros((1, 2)), "b": np.zeros((1, 2))})
"""
    runner = serve("onnx", {"add.onnx": add_model()}, code=code)
    assert runner.ask({"value": 3}).json == {"sum": 8}
    bodies = [b'{"value": %d}' % value for value in (1, -1, 2)]
    answers = runner.send_all([(body, "application/json", []) for body in bodies])
    assert [answer.status for answer in answers] == ["ok", "bad_request", "ok"]
    assert [answers[0].json, answers[2].json] == [{"sum": 4}, {"sum": 6}]


@pytest.mark.parametrize(
    ("content", "code", "why"),
    [
        ({"readme.txt": b"nothing"}, "", r"neither the artifacts nor the folder hold a \.onnx file"),
        ({"a.onnx": add_model(), "b/c.onnx": add_model()}, "", r"several models \(a\.onnx, b/c\.onnx\)"),
        ({"a.onnx": add_model()}, "def handle_request(request, context): ...", "must hold a class"),
        ({"a.onnx": b"no protobuf at all"}, "", "(?i)protobuf|INVALID"),
    ],
)
def test_a_folder_that_cant_be_served_says_why(serve: Serve, content: dict[str, bytes], code: str, why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        serve("onnx", content, code=code)


def test_a_saved_model_without_the_one_signature_says_which_it_has(serve: Serve, weights: Path) -> None:
    with pytest.raises(AssertionError, match="no signature serving_default; it has a, b"):
        serve("tensorflow", weights / "nameless")


def test_an_artifact_is_taken_before_the_folder(serve: Serve, tmp_path: Path) -> None:
    artifact = tmp_path / "artifact.onnx"
    artifact.write_bytes(identity_model(FLOAT))
    runner = serve("onnx", {"add.onnx": add_model()}, artifacts={"w/other.txt": "/etc/hostname", "w/same.onnx": str(artifact)})
    assert runner.ask({"inputs": [1, 2]}).json == {"outputs": {"y": [1, 2]}}
