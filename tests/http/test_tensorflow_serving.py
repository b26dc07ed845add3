"""TensorFlow Serving's REST API against a node: the requests of its documentation, in the shapes that it promises, by urllib alone.

The documentation's model is half_plus_two; the example folder of that name is a model of ours that does the same.
"""

import base64
import json
import random
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.bounds import count
from tests.docs.pages import REPOSITORY
from tests.harness.bundles import archive, packed
from tests.harness.node import Node

pytestmark = pytest.mark.clients
PROBE = "@test/columns"
CLASSIFIER = """
import fornada_sdk

class Model(fornada_sdk.Model):
    def run(self, request, context):
        x = request.tensors["x"].flat()
        scores = [[value, 1 - value] for value in x]
        if context.settings.get("one"):
            return {"y": [[value * 2] for value in x]}
        return {"scores": scores, "classes": [["cat", "dog"]] * len(x)}
"""
TOML = """
name = "{name}"
[settings]
one = {one}
[[tensors.inputs]]
name = "x"
dtype = "FP32"
shape = [-1]
[[tensors.outputs]]
name = "{output}"
dtype = "FP32"
shape = [-1, -1]
{more}
"""
PICTURES = """
import fornada_sdk
class Model(fornada_sdk.Model):
    def run(self, request, context):
        values = list(request.tensors["image_bytes"].flat())
        return {"image_bytes": values, "caption": values}
"""
PICTURES_TOML = """
name = "pictures"
[[tensors.inputs]]
name = "image_bytes"
dtype = "BYTES"
shape = [-1]
[[tensors.outputs]]
name = "image_bytes"
dtype = "BYTES"
shape = [-1]
[[tensors.outputs]]
name = "caption"
dtype = "BYTES"
shape = [-1]
"""
CLASSES = '[[tensors.outputs]]\nname = "classes"\ndtype = "BYTES"\nshape = [-1, -1]'


NAMES_ITS_FIELD = r"the body|'(instances|inputs|signature_name)|signature_name|input '|'[^']*' comes twice|\d+ inputs"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("tfserving")
    made = Node(folder).start()
    try:
        made.deploy("half_plus_two", packed(REPOSITORY / "examples/half-plus-two"))
        made.deploy_probe(PROBE)
        for name, one, output, more in (("classifier", "false", "scores", CLASSES), ("regressor", "true", "y", "")):
            place = folder / name
            place.mkdir()
            (place / "model.py").write_text(CLASSIFIER)
            (place / "model.toml").write_text(TOML.format(name=name, one=one, output=output, more=more))
            made.deploy(name, packed(place))
        made.deploy("pictures", archive({"model.toml": PICTURES_TOML, "model.py": PICTURES}))
        yield made
        assert made.stop() == 0, made.said()
    finally:
        made.destroy()


