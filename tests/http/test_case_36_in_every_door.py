"""Case 36, in every door: a model's `max_body` holds to the byte, and beyond it there is a 413 that names it, before the body has come."""

import gzip
import json
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest

from fornada.edge.dialects.oip.rpc import inference_pb2 as pb
from tests.bounds import bound
from tests.harness.bundles import archive
from tests.harness.client import Closed, request_bytes
from tests.harness.node import Node, run_path
from tests.harness.processes import resident_bytes
from tests.http.tensor_doors import LENGTH, Doors, bundle, doors_in
from tests.http.test_grpc import code_of

LIMIT = 256 * 1024
FORM = 64 * 1024 * 1024 + 64 * 1024
"""A file of /v1/files, and the form around it."""
MODEL, TEXT = "@test/bounded", "@test/bounded-text"
TALKS = """
def handle_request(request, context):
    return {"response": "hi"}
"""
BOUNDARY = "border" + uuid.UUID(int=36).hex


@dataclass(frozen=True)
class Way:
    """A door, and how a body of a given size looks there."""

    label: str
    target: str
    before: bytes
    behind: bytes
    headers: dict[str, str]
    more: int = 0
    """Bytes that may come beside what the model's limit counts."""

    def body(self, size: int) -> bytes:
        return self.before + b"x" * (size - len(self.before) - len(self.behind)) + self.behind


JSON = {"content-type": "application/json"}
WAYS = [
    Way(
        "v2",
        f"/v2/models/{MODEL}/infer",
        b'{"inputs": [{"name": "bytes", "datatype": "BYTES", "shape": [1], "data": ["',
        b'"]}]}',
        JSON,
    ),
    Way("tensorflow serving", f"/v1/models/{MODEL}:predict", b'{"inputs": {"bytes": ["', b'"]}}', JSON),
    Way("chat", "/v1/chat/completions", b'{"model": "%b", "messages": [{"role": "user", "content": "' % TEXT.encode(), b'"}]}', JSON),
    Way("completions", "/v1/completions", b'{"model": "%b", "prompt": "' % TEXT.encode(), b'"}', JSON),
    Way("responses", "/v1/responses", b'{"model": "%b", "input": "' % TEXT.encode(), b'"}', JSON),
    Way(
        "messages",
        "/v1/messages",
        b'{"model": "%b", "max_tokens": 5, "messages": [{"role": "user", "content": "' % TEXT.encode(),
        b'"}]}',
        JSON,
    ),
    Way("gateway", f"/gateway/v1/local/default/workers-ai/{TEXT}", b'{"prompt": "', b'"}', JSON),
    Way(
        "binding",
        "/",
        b'{"inputs": {"prompt": "',
        b'"}, "options": {}}',
        {**JSON, "MF-URL": "https://workers-binding.ai/run?version=3", "MF-Header-cf-consn-model-id": TEXT},
        more=len('{"inputs": , "options": {}}'),
    ),
    Way(
        "multipart",
        run_path(TEXT),
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="prompt"\r\n\r\n'.encode(),
        f"\r\n--{BOUNDARY}--\r\n".encode(),
        {"content-type": f"multipart/form-data; boundary={BOUNDARY}"},
    ),
]
KNOWN_EARLY = [way for way in WAYS if way.label in ("v2", "tensorflow serving", "gateway", "binding", "multipart")]
"""Their model is known by the path: the others' stands in the body."""


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    with doors_in(tmp_path_factory.mktemp("large"), bundle()) as made:
        limited = '[serving]\nmax_body = "256KiB"\n'
        made.node.deploy(MODEL, bundle(more=limited))
        made.node.deploy(TEXT, archive({"model.toml": f'name = "{TEXT}"\ntask = "text-generation"\n{limited}', "model.py": TALKS}))
        yield made


