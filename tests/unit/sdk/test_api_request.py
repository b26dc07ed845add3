"""Request and Body, as a model's author makes and reads them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fornada_sdk import BadRequest, Context, Request
from fornada_sdk.runner.received import Received
from fornada_sdk.wire.messages import encode

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON)
def test_json_given_is_json_read(value):
    request = Request(json=value)
    assert request.body.json == value
    assert json.loads(request.body.bytes) == value


@given(JSON, st.sampled_from(["", " ", "\n\t "]))
def test_json_received_is_json_read(value, space):
    raw = (space + json.dumps(value) + space).encode()
    assert Received(b"{}", raw).body.json == value


def test_a_byte_order_mark_is_no_obstacle():
    assert Received(b"{}", b'\xef\xbb\xbf{"a": 1}').body.json == {"a": 1}


@pytest.mark.parametrize("raw", [b"", b"{", b"nul", b"1 2", b"[1,]", b"NaN", b"[-Infinity]", b"\xff", b"{'a': 1}"])
def test_what_is_no_json_is_the_caller_s_fault(raw):
    with pytest.raises(BadRequest, match="JSON"):
        _ = Received(b"{}", raw).body.json


def test_text_and_bytes():
    assert Request(text="pão").body.text == "pão"
    assert Request(text="pão").body.type == "text/plain"
    assert Request(bytes=b"\xff").body.bytes == b"\xff"
    with pytest.raises(BadRequest, match="UTF-8"):
        _ = Request(bytes=b"\xff").body.text
    with pytest.raises(BadRequest, match=r"must be JSON, and its type is application/octet-stream"):
        _ = Request(bytes=b"{}").body.json


@pytest.mark.parametrize("type", ["application/json", "application/json; charset=utf-8", "Application/JSON", "application/ld+json"])
def test_types_that_mean_json(type):
    assert Request(bytes=b"[1]", type=type).body.json == [1]
    assert Received(encode({"type": type}), b"[1]").body.json == [1]


def test_only_one_body():
    with pytest.raises(ValueError, match="one of"):
        Request(json={}, text="")
    assert Request().body.json == {}


def test_headers_are_found_in_any_case():
    request = Request(json=1, headers={"X-Thing": "a", "accept": "b"}, query={"q": "1"}, stream=True)
    assert request.headers["x-thing"] == request.headers["X-THING"] == "a"
    assert request.headers.get("Accept") == "b" and request.headers.get("no") is None
    assert dict(request.headers) == {"x-thing": "a", "accept": "b"} and len(request.headers) == 2
    assert request.query == {"q": "1"} and request.stream is True


def test_a_received_request_reads_its_head_when_asked():
    request = Received(encode({"request_id": "r", "headers": {"A": "b"}, "query": {"q": "1"}, "stream": True}), b"[]")
    assert request.headers["a"] == "b" and request.query["q"] == "1" and request.stream is True
    bare = Received(b"", b"[]")
    assert dict(bare.headers) == {} and bare.stream is False and bare.body.json == []


def test_parts():
    text = b'{"prompt": "x"}'
    request = Received(encode({"parts": [["", len(text)], ["image", 3], ["mask", 2]]}), text + b"abcde")
    assert request.body.json == {"prompt": "x", "image": b"abc", "mask": b"de"}
    assert request.body.bytes == text
    alone = Received(encode({"type": "image/png", "parts": [["image", 3]]}), b"abc")
    assert alone.body.json == {"image": b"abc"} and alone.body.bytes == b"abc" and alone.body.type == "image/png"
    odd = Received(encode({"parts": [["", 3], ["image", 1]]}), b"[1]x")
    with pytest.raises(BadRequest, match="no object"):
        _ = odd.body.json


@given(st.dictionaries(st.text(min_size=1), st.binary(max_size=50), max_size=4), st.dictionaries(st.text(), st.integers(), max_size=3))
def test_any_parts_come_back(fields, value):
    text = json.dumps(value).encode()
    head = encode({"parts": [["", len(text)], *([name, len(data)] for name, data in fields.items())]})
    assert Received(head, text + b"".join(fields.values())).body.json == {**value, **fields}


def test_binary_given_by_hand():
    assert Request(json={"image": b"abc"}).body.json == {"image": b"abc"}


@pytest.mark.parametrize(
    "request_",
    [
        Request(bytes=b"RIFF", type="audio/wav"),
        Request(json={"audio": list(b"RIFF")}),
        Request(json={"audio": b"RIFF"}),
        Request(json={"audio": "UklGRg=="}),
        Request(json={"audio": "data:audio/wav;base64,UklGRg=="}),
    ],
)
def test_a_file_is_the_same_bytes_in_every_form(request_):
    assert request_.file("audio") == b"RIFF"


@pytest.mark.parametrize(("value", "why"), [({}, "no 'audio'"), ({"audio": [300]}, "0 to 255"), ([1], "the audio itself")])
def test_a_body_without_the_file_says_so(value, why):
    with pytest.raises(BadRequest, match=why):
        Request(json=value).file("audio")


def test_an_inactive_context_is_enough_for_model_code(capsys, tmp_path):
    context = Context.inactive(settings={"a": 1}, artifacts={"w": "/w.bin"}, scratch=str(tmp_path), model="@me/m")
    assert context.settings == {"a": 1} and str(context.artifacts["w"]) == "/w.bin" and len(context.artifacts) == 1
    assert context.cancelled is False and context.request_id == "" and context.pid > 0 and context.model == "@me/m"
    assert context.load_attempt == context.load_count == 1 and context.scratch == tmp_path
    context.progress("half", 0.5)
    context.device.allocate(10**12)
    context.usage["input_tokens"] = 3
    assert context.usage == {"input_tokens": 3}
    context.log.error("it broke", code=3)
    context.log.debug("detail")
    assert capsys.readouterr().err == "error it broke code=3\ndebug detail\n"
    with pytest.raises(KeyError, match="no artifact 'x'; it has w"):
        _ = context.artifacts["x"]
    assert Context.inactive().scratch.is_dir()


@pytest.mark.parametrize(
    "raw",
    [
        b"[" + b"0.1," * 400 + b"0.25]",
        b"[" + b"1," * 400 + b"123456789012345678901234567890]",
        b"[" + b"1," * 400 + b"1e999]",
        b'\xef\xbb\xbf{"a": [' + b"1," * 400 + b"1]}",
        b'{"a": 1, "a": "' + b"x" * 600 + b'"}',
        b'["' + b"x" * 600 + b'\\ud800"]',
        b"[" * 700 + b"]" * 700,
    ],
    ids=["floats", "a huge integer", "beyond a double", "a mark of byte order", "a key twice", "half a surrogate", "deep"],
)
def test_a_large_body_reads_the_same_with_and_without_the_fast_decoder(raw: bytes, monkeypatch: pytest.MonkeyPatch):
    from fornada_sdk import api_request

    def read() -> Any:
        try:
            return Received(b"{}", raw).body.json
        except BadRequest as refusal:
            return type(refusal)

    assert api_request._fast() is not None, "the tests' own environment has msgspec"
    fast = read()
    monkeypatch.setattr(api_request, "FAST_FROM", 10**9)
    assert fast == read()