def ask(node: Node, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(f"{node.url_of('TensorFlow Serving (urllib)')}/v1/models/{path}", data, headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refusal:
        return refusal.code, json.load(refusal)


def test_the_documentations_predict_example(node: Node):
    assert ask(node, "half_plus_two:predict", {"instances": [1.0, 2.0, 5.0]}) == (200, {"predictions": [2.5, 3.0, 4.5]})
    assert ask(node, "half_plus_two:predict", {"signature_name": "serving_default", "instances": [1, 2]}) == (
        200,
        {"predictions": [2.5, 3.0]},
    )
    assert ask(node, "half_plus_two:predict", {"inputs": [1.0, 2.0, 5.0]}) == (200, {"outputs": [2.5, 3.0, 4.5]})
    assert ask(node, "half_plus_two:predict", {"inputs": {"x": [1.0]}}) == (200, {"outputs": [2.5]})
    assert ask(node, "half_plus_two:predict", {"instances": [{"x": 1.0}, {"x": 2.0}]}) == (200, {"predictions": [2.5, 3.0]})


def test_named_rows_and_columns_with_bytes(node: Node):
    rows = [{"x": 0.5, "b": {"b64": "/w=="}, "n": 1}, {"x": 1.5, "b": "text", "n": 2}]
    assert ask(node, f"{PROBE}:predict", {"instances": rows}) == (200, {"predictions": rows})
    columns = {"x": [0.5], "b": [{"b64": "/wBh"}]}
    assert ask(node, f"{PROBE}:predict", {"inputs": columns}) == (200, {"outputs": columns})


def test_status_and_metadata_are_those_that_its_clients_read(node: Node):
    status, said = ask(node, "half_plus_two")
    assert status == 200
    assert (said["id"], said["object"]) == ("half_plus_two", "model"), "the same object is OpenAI's"
    (version,) = said["model_version_status"]
    assert version["state"] == "AVAILABLE"
    assert version["status"] == {"error_code": "OK", "error_message": ""}
    number = version["version"]
    assert ask(node, f"half_plus_two/versions/{number}")[1] == {"model_version_status": [version]}
    assert ask(node, "half_plus_two/labels/stable")[1] == {"model_version_status": [version]}
    status, said = ask(node, "half_plus_two/metadata")
    assert said["model_spec"] == {"name": "half_plus_two", "signature_name": "", "version": number}
    signature = said["metadata"]["signature_def"]["signature_def"]["serving_default"]
    assert signature["inputs"]["x"]["dtype"] == "DT_FLOAT"
    assert signature["inputs"]["x"]["tensor_shape"] == {"dim": [{"size": "-1", "name": ""}], "unknown_rank": False}
    assert signature["method_name"] == "tensorflow/serving/predict"
    for place in (f"versions/{number}", "labels/stable"):
        assert ask(node, f"half_plus_two/{place}:predict", {"instances": [1.0]}) == (200, {"predictions": [2.5]})
    assert ask(node, "half_plus_two/versions/1:predict", {"instances": [1.0]})[0] == 404
    assert ask(node, "half_plus_two/labels/nope:predict", {"instances": [1.0]})[0] == 400


def test_what_a_gateway_keeps_for_one_verb_answers_no_other(node: Node):
    headers = {"cf-aig-gateway-id": "default", "cf-aig-cache-ttl": "60"}
    body = {"examples": [{"x": 0.5}]}
    assert ask(node, "regressor:regress", body, **headers)[1]["results"] == [1.0]
    for verb in ("predict", "classify"):
        assert ask(node, f"regressor:{verb}", body, **headers) == ask(node, f"regressor:{verb}", body), verb


def test_classify_and_regress(node: Node):
    status, said = ask(node, "classifier:classify", {"examples": [{"x": 0.75}, {"x": 0.25}]})
    assert (status, said["results"]) == (200, [[["cat", 0.75], ["dog", 0.25]], [["cat", 0.25], ["dog", 0.75]]])
    status, said = ask(node, "regressor:regress", {"context": {"x": 2.0}, "examples": [{}, {"x": 3.0}]})
    assert (status, said["results"]) == (200, [4.0, 6.0])
    status, said = ask(node, "classifier:regress", {"examples": [{"x": 0.75}]})
    assert status == 400
    assert "more than one number a row" in said["error"]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"{", "the body is no JSON"),
        (b"[]", "must be a JSON object"),
        ({}, "either 'instances' (rows) or 'inputs' (columns)"),
        ({"instances": [1.0], "inputs": [1.0]}, "either 'instances' (rows) or 'inputs' (columns)"),
        ({"instances": []}, "at least one row"),
        ({"instances": [1.0], "signature_name": "other"}, 'Serving signature key "other" not found'),
        ({"instances": ["a"]}, "input 'x': JSON Value: \"a\" is not of expected type: FP32"),
        ({"instances": [None]}, "input 'x': JSON Value: null is not of expected type: FP32"),
        ({"instances": [[1.0], [2.0]]}, "input 'x': got shape [2, 1], expects [-1]"),
        ({"instances": [[1.0], [2.0, 3.0]]}, "input 'x': the lists are of different lengths"),
        ({"instances": [{"z": 1.0}]}, "input 'z': the model has no such input"),
        ({"instances": [{"x": 1.0}, 2.0]}, "'instances[1]' must be an object with the names of the first one: x"),
        ({"instances": [1e300]}, "input 'x': a value is no FP32"),
        (b'{"instances": [NaN]}', "no JSON"),
        (b'{"instances": [1.0], "instances": [2.0]}', "comes twice"),
        (b'{"instances": [1.0], "instance\\u0073": [2.0]}', "'instances' comes twice"),
        (b'{"instances": [{"x": 1.0, "x": 2.0}]}', "'x' comes twice"),
        (b'{"inputs": {"x": [1.0], "\\u0078": [2.0]}}', "'x' comes twice"),
    ],
)
def test_what_does_not_fit_is_named(node: Node, body: Any, why: str):
    status, said = ask(node, "half_plus_two:predict", body)
    assert status == 400
    assert why in said["error"]
    assert said["errors"][0]["code"] == 5006