@pytest.fixture
def node(doors: Doors) -> Node:
    return doors.node


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.label)
def test_the_limit_holds_to_the_byte(node: Node, way: Way, chunked: bool):
    for size in (LIMIT - 1, LIMIT):
        answer = node.fetch("POST", way.target, way.body(size + way.more), headers=way.headers, chunked=chunked)
        assert answer.status == 200, (size, answer.body[:500])
    answer = node.fetch("POST", way.target, way.body(LIMIT + way.more + 1), headers=way.headers, chunked=chunked)
    assert answer.status == 413, answer.body[:500]
    assert str(LIMIT) in answer.body.decode() or "256 KiB" in answer.body.decode(), "the limit is named"
    answer.json()


@pytest.mark.parametrize("way", KNOWN_EARLY, ids=lambda way: way.label)
def test_what_is_announced_too_large_is_refused_before_it_comes(node: Node, way: Way):
    for more in ({}, {"expect": "100-continue"}):
        with node.connect() as connection:
            length = {"content-length": str(LIMIT * 1000)}
            connection.send(request_bytes(node.address, "POST", way.target, None, {**way.headers, **length, **more}))
            answer = connection.read_response()
            assert (answer.status, answer.took_s < bound(1)) == (413, True), answer.body
            answer.json()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.label)
def test_expect_100_continue_is_answered_at_once(node: Node, way: Way):
    body = way.body(LIMIT)
    with node.connect() as connection:
        more = {"content-length": str(len(body)), "expect": "100-continue"}
        connection.send(request_bytes(node.address, "POST", way.target, None, {**way.headers, **more}))
        assert connection.read_head().status == 100
        connection.send(body)
        assert connection.read_response().status == 200


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.label)
def test_a_refused_body_leaves_the_connection_usable_or_closed(node: Node, way: Way):
    with node.connect() as connection:
        connection.send_request("POST", way.target, way.body(LIMIT + way.more + 1000), way.headers)
        assert connection.read_response().status == 413
        try:
            connection.send_request("POST", way.target, way.body(1000), way.headers)
            answer = connection.read_response()
        except (Closed, ConnectionError):
            return
        assert answer.status == 200, answer.body


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.label)
def test_a_length_longer_than_the_body_is_a_caller_who_left(node: Node, way: Way):
    body = way.body(1000)
    with node.connect(timeout_s=5) as connection:
        connection.send(request_bytes(node.address, "POST", way.target, body, {**way.headers, "content-length": str(len(body) + 9)}))
        connection.half_close()
        rest = connection.rest()
    assert not rest or rest.startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.label)
def test_a_slow_upload_is_served_and_holds_nobody_up(node: Node, way: Way):
    body = way.body(20_000)
    with node.connect() as connection:
        connection.send(request_bytes(node.address, "POST", way.target, None, {**way.headers, "content-length": str(len(body))}))
        connection.send_slowly(body[:10_000], piece=2000, pause_s=0.02)
        assert node.fetch("POST", way.target, way.body(1000), headers=way.headers).status == 200
        connection.send_slowly(body[10_000:], piece=5000, pause_s=0.02)
        assert connection.read_response().status == 200


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
def test_binary_tensors_count_with_the_json_before_them(node: Node, chunked: bool):
    for size, status in ((LIMIT - 1, 200), (LIMIT, 200), (LIMIT + 1, 413)):
        held = size - len(_shown(LIMIT))
        text = _shown(held)
        raw = (held - 4).to_bytes(4, "little") + b"x" * (held - 4)
        body = text + raw
        assert len(body) == size
        answer = node.fetch("POST", f"/v2/models/{MODEL}/infer", body, headers={LENGTH: str(len(text))}, chunked=chunked)
        assert answer.status == status, answer.body[:300]


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_compressed_body_counts_as_what_it_becomes(node: Node, coding: str):
    pack = gzip.compress if coding == "gzip" else zlib.compress
    way = WAYS[0]
    resident = resident_bytes(node.control_pid)
    for size, status in ((LIMIT, 200), (LIMIT + 1, 413), (100 * LIMIT, 413)):
        answer = node.fetch("POST", way.target, pack(way.body(size)), headers={**way.headers, "content-encoding": coding})
        assert answer.status == status, answer.body[:300]
        assert status == 200 or str(LIMIT) in answer.message
    assert resident_bytes(node.control_pid) - resident < 16 * 1024 * 1024, "no more is unpacked than may be"


