"""Models without code, whose weights alone say what goes in: by the Open Inference Protocol and TensorFlow Serving's REST, on a node."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fornada.models
from tests.harness.bundles import archive
from tests.harness.node import Node
from tests.models.onnx_file import add_model

pytestmark = [pytest.mark.packages, pytest.mark.timeout(300)]
NAME = "@test/adds"
INFER = f"/v2/models/{NAME}/infer"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    requirements = (Path(fornada.models.__path__[0]) / "magika/requirements.lock").read_bytes()
    toml = f'name = "{NAME}"\nengine = "onnx"\n[python]\ndependencies = ["onnxruntime==1.32.0", "numpy==2.4.6"]\n'
    made = Node(tmp_path_factory.mktemp("weights")).start()
    try:
        made.deploy(NAME, archive({"model.toml": toml.encode(), "m.onnx": add_model(), "requirements.lock": requirements}))
        yield made
        assert made.stop() == 0, made.said()
    finally:
        made.destroy()


def post(node: Node, path: str, payload: Any) -> tuple[int, Any]:
    answer = node.fetch("POST", path, json.dumps(payload).encode(), timeout_s=200)
    return answer.status, json.loads(answer.body)


def tensor(name: str, data: Any, dtype: str = "FP32") -> dict[str, Any]:
    return {"name": name, "datatype": dtype, "shape": [1, 2], "data": data}


def test_metadata_loads_the_model_and_shows_what_the_weights_say(node: Node):
    said = json.loads(node.fetch("GET", f"/v2/models/{NAME}", timeout_s=200).body)
    assert said["inputs"] == [{"name": name, "datatype": "FP32", "shape": [-1, 2]} for name in ("a", "b")]
    assert said["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}]
    said = json.loads(node.fetch("GET", f"/v1/models/{NAME}/metadata", timeout_s=200).body)
    assert said["metadata"]["signature_def"]["signature_def"]["serving_default"]["outputs"]["y"]["dtype"] == "DT_FLOAT"


def test_tensors_go_straight_to_the_weights(node: Node):
    status, said = post(node, INFER, {"inputs": [tensor("a", [1, 2]), tensor("b", [[0.5, 0.25]])]})
    assert status == 200, said
    assert said["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [1.5, 2.25]}]
    for inputs, why in (
        ([tensor("a", [1, 2])], "input 'b' is missing"),
        ([tensor("a", [1, 2], "INT32"), tensor("b", [1, 2])], "input 'a': got INT32, expects FP32"),
        ([{**tensor("a", [1, 2]), "shape": [2]}, tensor("b", [1, 2])], "input 'a': got shape [2], expects [-1, 2]"),
        ([tensor("a", [1, 2]), tensor("b", [1, 2]), tensor("c", [1, 2])], "input 'c': the model has no such input"),
    ):
        status, said = post(node, INFER, {"inputs": inputs})
        assert (status, why in said["error"]) == (400, True), said


def test_rows_and_columns_do_too(node: Node):
    rows = [{"a": [1, 2], "b": [1, 1]}, {"a": [3, 4], "b": [1, 1]}]
    assert post(node, f"/v1/models/{NAME}:predict", {"instances": rows}) == (200, {"predictions": [[2.0, 3.0], [4.0, 5.0]]})
    columns = {"a": [[1, 2]], "b": [[1, 1]]}
    assert post(node, f"/v1/models/{NAME}:predict", {"inputs": columns}) == (200, {"outputs": [[2.0, 3.0]]})
    assert post(node, f"/v1/models/{NAME}:predict", {"inputs": {"a": [[1, 2]]}})[0] == 400
    large = {"a": [[3e38, 0]], "b": [[3e38, 0]]}
    assert post(node, f"/v1/models/{NAME}:predict", {"inputs": large}) == (200, {"outputs": [[None, 0.0]], "nonfinite": True})
