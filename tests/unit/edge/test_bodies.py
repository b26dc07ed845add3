"""JSON and bytes from callers."""

import base64
import contextlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fornada.core.errors import BadRequest
from fornada.edge.binary import bytes_of
from fornada.edge.dialects.workers_ai.body import Input, read_body
from fornada.edge.event_stream import event
from fornada.edge.json_bodies import fields_of, value_of
from fornada.edge.multipart import read_multipart
from fornada.edge.observer import Unobserved
from fornada.edge.schema_hints import expected, got
from fornada.edge.tasks import TASKS, task_of
from fornada.edge.validation import Contract, compiled

METER = Unobserved().meter("")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=20,
)


def contract(slug: str = "custom", **schema: Any) -> Contract:
    return Contract(task_of(slug), input=schema or None, output=None, max_body=10**7, meter=METER)


def read(body: bytes, kind: str = "", contract_: Contract | None = None, **query: str) -> Input:
    return read_body((body,), kind, kind.partition(";")[0], query, contract_ or contract())


def json_part(given_: Input) -> Any:
    return json.loads(given_.body[0])


@given(st.dictionaries(st.text(max_size=8), JSON, max_size=6))
def test_an_object_goes_through_unchanged_and_unread(value: dict[str, Any]):
    for options in ({}, {"options": {"rejectIfBusy": True}}):
        text = json.dumps({**value, **options}).encode() if "\ud800" not in str(value) else b"{}"
        given_ = read(text)
        assert json_part(given_) == {name: inner for name, inner in json.loads(text).items() if name != "options"}
        if "options" not in value and not options:
            assert given_.body[0] is text, "not even copied"


@given(st.binary(max_size=200), st.sampled_from(["", "application/json", "multipart/form-data; boundary=x", "text/plain", "image/png"]))
def test_any_body_is_read_or_refused(body: bytes, kind: str):
    for slug in ("custom", "image-classification", "text-embeddings", "text-generation"):
        with contextlib.suppress(BadRequest):
            read(body, kind, contract(slug))


@given(st.binary(min_size=1, max_size=300))
def test_bytes_are_the_same_in_every_spelling(data: bytes):
    for value in (list(data), base64.b64encode(data).decode(), f"data:x/y;base64,{base64.b64encode(data).decode()}"):
        assert bytes_of("f", json.dumps(value).encode()) == data
        given_ = read(json.dumps({"image": value}).encode(), "", contract("image-classification"))
        assert given_.body[1] == data and given_.parts[1] == ("image", len(data))


def test_a_wrong_byte_is_named_by_its_place():
    with pytest.raises(BadRequest, match="'/image/3'"):
        bytes_of("image", b"[1,2,3,256]")


@given(JSON)
def test_doubled_keys_are_found_at_the_top_alone(value: Any):
    text = json.dumps(value).encode()
    with pytest.raises(BadRequest, match="twice"):
        fields_of(b'{"a":%b,"b":1,"a":2}' % text)
    fields_of(b'{"a":%b,"b":{"a":"\\"a\\""}}' % text)


@pytest.mark.parametrize("more", [b"", b',"y":{"x":1}', b',"y":":"'])
def test_doubled_keys_are_found_around_long_values(more: bytes):
    long = b"[%b1]" % (b"0.25," * 1000)
    assert list(fields_of(b'{"x":%b%b}' % (long, more))) == ["x", *(["y"] if more else [])]
    with pytest.raises(BadRequest, match="'x' comes twice"):
        fields_of(b'{"x":%b%b,"x":1}' % (long, more))
    with pytest.raises(BadRequest, match="'x' comes twice"):
        fields_of(b'{"x":1%b,"x":%b}' % (more, long))


@pytest.mark.parametrize("key", [r"\u006dodel", r"mode\u006c", r"\u006D\u006f\u0064\u0065\u006c"])
def test_a_key_spelled_otherwise_is_the_same_key(key: str):
    for body in (f'{{"model":"a","{key}":"b"}}', f'{{"{key}" : "b","model":"a"}}'):
        with pytest.raises(BadRequest, match="'model' comes twice"):
            fields_of(body.encode())
    assert list(fields_of(f'{{"{key}":"a","text":"a: \\"{key}\\": \\n"}}'.encode())) == ["model", "text"]
    assert list(fields_of(f'{{"{key}":"a","text":{{"model":1,"b":2}}}}'.encode())) == ["model", "text"]


def test_a_hundred_thousand_keys_are_no_burden():
    body = json.dumps({f"k{n}": n for n in range(100_000)}).encode()
    assert len(fields_of(body)) == 100_000