def test_a_batch_may_have_ten_million_bytes_whatever_the_model_takes(node: Node):
    frame = b'{"requests": [{"prompt": "a"}, {"prompt": "b"}]}'
    for size, status in ((10_000_000, 200), (10_000_001, 413)):
        for chunked in (False, True):
            body = frame + b" " * (size - len(frame))
            answer = node.fetch("POST", f"{run_path(TEXT)}?queueRequest=true", body, headers=JSON, chunked=chunked)
            assert answer.status == status, answer.body[:300]


def test_a_message_of_grpc_is_held_to_the_models_limit_and_to_its_own(doors: Doors):
    for size in (LIMIT - 1, LIMIT):
        assert doors.client.infer(_message(size)).outputs[0].name == "bytes"
    with pytest.raises(grpc.RpcError) as refusal:
        doors.client.infer(_message(LIMIT + 1))
    assert code_of(refusal) == ("RESOURCE_EXHAUSTED", "3006")
    assert str(LIMIT) in str(refusal.value.details())
    for compression in (grpc.Compression.NoCompression, grpc.Compression.Gzip):
        with pytest.raises(grpc.RpcError) as refusal:
            doors.client.infer(_message(64 * 1024 * 1024 + 1), compression=compression)
        assert refusal.value.code().name == "RESOURCE_EXHAUSTED"
        assert code_of(refusal)[1] == "", "it was no message yet"
    assert doors.client.infer(_message(1000)).outputs[0].name == "bytes", "the channel goes on"


def test_a_file_is_refused_by_its_announced_length(node: Node):
    form = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
    for more in ({}, {"expect": "100-continue"}):
        with node.connect() as connection:
            length = {"content-length": str(FORM + 1)}
            connection.send(request_bytes(node.address, "POST", "/v1/files", None, {**form, **length, **more}))
            answer = connection.read_response()
            assert (answer.status, answer.took_s < bound(1)) == (413, True), answer.body
            assert str(FORM) in answer.message
    for chunked in (False, True):
        answer = node.fetch("POST", "/v1/files", _file(100_000), headers=form, chunked=chunked)
        assert (answer.status, answer.json()["bytes"]) == (200, 100_000)
    body = _file(20_000)
    with node.connect() as connection:
        more = {**form, "content-length": str(len(body)), "expect": "100-continue"}
        connection.send(request_bytes(node.address, "POST", "/v1/files", None, more))
        assert connection.read_head().status == 100
        connection.send_slowly(body, piece=5000, pause_s=0.02)
        assert connection.read_response().status == 200
    with node.connect(timeout_s=5) as connection:
        connection.send(request_bytes(node.address, "POST", "/v1/files", body, {**form, "content-length": str(len(body) + 9)}))
        connection.half_close()
        rest = connection.rest()
    assert not rest or rest.startswith(b"HTTP/1.1 400")


def _shown(size: int) -> bytes:
    tensor = {"name": "bytes", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": size}}
    return json.dumps({"inputs": [tensor]}).encode()


def _message(size: int) -> Any:
    def made(held: int) -> Any:
        request = pb.ModelInferRequest(model_name=MODEL, raw_input_contents=[(held - 4).to_bytes(4, "little") + b"x" * (held - 4)])
        request.inputs.add(name="bytes", datatype="BYTES", shape=[1])
        return request

    return made(2 * size - made(size).ByteSize())


def _file(size: int) -> bytes:
    parts = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nuser_data\r\n',
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="a.bin"\r\n\r\n',
        "x" * size,
        f"\r\n--{BOUNDARY}--\r\n",
    ]
    return "".join(parts).encode()
