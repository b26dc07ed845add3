"""Every message of the wire, byte for byte. What changes here changes what runners of an older release understand."""

import json
from typing import Any

import pytest

from fornada.core.requests import AnswerHead, InvokeHead
from fornada.core.tensors import TensorsHead
from fornada.core.tensors import split as core_split
from fornada_sdk import BadRequest, Context, Response, Tensor
from fornada_sdk.api_context import Instance
from fornada_sdk.runner.answers import end_frames, error_frames, ok_frames, stream_frames
from fornada_sdk.runner.assignment import read_assignment
from fornada_sdk.runner.call import Call
from fornada_sdk.runner.long_answer import LongAnswer
from fornada_sdk.runner.received import Received
from fornada_sdk.wire.arena import PLACE
from fornada_sdk.wire.framing import HEADER_SIZE, split
from fornada_sdk.wire.messages import HEAD_PREFIX, WIRE_VERSION, Kind, decode, split_head
from tests.contract.golden import ASSIGNMENT, EXAMPLES, FOLDER, ID, INVOKE_HEAD, TENSORS_HEAD, Example, dump, path, written
from tests.loops.fake_runner import split_invoke

import msgspec  # isort: skip

BY_NAME = {example.name: example for example in EXAMPLES}
NOT_JSON = {
    Kind.ANSWER,
    Kind.STREAM,
    Kind.ITEM,
    Kind.INVOKE,
    Kind.CANCEL,
    Kind.ACK,
    Kind.CREDIT,
    Kind.PART,
    Kind.TRIM,
    Kind.TAKEN,
    Kind.INPUT,
}


def payloads(example: Example) -> list[tuple[int, bytes]]:
    return [(kind, bytes(payload)) for packet in example.packets for kind, _, _, _, payload in split(packet)]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_a_message_is_encoded_as_its_golden_file_says(example: Example):
    assert dump(example) == written(example)


def test_every_message_has_a_golden_file_and_every_file_a_message():
    assert {kind for example in EXAMPLES for kind, _ in payloads(example)} == set(Kind)
    assert sorted(FOLDER.glob("*")) == sorted(path(example) for example in EXAMPLES)


def test_the_version_of_the_wire():
    assert WIRE_VERSION == 1
    assert HEADER_SIZE == 20


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_heads_are_json_objects(example: Example):
    for kind, payload in payloads(example):
        if kind not in NOT_JSON:
            assert isinstance(decode(payload), dict)


def call() -> Call:
    return Call(ID, b"{}", b"", 0.0, None, Instance())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("answer_ok", lambda: ok_frames(call(), {"echo": 1}, 0.0)),
        ("answer_refused", lambda: error_frames(call(), BadRequest("too short"), 0.0)),
        ("stream", lambda: stream_frames(call(), {})),
        ("end_raised", lambda: end_frames(call(), {"status": "raised", "message": "ValueError: broke"})),
    ],
)
def test_the_runner_writes_what_the_golden_files_hold(name: str, made: Any):
    assert made() == list(BY_NAME[name].packets)


def test_the_runner_writes_large_answers_in_the_golden_parts():
    (answer,) = ok_frames(call(), bytes(range(250)) * 600, 0.0)
    assert isinstance(answer, LongAnswer)
    assert answer.parts() == list(BY_NAME["parts"].packets)
    assert answer.stored(PLACE.pack(65536, 150_000)) == b"".join(BY_NAME["answer_stored"].packets)


def test_the_runner_s_head_with_everything_is_read_by_the_node():
    asked = call()
    asked.usage["input_tokens"] = 3
    response = Response(b"\x89PNG", type="image/png", headers={"X-Seed": "7"}, status=201)
    (message,) = ok_frames(asked, response, 0.25)
    assert isinstance(message, bytes)
    _, _, _, _, payload = next(split(message))
    head, body = split_head(payload)
    golden, _ = split_head(payloads(BY_NAME["answer_bytes"])[0][1])
    assert decode(head) == decode(golden) and bytes(body) == b"\x89PNG"
    assert msgspec.json.decode(head, type=AnswerHead) == AnswerHead(
        type="image/png", headers={"x-seed": "7"}, http_status=201, run_s=0.25, usage={"input_tokens": 3}
    )


def test_the_node_s_head_is_read_by_the_runner():
    head, left_s, body = split_invoke(payloads(BY_NAME["invoke"])[0][1])
    assert left_s == 30.0
    assert json.loads(msgspec.json.encode(msgspec.json.decode(head, type=InvokeHead))) == INVOKE_HEAD
    request = Received(head, bytes(body))
    assert request.body.json == {"prompt": "x"} and request.stream and request.headers["Accept-Language"] == "pt"
    assert request.query == {"detect_language": "true"}
    head, _, body = split_invoke(payloads(BY_NAME["invoke_parts"])[0][1])
    assert msgspec.json.decode(head, type=InvokeHead).parts == [("", 15), ("image", 4)]
    assert Received(head, bytes(body)).body.json == {"prompt": "x", "image": b"\x89PNG"}


def test_the_assignment_is_read_by_the_runner():
    assignment = read_assignment(decode(payloads(BY_NAME["assign"])[0][1]))
    assert (assignment.instance, assignment.memory_bytes, assignment.max_body) == ("probe-1a2b", 536870912, 10485760)
    flat = assignment._asdict()
    for name, value in ASSIGNMENT.items():
        if not isinstance(value, dict) or name in flat:
            assert flat[name] == value
    assert flat.keys() == {name for name in flat if name in ASSIGNMENT} | {
        "memory_bytes", "threads", "device_id", "device_kind", "device_memory_bytes", "concurrency", "max_batch", "max_wait_ms", "max_body",
        "pid",
    }  # fmt: skip


def test_a_head_longer_than_its_payload_is_refused():
    for payload in (b"", b"\1", HEAD_PREFIX.pack(5) + b"{}"):
        with pytest.raises(ValueError, match="head"):
            split_head(payload)
    with pytest.raises(ValueError, match="object"):
        decode(b"[]")


def test_an_inactive_context_knows_no_request():
    assert Context.inactive().request_id == ""


def test_the_runner_reads_tensors_and_answers_them_as_the_golden_files_hold_them():
    head, _, body = split_invoke(payloads(BY_NAME["invoke_tensors"])[0][1])
    assert json.loads(msgspec.json.encode(msgspec.json.decode(head, type=InvokeHead))) == TENSORS_HEAD
    asked = Call(ID, head, bytes(body), 0.0, None, Instance())  # type: ignore[arg-type]
    tensors = asked.request().tensors
    assert (tensors["x"].tolist(), tensors["b"].flat(), tensors.parameters, tensors.wanted) == ([1.0], [b"a"], {"k": 1}, ("y",))
    answer = ok_frames(asked, {"y": Tensor([1.0], "FP32"), "z": Tensor([2.0], "FP32"), "note": "a"}, 0.0)
    assert answer == list(BY_NAME["answer_tensors"].packets), "without what the caller didn't ask for"
    said, values = split_head(payloads(BY_NAME["answer_tensors"])[0][1])
    (tensor,) = core_split(msgspec.json.decode(said, type=AnswerHead).tensors or TensorsHead([]), values)
    assert (tensor.name, tensor.dtype, list(tensor.shape), bytes(tensor.data)) == ("y", "FP32", [1], b"\x00\x00\x80?")