def test_depth_is_bounded_by_a_refusal():
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
        deep = b'{"x":' + opening * 200_000 + b"1" + closing * 200_000 + b"}"
        with pytest.raises(BadRequest, match="nested too deeply"):
            fields_of(deep)
        with pytest.raises(BadRequest, match="nested too deeply"):
            value_of(deep)
    with pytest.raises(BadRequest):
        read(b'{"text":' + b"[" * 400 + b"]" * 400 + b"}", "", contract("text-embeddings"))


def test_what_a_schema_doesn_t_say_isn_t_asked():
    assert contract().open and contract("something-new").open
    assert not contract("text-embeddings").open
    assert contract(type="object", title="x", additionalProperties=True).open
    closed: list[dict[str, Any]] = [
        {"required": ["a"]},
        {"additionalProperties": False},
        {"type": "array"},
        {"minProperties": 1},
        {"properties": {}},
    ]
    for schema in closed:
        assert not contract(**schema).open


def test_a_schema_without_a_type_takes_any_json():
    anything = contract(description="anything at all")
    for body in (b"[1]", b'{"a":1}'):
        assert read(body, "application/json", anything).body == (body,)
    with pytest.raises(BadRequest):
        read(b"[1", "", anything)


def test_violations_name_fields_and_never_values():
    own = contract(
        properties={"a": {"type": "string", "pattern": "^x"}, "b": {"enum": [1, 2]}, "c": {"anyOf": [{"type": "string"}, {"type": "null"}]}}
    )
    for value, words in (
        ({"a": 5}, "Type mismatch of '/a', 'integer' not in 'string'"),
        ({"a": "secret"}, "'/a' doesn't match the pattern ^x"),
        ({"b": 77}, "'/b' must be one of '1', '2'"),
        (
            {"c": 5},
            "anyOf at '/c' not met, 0 matches: Type mismatch of '/c', 'integer' not in 'string', Type mismatch of '/c', 'integer' not in 'null'",
        ),
    ):
        with pytest.raises(BadRequest) as refusal:
            own.check(value)
        assert words in refusal.value.message
        assert "secret" not in refusal.value.message and "77" not in refusal.value.message
    with pytest.raises(BadRequest) as refusal:
        contract("text-generation").check({})
    assert refusal.value.message.startswith(
        "oneOf at '/' not met, 0 matches: required properties at '/' are 'prompt', required properties at '/' are 'messages'"
    )


NUMBER = {"type": "integer", "minimum": 1, "maximum": 10, "examples": [3]}


@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        (
            {"properties": {"n": NUMBER}, "required": ["n"]},
            {},
            "required properties at '/' are 'n' (an integer from 1 to 10, for example 3)",
        ),
        (
            {"properties": {"n": {"$ref": "#/$defs/n"}}, "$defs": {"n": NUMBER}},
            {"n": "three"},
            "Type mismatch of '/n', 'string' not in 'integer' (it takes an integer from 1 to 10, for example 3; this is a string of 5 characters)",
        ),
        (
            {"properties": {"n": NUMBER}},
            {"n": 77},
            "'/n': it is greater than the maximum of 10 (it takes an integer from 1 to 10, for example 3; this is an integer)",
        ),
        (
            {
                "properties": {
                    "list": {
                        "type": "array",
                        "items": {"type": "object", "required": ["q"], "properties": {"q": {"description": "What is asked"}}},
                    }
                }
            },
            {"list": [{"q": 1}, {}]},
            "required properties at '/list/1' are 'q' (What is asked)",
        ),
        ({"required": ["x"], "examples": [{"x": "y"}]}, {}, "required properties at '/' are 'x' (something like {\"x\": \"y\"})"),
        (
            {"properties": {"k": {"enum": ["red", "blue"]}}},
            {"k": "rot"},
            "'/k' must be one of 'red', 'blue' (it takes one of \"red\", \"blue\"; this is a string of 3 characters)",
        ),
        (
            {"properties": {"s": {"type": "string", "minLength": 1}}},
            {"s": ""},
            "'/s': it is shorter than 1 character (it takes a string of at least 1 character; this is a string of 0 characters)",
        ),
        (
            {"properties": {"later": {"enum": [False, None], "description": "Not served: send it now"}}},
            {"later": True},
            "'/later' must be one of 'false', 'null' (it takes one of false, null: Not served: send it now; this is a boolean)",
        ),
        (
            {"properties": {"old": {"type": "null", "description": "Not served"}}},
            {"old": "x"},
            "Type mismatch of '/old', 'string' not in 'null' (it takes null: Not served; this is a string of 1 character)",
        ),
        (
            {"properties": {"tool": {"required": ["type", "name"], "properties": {"type": {"const": "function"}}}}},
            {"tool": {"type": "search"}},
            '\'/tool/type\': "function" was expected (it takes "function"; this is a string of 6 characters), '
            "required properties at '/tool' are 'name'",
        ),
        (
            {"properties": {"prompt": {}, "seed": {}}, "additionalProperties": False},
            {"promt": 1},
            "no such properties at '/': 'promt' (did you mean 'prompt'?)",
        ),
        ({"properties": {"a": {}}, "additionalProperties": False}, {"zzz": 1}, "no such properties at '/': 'zzz' (known are 'a')"),
        (
            {"properties": {"t": {"type": "array", "minItems": 1, "maxItems": 2}}},
            {"t": []},
            "'/t': it has less than 1 item (it takes an array of 1 to 2 items; this is an array of 0 items)",
        ),
    ],
)
def test_a_violation_says_where_what_is_taken_and_what_came(schema: dict[str, Any], value: Any, message: str):
    with pytest.raises(BadRequest) as refusal:
        contract(**schema).check(value)
    assert refusal.value.message == message