def test_other_refusals_are_texts_too(node: Node):
    for path, body, status, code in (
        ("nobody:predict", {"instances": [1.0]}, 404, 5007),
        ("@fornada/vader:predict", {"instances": [1.0]}, 400, 5006),
        ("..%2Fx:predict", {"instances": [1.0]}, 400, 5006),
    ):
        found, said = ask(node, path, body)
        assert (found, said["errors"][0]["code"]) == (status, code)
        assert isinstance(said["error"], str)


def test_outputs_whose_names_end_in_bytes_are_base64_and_others_text_where_they_are_text(node: Node):
    sent = [{"b64": base64.b64encode(value).decode()} for value in (b"text", b"\xff\xd8")]
    caption = ["text", sent[1]]
    status, said = ask(node, "pictures:predict", {"instances": [{"image_bytes": value} for value in sent]})
    assert (status, said["predictions"]) == (200, [{"image_bytes": a, "caption": b} for a, b in zip(sent, caption, strict=True)])
    status, said = ask(node, "pictures:predict", {"inputs": {"image_bytes": ["text", sent[1]]}})
    assert (status, said["outputs"]) == (200, {"image_bytes": sent, "caption": caption})


WRONG: dict[str, list[Any]] = {
    "x": ["a", None, True, {}, {"b64": "AA=="}, [1.0], 1e300],
    "n": [1.5, "1", True, None, 1 << 70, [1]],
    "b": [1, None, True, {"b64": "*"}, {"b64": 1}, {"b65": ""}, ["text"]],
}
"""For each input of the probe what it can't be."""


@pytest.mark.parametrize("form", ["instances", "inputs"])
def test_every_value_that_cannot_be_is_refused_by_the_name_of_its_input(node: Node, form: str):
    for name, values in WRONG.items():
        for value in values:
            row: dict[str, Any] = {"x": 0.5, "n": 1, "b": "text", name: value}
            body = {"instances": [row]} if form == "instances" else {"inputs": {key: [each] for key, each in row.items()}}
            status, said = ask(node, f"{PROBE}:predict", body)
            assert (status, said["errors"][0]["code"]) == (400, 5006), (name, value)
            assert f"input '{name}'" in said["error"], (value, said["error"])


def test_no_mutation_of_a_body_harms_the_server(node: Node):
    chance = random.Random(35)
    rows = [{"x": 0.5, "b": {"b64": "/w=="}, "n": 1}, {"x": 1.5, "b": "text", "n": 2}]
    bodies = [json.dumps(each).encode() for each in ({"instances": rows}, {"inputs": {"x": [0.5]}, "signature_name": "serving_default"})]
    node.load(PROBE)
    pids, control = node.pids(PROBE), node.control_pid
    pieces = [b"[", b"}", b"-", b"99999999999999999999", b'"', b"null", b"\0", b"\xff", b"", b"[" * 5000, b'{"b64":', b"1e999", b"true"]
    with node.connect() as connection:
        for _ in range(count(300, long=3000)):
            body = bytearray(chance.choice(bodies))
            for _ in range(chance.randrange(1, 4)):
                at = chance.randrange(len(body))
                body[at : at + chance.randrange(3)] = chance.choice(pieces)
            connection.send_request("POST", f"/v1/models/{PROBE}:predict", bytes(body), {})
            answer = connection.read_response()
            assert answer.status in (200, 400), (bytes(body), answer.body)
            if answer.status == 400:
                assert re.search(NAMES_ITS_FIELD, json.loads(answer.body)["error"]), (bytes(body), answer.body)
    assert (node.pids(PROBE), node.control_pid) == (pids, control)
