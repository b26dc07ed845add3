"""Case 33: whatever is wrong with a tensor request, the answer is a 4xx in JSON that names the field; nothing dies, nothing grows."""

import copy
import json
import random
import struct
from collections.abc import Callable
from typing import Any

import pytest

from tests.bounds import count
from tests.harness.fixtures import Probe
from tests.harness.node import Node
from tests.harness.processes import resident_bytes

MUTATIONS = count(500, long=5000)
GROWTH = 16 * 1024 * 1024
"""Bytes that a process may have more after the last request than after the first fifth of them."""
LENGTH = "Inference-Header-Content-Length"
HUGE = (10**9, 2**31, 2**62, 2**63 - 1, 2**63, 2**64, 10**40, 10**400)
DTYPES = ("BOOL", "UINT8", "INT16", "INT32", "UINT64", "FP16", "FP64", "BF16", "fp32", "FP33", "", "FP32 ", "é" * 300)
OTHERS: tuple[Any, ...] = (None, True, 7, -1.5, "text", [], [[]], {}, {"a": 1})
"""Values of every type of JSON."""
VALID: dict[str, Any] = {
    "id": "7",
    "parameters": {"note": "a"},
    "inputs": [
        {"name": "x", "datatype": "FP32", "shape": [3], "data": [1.0, 2.0, 3.0], "parameters": {"note": 1}},
        {"name": "n", "datatype": "INT64", "shape": [2], "data": [1, 2]},
        {"name": "b", "datatype": "BYTES", "shape": [2], "data": ["a", "b"]},
    ],
    "outputs": [{"name": "x", "parameters": {"binary_data": False}}],
}

Body = Any
Mutation = Callable[[random.Random, Body], tuple[bytes | Body, str]]
"""Changes a valid body in place, or gives its bytes; says what the refusal must name."""


def types(chance: random.Random, body: Body) -> tuple[Body, str]:
    """A field holds a value of another type."""
    field, fits = chance.choice([("id", (str, type(None))), ("parameters", (dict, type(None))), ("inputs", ()), ("outputs", (type(None),))])
    if chance.random() < 0.5:
        body[field] = chance.choice([value for value in OTHERS if field == "inputs" or not isinstance(value, fits)])
        if body[field] == [] and field == "outputs":
            body[field] = 5
        if body[field] in ([], {"a": 1}) and field in ("inputs", "parameters"):
            body[field] = "text"
        return body, field
    field, kind = chance.choice([("name", str), ("datatype", str), ("shape", list), ("data", list), ("parameters", dict)])
    each = chance.choice(body["inputs"])
    each[field] = chance.choice(
        [value for value in OTHERS if not isinstance(value, kind) and not (field == "parameters" and value is None)]
    )
    return body, field if field != "data" else each["name"]


def items(chance: random.Random, body: Body) -> tuple[Body, str]:
    """A value within a list has another type, or is none of its type's."""
    each = chance.choice(body["inputs"])
    wrong: dict[str, list[Any]] = {
        "x": [None, "1", True, [1.0], {}, 1e39, -1e300],
        "n": [None, "1", False, 1.5, 2**63, -(2**63) - 1, 10**40, []],
        "b": [None, 1, True, ["a"], {"b64": "AA=="}],
    }
    each["data"][chance.randrange(len(each["data"]))] = chance.choice(wrong[each["name"]])
    return body, each["name"]


def depths(chance: random.Random, body: Body) -> tuple[Body | bytes, str]:
    each = chance.choice(body["inputs"])
    if chance.random() < 0.5:
        each["data"] = chance.choice([[each["data"]], each["data"][0], [], [each["data"], each["data"]]])
        return body, each["name"]
    deep = chance.choice([40, 1000, 100_000])
    text = json.dumps(body).encode().replace(b"[1.0, 2.0, 3.0]", b"[" * deep + b"1" + b"]" * deep)
    return text, "x' | nested"


def lengths(chance: random.Random, body: Body) -> tuple[Body, str]:
    each = chance.choice(body["inputs"])
    each["data"] = chance.choice([each["data"][:-1], each["data"] * 2, each["data"] * 1000, [*each["data"], each["data"][0]]])
    return body, each["name"]


def dtypes(chance: random.Random, body: Body) -> tuple[Body, str]:
    each = chance.choice(body["inputs"])
    each["datatype"] = chance.choice(DTYPES)
    return body, each["name"]


