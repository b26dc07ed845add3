"""Case 35: whichever way bytes and texts come, the model is given the same ones, and they come back the same."""

import base64
import json
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from fornada_sdk.wire.tensors import packed
from tests.http.tensor_doors import LENGTH, MODEL, WAYS, Doors, Given, bundle, digest, doors_in

TEXTS = [
    ["plain", "ünïcödé 日本語 🍞", "", "\x00\x01\x1f\x7f", '"quoted" \\ \u2028'],
    ["aGk=", "/wBh", '{"b64": "aGk="}', "null", "[1]", "  spaces\r\n"],
    ["\ud7ff\ue000\ufffd\uffff\U0010ffff"],
    [""],
    [],
]
"""Also texts that look like what they aren't."""
BYTES = [
    [b"\xff\x00a"],
    [bytes(range(256))],
    [b"", b"\x80", b"text", "é".encode(), b"\xed\xa0\x80"],
    [b"\x04\x00\x00\x00abcd", b"\xef\xbb\xbf"],
    [bytes(range(256)) * 300, b"behind 64 KiB"],
]


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    with doors_in(tmp_path_factory.mktemp("bytes"), bundle()) as made:
        yield made


def given(values: list[Any]) -> Given:
    return Given("bytes", "BYTES", [len(values)], values)


@pytest.mark.parametrize("values", [*TEXTS, *BYTES], ids=lambda values: str(values)[:30])
@pytest.mark.parametrize("way", WAYS)
def test_over_the_open_inference_protocol(doors: Doors, way: str, values: list[Any]):
    tensor = given(values)
    said = doors.ask(way, tensor)
    assert (said.refusal, said.outputs.get("bytes"), said.seen) == ("", tensor.raw, digest(tensor))


@pytest.mark.parametrize("values", TEXTS[:-1], ids=lambda values: str(values)[:30])
def test_texts_over_tensorflow_serving(doors: Doors, values: list[str]):
    tensor = given(values)
    for answer in (doors.columns({"bytes": values}), doors.columns({"bytes": [_b64(value.encode()) for value in values]})):
        assert answer.status == 200, answer.body
        assert answer.json()["outputs"] == {"bytes": values, "seen": [digest(tensor)]}
    for value in values:
        one = doors.rows([{"bytes": value}])
        assert one.json()["predictions"] == [{"bytes": value, "seen": digest(given([value]))}]


@pytest.mark.parametrize("values", BYTES, ids=lambda values: str(values)[:30])
def test_bytes_over_tensorflow_serving(doors: Doors, values: list[bytes]):
    answer = doors.columns({"bytes": [_b64(value) for value in values]})
    said = answer.json()["outputs"]
    assert said["seen"] == [digest(given(values))]
    back = [base64.b64decode(each["b64"]) if isinstance(each, dict) else each.encode() for each in said["bytes"]]
    assert back == values


def test_base64_is_said_never_guessed(doors: Doors):
    """The same text with and without the word for it."""
    for content_type, meant in (("base64", b"hi"), ("str", b"aGk="), ("", b"aGk=")):
        asked: dict[str, Any] = {"name": "bytes", "datatype": "BYTES", "shape": [1], "data": ["aGk="]}
        if content_type:
            asked["parameters"] = {"content_type": content_type}
        outputs = _outputs(doors, asked)
        assert outputs["seen"]["data"] == [digest(given([meant]))]


def test_an_answer_is_text_only_where_all_of_it_is(doors: Doors):
    plain = _outputs(doors, {"name": "bytes", "datatype": "BYTES", "shape": [2], "data": ["é", "b"]})["bytes"]
    assert (plain["data"], plain.get("parameters")) == (["é", "b"], None)
    coded = [base64.b64encode(value).decode() for value in (b"\xff", b"b")]
    asked = {"name": "bytes", "datatype": "BYTES", "shape": [2], "data": coded, "parameters": {"content_type": "base64"}}
    back = _outputs(doors, asked)["bytes"]
    assert (back["data"], back["parameters"]) == (coded, {"content_type": "base64"})


@pytest.mark.parametrize("text", ["a", "aGk", "a===", "_-8=", "aG k=", "aGk=\n", "aGk=aGk=", "é", "\0", "="])
def test_what_is_no_base64_is_refused_in_every_door(doors: Doors, text: str):
    asked = {"name": "bytes", "datatype": "BYTES", "shape": [1], "data": [text], "parameters": {"content_type": "base64"}}
    answers = [
        doors.node.fetch("POST", f"/v2/models/{MODEL}/infer", payload={"inputs": [asked]}),
        doors.columns({"bytes": [{"b64": text}]}),
    ]
    for answer in answers:
        assert (answer.status, answer.code) == (400, 5006), answer.body
        assert "input 'bytes': " in answer.json()["error"]
        assert "base64" in answer.json()["error"]


@pytest.mark.parametrize(
    "raw", [b"\x05\x00\x00\x00abcd", b"\x01\x00\x00", b"\xff\xff\xff\xffa", b"", b"\x00" * 8, packed([b"a", b"b"], "BYTES")]
)
def test_elements_that_are_not_framed_as_their_count_says_are_refused(doors: Doors, raw: bytes):
    text = json.dumps(
        {"inputs": [{"name": "bytes", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": len(raw)}}]}
    ).encode()
    answer = doors.node.fetch("POST", f"/v2/models/{MODEL}/infer", text + raw, headers={LENGTH: str(len(text))})
    assert (answer.status, answer.code) == (400, 5006), answer.body
    assert "input 'bytes': " in answer.json()["error"]
    one = struct.pack("<I", 1) + b"a"
    text = text.replace(b'"binary_data_size": %d' % len(raw), b'"binary_data_size": %d' % len(one))
    assert doors.node.fetch("POST", f"/v2/models/{MODEL}/infer", text + one, headers={LENGTH: str(len(text))}).status == 200


def _b64(value: bytes) -> dict[str, str]:
    return {"b64": base64.b64encode(value).decode()}


def _outputs(doors: Doors, asked: dict[str, Any]) -> dict[str, Any]:
    answer = doors.node.fetch("POST", f"/v2/models/{MODEL}/infer", payload={"inputs": [asked]})
    assert answer.status == 200, answer.body
    return {each["name"]: each for each in answer.json()["outputs"]}