@given(JSON, JSON)
def test_a_hint_is_one_short_line_whatever_a_schema_says(schema: Any, value: Any):
    """Schemas are hostile: their words are shown, cut and on one line."""
    words = ("examples", "description", "enum", "const", "type", "minimum", "maxLength", "pattern", "format", "default")
    for text in (*(expected({word: schema, "minItems": value}) for word in words), expected(dict.fromkeys(words, schema)), got(value)):
        assert len(text) < 2000 and len(text.splitlines()) <= 1


def test_what_a_picture_may_be_is_told_where_it_is_missing():
    with pytest.raises(BadRequest, match=r"required properties at '/' are 'image' \(The picture.*base64"):
        contract("image-classification").check({})


def test_ten_thousand_violations_are_told_in_a_few_words():
    with pytest.raises(BadRequest) as refusal:
        contract("text-embeddings").check({"text": [5] * 10_000})
    assert len(refusal.value.message) < 1100


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.slug)
def test_the_schemas_of_tasks_are_schemas(task):
    compiled(task.input)
    compiled(task.output)
    assert set(task.binary) <= set(task.input.get("properties", {})) or task.slug == "text-to-image"
    assert len({other.id for other in TASKS}) == len(TASKS)


def test_forms_are_read_and_broken_ones_refused():
    head = b"--x\r\nContent-Disposition: form-data; "
    body = head + b'name="a"\r\n\r\n1\r\n' + head + b'name="f"; filename="n"\r\n\r\n\x00\xff\r\n--x--\r\n'
    fields = read_multipart(body, "multipart/form-data; boundary=x")
    assert fields["a"].text() == "1" and not fields["a"].is_file
    assert fields["f"].data == b"\x00\xff" and fields["f"].is_file and fields["f"].text() is None
    many = b"".join(b'--x\r\nContent-Disposition: form-data; name="%d"\r\n\r\n1\r\n' % n for n in range(200)) + b"--x--\r\n"
    for broken, kind in (
        (body, "multipart/form-data"),
        (body, "multipart/form-data; boundary=y"),
        (body[:-8], "multipart/form-data; boundary=x"),
        (body.replace(b'name="f"', b'name="a"'), "multipart/form-data; boundary=x"),
        (body.replace(b'name="f"', b'nome="f"'), "multipart/form-data; boundary=x"),
        (many, "multipart/form-data; boundary=x"),
        (b"", "multipart/form-data; boundary=x"),
    ):
        with pytest.raises(BadRequest):
            read_multipart(broken, kind)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), max_size=5))
def test_an_event_is_one_event_whatever_is_in_it(lines: list[str]):
    data = "\n".join(lines)
    written = event(data.encode()).decode()
    assert written.endswith("\n\n") and "\n\n" not in written[:-2]
    read_back = [line.removeprefix("data: ") for line in written[:-2].replace("\r\n", "\n").replace("\r", "\n").split("\n")]
    assert (
        "\n".join(read_back) == "\n".join(data.encode().decode().replace("\r\n", "\n").replace("\r", "\n").rstrip("\n").split("\n"))
        or "\n" in data
    )


def test_msgspec_still_refuses_what_json_forbids():
    """The whole path leans on it; a release that is laxer must not come in unnoticed."""
    for text in (b'{"a":NaN}', b'{"a":01}', b'{"a":"\n"}', b'{"a":1}x', b'{"a":tru}', b'{"a":"\\ud800 "}'):
        with pytest.raises(msgspec.DecodeError):
            msgspec.json.decode(text, type=dict[str, msgspec.Raw])