def shapes(chance: random.Random, body: Body) -> tuple[Body, str]:
    each = chance.choice(body["inputs"])
    size = len(each["data"])
    each["shape"] = chance.choice(
        [[7], [size + 1], [0], [], [1, size], [size, 1], [-1], [-size], [1] * 33 + [size], [1] * 5000, [size, 0], [True], [1.5], ["1"],
         [None], [[size]], *([huge] for huge in HUGE), *([huge, huge] for huge in HUGE), *([0, huge] for huge in HUGE)]
    )  # fmt: skip
    return body, f"{each['name']}' | shape"


def names(chance: random.Random, body: Body) -> tuple[Body, str]:
    """A field is missing, an input is unknown or comes twice."""
    each = chance.choice(body["inputs"])
    way = chance.randrange(4)
    if way == 0:
        field = chance.choice(["name", "datatype", "shape", "data"])
        del each[field]
        return body, field
    if way == 1:
        body["inputs"].append(copy.deepcopy(each))
        return body, each["name"]
    if way == 2:
        each["name"] = chance.choice(["y", "", "X", "x\0", "\0", "../x", "x" * 10_000, "\u2028"])
        return body, "no such input"
    body["outputs"] = chance.choice([[{"name": "z"}], [{"name": ""}], [{}], [{"name": "x"}, {"name": "x"}], [{"name": "x\0"}], [5]])
    return body, "output"


def parameters(chance: random.Random, body: Body) -> tuple[Body, str]:
    """A parameter has a value that none may have."""
    value: Any
    holder = chance.choice([body, body["inputs"][0], body["outputs"][0]])
    name, value = chance.choice(
        [("k", None), ("k", [1]), ("k", {}), ("k", 2**64), ("k", -(2**63) - 1), ("shared_memory_region", "r"), ("k\0", [])]
    )
    holder["parameters"] = {name: value}
    return body, name.strip("\0") if value is None or name != "k" else "'k'"


def doubled(chance: random.Random, body: Body) -> tuple[bytes, str]:
    """A key comes twice, at any depth."""
    text = json.dumps(body).encode()
    key = chance.choice([b"id", b"inputs", b"parameters", b"outputs", b"name", b"shape", b"datatype", b"data", b"note", b"binary_data"])
    marks = [at for at in range(len(text)) if text.startswith(b'"%b": ' % key, at)]
    at = chance.choice(marks)
    _, end = json.JSONDecoder().raw_decode(text[at + len(key) + 4 :].decode())
    pair = text[at : at + len(key) + 4 + end]
    if chance.random() < 0.3:  # spelled in another way
        pair = b'"\\u%04x' % pair[1] + pair[2:]
    return text[:at] + pair + b", " + text[at:], f"{key.decode()}"


def no_json(chance: random.Random, body: Body) -> tuple[bytes, str]:
    """Bytes that are no JSON: cut off, NUL, another encoding, numbers that JSON hasn't, text behind it."""
    text = json.dumps(body).encode()
    at = chance.randrange(1, len(text))
    broken = [
        text[:at], text.replace(b"1.0", b"NaN"), text.replace(b"1.0", b"-Infinity"), text.replace(b"1.0", b"01"), text + b"}", text + text,
        text.replace(b'"7"', b'"\0"'), text.replace(b'"7"', b'"\xff"'), text.replace(b'"7"', b'"\xed\xa0\x80"'), b"\xef\xbb\xbf" + text,
        text.decode().encode("utf-16"), text[:at] + b"\0" + text[at:], b"", b"\0" * 100, b"null", b"[]", b"5", b"[" * 100_000,
    ]  # fmt: skip
    return chance.choice(broken), "JSON"


def huge_numbers(chance: random.Random, body: Body) -> tuple[bytes, str]:
    text = json.dumps(body).encode()
    number = chance.choice([b"1e999", b"-1e999", b"9" * 5000, b"1" + b"0" * 400, b"1e99999999999"])
    return text.replace(b"1.0", number), "x' | JSON"


STRUCTURED: tuple[Mutation, ...] = (
    types, items, depths, lengths, dtypes, shapes, names, parameters, doubled, no_json, huge_numbers,
)  # fmt: skip


def refused(node: Node, name: str, made: list[tuple[str, bytes, dict[str, str], str]]) -> None:
    """Sends them; each must be refused, by name of the field. Control plane, instance and memory must stay as they are."""
    before = node.control_pid, node.pids(name)
    resident: list[int] = []
    wrong = []
    with node.connect(timeout_s=20) as connection:
        for number, (label, body, headers, words) in enumerate(made):
            connection.send_request("POST", f"/v2/models/{name}/infer", body, headers)
            answer = connection.read_response()
            said = answer.json()
            named = 400 <= answer.status < 500 and any(word.strip() in said["error"] for word in words.split("|"))
            if not named or said["success"] is not False or said["errors"][0]["code"] not in (5006, 3006):
                wrong.append(f"{label} ({words}): {answer.status} {answer.body[:300]!r} for {headers} {body[:700]!r}")
                assert len(wrong) < 12, "\n".join(wrong)
            if number == len(made) // 5:
                resident = [resident_bytes(pid) for pid in (before[0], *before[1])]
    assert not wrong, "\n".join(wrong)
    assert (node.control_pid, node.pids(name)) == before
    grown = [resident_bytes(pid) - had for pid, had in zip((before[0], *before[1]), resident, strict=True)]
    assert max(grown) < GROWTH, grown
    log = (node.data_dir / "logs/node.log").read_text()
    assert '"http.failed"' not in log
    assert "Traceback" not in log + node.stderr.read_text()


@pytest.fixture
def model(node: Node, probe: Probe) -> str:
    name = probe()
    node.load(name)
    return name


def test_every_mutation_of_a_body_is_a_4xx_that_names_the_field(node: Node, model: str):
    good = node.fetch("POST", f"/v2/models/{model}/infer", payload=VALID)
    assert good.status == 200, good.body
    chance = random.Random(33)
    made: list[tuple[str, bytes, dict[str, str], str]] = []
    for number in range(MUTATIONS):
        mutate = STRUCTURED[number % len(STRUCTURED)]
        body, words = mutate(chance, copy.deepcopy(VALID))
        made.append((mutate.__name__, body if isinstance(body, bytes) else json.dumps(body).encode(), {}, words))
    refused(node, model, made)
    assert node.fetch("POST", f"/v2/models/{model}/infer", payload=VALID).json()["outputs"] == good.json()["outputs"]


def test_every_mutation_of_binary_tensors_is_a_4xx_that_names_the_field(node: Node, model: str):
    chance = random.Random(34)
    raw = struct.pack("<3f", 1, 2, 3)
    elements = struct.pack("<I1sI2s", 1, b"a", 2, b"bc")
    valid = {
        "inputs": [
            {"name": "x", "datatype": "FP32", "shape": [3], "parameters": {"binary_data_size": len(raw)}},
            {"name": "b", "datatype": "BYTES", "shape": [2], "parameters": {"binary_data_size": len(elements)}},
        ]
    }
    made: list[tuple[str, bytes, dict[str, str], str]] = []
    for _ in range(MUTATIONS // 5):
        body: Any = copy.deepcopy(valid)
        x = body["inputs"][0]
        second = elements
        behind = b""
        length = ""
        way = chance.randrange(7)
        words = "x'"
        if way == 0:
            x["parameters"]["binary_data_size"] = chance.choice([0, 11, 13, -1, 10**9, 2**63, 2**64, 10**40, "12", 12.0, True, [12], {}])
            words = "'x' | binary_data_size | follow the last"
        elif way == 1:
            x["shape"] = chance.choice([[2], [4], [0], [-3], [3, 1], [2**62], [2**62, 4], [10**9], [3, 10**9]])
            words = "x' | shape"
        elif way == 2:
            x["datatype"] = chance.choice(DTYPES)
        elif way == 3:
            size = chance.choice([0, 3, 2**32 - 1, 10**9])
            second = chance.choice([struct.pack("<I", size) + elements[4:], elements[:4] + b"a" + struct.pack("<I", size) + b"bc"])
            words = "b'"
        elif way == 4:
            behind = chance.choice([b"\0", b"x" * 1000])
            words = "follow the last"
        elif way == 5:
            length = chance.choice(["-1", "0x10", "1e2", "99999999999999999999", "1_0", "²", "1, 2", "9" * 5000, "1000000"])
            words = LENGTH
        else:
            x["data"] = [1.0, 2.0, 3.0]
        text = json.dumps(body).encode()
        whole = text + raw + second + behind
        made.append((f"binary {way}", whole, {LENGTH: length or str(len(text))}, words))
    refused(node, model, made)
