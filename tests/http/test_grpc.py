"""The Open Inference Protocol over gRPC against a node, with a client that knows the protocol's description alone."""

import json
import math
import os
import queue
import random
import re
import signal
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest
import trustme

from fornada.core.keys import Role
from fornada.edge.dialects.oip.rpc import inference_pb2 as pb
from tests.bounds import bound, count
from tests.harness.node import DEFAULT_CONFIG, FORNADA, Node, node_environ
from tests.harness.sockets import free_port
from tests.harness.waiting import until
from tests.http.test_upgrade import checkout, upgrade

MODEL = "@test/tensors"
SERVICE = "/inference.GRPCInferenceService/"
NAMES_ITS_FIELD = r"the message is no |input '|output '|there are \d+ inputs and|No such model|a model's name|'[^']*' is neither a label"


MAY = {
    "ServerLive": Role.NOBODY,
    "ServerReady": Role.NOBODY,
    "ServerMetadata": Role.NOBODY,
    "ModelReady": Role.USER,
    "ModelMetadata": Role.USER,
    "ModelConfig": Role.USER,
    "ModelInfer": Role.USER,
    "RepositoryIndex": Role.USER,
    "RepositoryModelLoad": Role.DEPLOYER,
    "RepositoryModelUnload": Role.DEPLOYER,
    "SystemSharedMemoryRegister": Role.USER,
    "CudaSharedMemoryRegister": Role.USER,
}
"""Method -> the least role that a key for it has; ModelStreamInfer is tried by itself."""


def may(client: "Client", method: str, metadata: Any) -> bool:
    """Whether a call isn't refused for who calls."""
    try:
        client.channel.unary_unary(SERVICE + method)(b"", metadata=metadata, timeout=bound(10))
    except grpc.RpcError as refusal:
        return refusal.code().name not in ("UNAUTHENTICATED", "PERMISSION_DENIED")
    return True


class Client:
    """Calls by name."""

    def __init__(self, port: int, credentials: Any = None) -> None:
        address = f"127.0.0.1:{port}"
        self.channel = grpc.insecure_channel(address) if credentials is None else grpc.secure_channel(address, credentials)

    def call(self, method: str, request: Any, answer: type[Any], *, timeout_s: float = 20, **options: Any) -> Any:
        unary = self.channel.unary_unary(SERVICE + method, request_serializer=_written, response_deserializer=answer.FromString)
        return unary(request, timeout=bound(timeout_s), **options)

    def infer(self, request: Any, **options: Any) -> Any:
        return self.call("ModelInfer", request, pb.ModelInferResponse, **options)

    def stream(self, requests: list[Any]) -> list[Any]:
        many = self.channel.stream_stream(
            SERVICE + "ModelStreamInfer", request_serializer=_written, response_deserializer=pb.ModelStreamInferResponse.FromString
        )
        return list(many(iter(requests), timeout=bound(20)))


def _written(message: Any) -> bytes:
    return bytes(message.SerializeToString())


def request(*values: float, raw: bool = True, **parameters: float | str | bool) -> Any:
    made = pb.ModelInferRequest(model_name=MODEL, id="7")
    tensor = made.inputs.add(name="x", datatype="FP32", shape=[len(values)])
    if raw:
        made.raw_input_contents.append(struct.pack(f"<{len(values)}f", *values))
    else:
        tensor.contents.fp32_contents.extend(values)
    for name, value in parameters.items():
        if isinstance(value, str):
            made.parameters[name].string_param = value
        elif isinstance(value, bool):
            made.parameters[name].bool_param = value
        else:
            made.parameters[name].double_param = value
    return made


def code_of(error: "pytest.ExceptionInfo[Any]") -> tuple[str, str]:
    trailers = dict(error.value.trailing_metadata() or ())
    return error.value.code().name, trailers.get("fornada-code", "")


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def node(port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    made = Node(tmp_path_factory.mktemp("grpc"), config=f"{DEFAULT_CONFIG}[server]\ngrpc_port = {port}\n").start()
    try:
        made.deploy_probe(MODEL)
        made.load(MODEL)
        yield made
        assert made.stop() == 0, made.said()
    finally:
        made.destroy()


@pytest.fixture
def client(node: Node, port: int) -> Client:
    return Client(port)


def test_tensors_come_back_exactly(client: Client):
    for raw in (True, False):
        answer = client.infer(request(1.5, math.inf, raw=raw))
        assert (answer.model_name, answer.id) == (MODEL, "7")
        assert [(each.name, each.datatype, list(each.shape)) for each in answer.outputs] == [("x", "FP32", [2])]
        assert list(answer.raw_output_contents) == [struct.pack("<2f", 1.5, math.inf)]
        assert answer.parameters["model"].string_param == MODEL
    nan = pb.ModelInferRequest(model_name=MODEL, raw_input_contents=[b"\x01\x00\xc0\x7f"])
    nan.inputs.add(name="x", datatype="FP32", shape=[1])
    assert list(client.infer(nan).raw_output_contents) == [b"\x01\x00\xc0\x7f"], "with the bits that it had"


def test_both_ids_come_back(client: Client):
    unary = client.channel.unary_unary(
        SERVICE + "ModelInfer", request_serializer=_written, response_deserializer=pb.ModelInferResponse.FromString
    )
    _, told = unary.with_call(request(1), metadata=(("x-request-id", "mine-1"),), timeout=bound(20))
    trailers = dict(told.trailing_metadata())
    assert trailers["x-request-id"] == "mine-1"
    assert len(trailers["cf-ai-req-id"]) == 36


def test_every_typed_content_is_understood(client: Client):
    made = pb.ModelInferRequest(model_name=MODEL)
    made.inputs.add(name="n", datatype="INT64", shape=[1]).contents.int64_contents.append(-(2**63))
    made.inputs.add(name="b", datatype="BYTES", shape=[2]).contents.bytes_contents.extend([b"\xff\x00", b""])
    answer = client.infer(made)
    assert list(answer.raw_output_contents) == [struct.pack("<q", -(2**63)), b"\x02\x00\x00\x00\xff\x00\x00\x00\x00\x00"]


def test_what_it_says_about_itself(client: Client, node: Node):
    assert client.call("ServerLive", pb.ServerLiveRequest(), pb.ServerLiveResponse).live
    assert client.call("ServerReady", pb.ServerReadyRequest(), pb.ServerReadyResponse).ready
    assert client.call("ServerMetadata", pb.ServerMetadataRequest(), pb.ServerMetadataResponse).name == "fornada"
    assert client.call("ModelReady", pb.ModelReadyRequest(name=MODEL), pb.ModelReadyResponse).ready
    said = client.call("ModelMetadata", pb.ModelMetadataRequest(name=MODEL), pb.ModelMetadataResponse)
    assert next((each.name, each.datatype, list(each.shape)) for each in said.inputs) == ("x", "FP32", [-1])
    config = client.call("ModelConfig", pb.ModelConfigRequest(name=MODEL), pb.ModelConfigResponse).config
    assert [each.data_type for each in config.input] == [pb.TYPE_FP32, pb.TYPE_INT64, pb.TYPE_STRING]
    index = client.call("RepositoryIndex", pb.RepositoryIndexRequest(), pb.RepositoryIndexResponse)
    assert {each.name: each.state for each in index.models}[MODEL] == "READY"
    health = client.channel.unary_unary("/grpc.health.v1.Health/Check")
    assert health(b"", timeout=bound(10)) == b"\x08\x01"
    client.call("RepositoryModelUnload", pb.RepositoryModelUnloadRequest(model_name=MODEL), pb.RepositoryModelUnloadResponse)
    assert node.state(MODEL) == "stopped"
    client.call("RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name=MODEL), pb.RepositoryModelLoadResponse, timeout_s=60)
    assert node.state(MODEL) == "ready"


def test_refusals_have_grpcs_codes_and_ours(client: Client):
    unknown, wrong, broken = request(1), request(1), request(1)
    unknown.model_name = "nobody"
    wrong.inputs[0].datatype = "INT32"
    broken.raw_input_contents.append(b"")
    shared = request(1)
    shared.inputs[0].parameters["shared_memory_region"].string_param = "r"
    for asked, expected, why in (
        (unknown, ("NOT_FOUND", "5007"), "No such model nobody"),
        (wrong, ("INVALID_ARGUMENT", "5006"), "input 'x': got INT32, expects FP32"),
        (broken, ("INVALID_ARGUMENT", "5006"), "1 inputs and 2 raw_input_contents"),
        (shared, ("INVALID_ARGUMENT", "5006"), "there is no shared memory here"),
        (request(1, bad=True), ("INVALID_ARGUMENT", "5006"), "asked to be bad"),
        (request(1, sleep_s=30.0, timeout=200_000.0), ("DEADLINE_EXCEEDED", "3046"), ""),
        (request(*[0.0] * 2_700_000), ("RESOURCE_EXHAUSTED", "3006"), "10485760"),
    ):
        with pytest.raises(grpc.RpcError) as refusal:
            client.infer(asked)
        assert code_of(refusal) == expected
        assert why in refusal.value.details()
    with pytest.raises(grpc.RpcError) as refusal:
        client.channel.unary_unary(SERVICE + "SystemSharedMemoryRegister")(b"", timeout=bound(10))
    assert code_of(refusal)[0] == "INVALID_ARGUMENT"
    with pytest.raises(grpc.RpcError) as refusal:
        client.channel.unary_unary(SERVICE + "TraceSetting")(b"", timeout=bound(10))
    assert code_of(refusal)[0] == "UNIMPLEMENTED"


def test_broken_messages_harm_nobody(client: Client, node: Node):
    control = node.control_pid
    for data in (b"\xff" * 40, b"\x0a\xff\xff\xff\xff\x0f", b"\x2a\x02\x0a\xff", b""):
        with pytest.raises(grpc.RpcError) as refusal:
            client.channel.unary_unary(SERVICE + "ModelInfer")(data, timeout=bound(10))
        assert code_of(refusal) == ("INVALID_ARGUMENT", "5006")
    assert node.control_pid == control
    client.infer(request(1))


def test_no_mutation_of_a_message_harms_the_server(client: Client, node: Node):
    chance = random.Random(36)
    valid = _written(request(1.0, 2.0, note="a"))
    pids, control = node.pids(MODEL), node.control_pid
    unary = client.channel.unary_unary(SERVICE + "ModelInfer")
    seen, said = set(), set()
    for _ in range(count(300, long=3000)):
        broken = bytearray(valid)
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(broken))
            broken[at : at + chance.randrange(3)] = bytes(chance.randrange(256) for _ in range(chance.randrange(4)))
        try:
            unary(bytes(broken), timeout=bound(20))
        except grpc.RpcError as refusal:
            seen.add(refusal.code().name)
            said.add(str(refusal.details()))
    assert "INVALID_ARGUMENT" in seen
    assert seen <= {"INVALID_ARGUMENT", "NOT_FOUND"}
    assert [text for text in said if not re.match(NAMES_ITS_FIELD, text)] == []
    assert (node.pids(MODEL), node.control_pid) == (pids, control)
    log = (node.data_dir / "logs/node.log").read_text()
    assert '"http.failed"' not in log
    assert "Traceback" not in node.stderr.read_text()


@pytest.mark.parametrize("way", ["cancel", "deadline"])
def test_who_leaves_cancels_the_work(client: Client, node: Node, way: str):
    unary = client.channel.unary_unary(
        SERVICE + "ModelInfer", request_serializer=_written, response_deserializer=pb.ModelInferResponse.FromString
    )
    under_way = unary.future(request(1, sleep_s=600.0), timeout=None if way == "cancel" else bound(1))

    def working() -> int:
        return sum(each["in_flight"] for each in node.model(MODEL)["instances"])

    until(lambda: working() == 1 or under_way.done(), within_s=10, what="the model is at work")
    if way == "cancel":
        under_way.cancel()
    until(lambda: under_way.done() and working() == 0, within_s=20, what="nothing is at work any more")


def test_a_stream_answers_in_order_and_a_refusal_ends_nothing(client: Client):
    bad = request(2, bad=True)
    said = client.stream(
        [request(1), bad, request(3), request(4, steps=2.0), request(5, steps=1.0, triton_enable_empty_final_response=True)]
    )
    shown = [each.error_message or list(each.infer_response.raw_output_contents) for each in said]
    assert shown[0] == [struct.pack("<f", 1)]
    assert "asked to be bad" in shown[1]
    assert shown[2] == [struct.pack("<f", 3)]
    assert [each.infer_response.parameters["step"].int64_param for each in said[3:6]] == [0, 1, 0]
    assert said[6].infer_response.parameters["triton_final_response"].bool_param
    assert len(said) == 7
    with pytest.raises(grpc.RpcError) as refusal:
        client.infer(request(1, steps=2.0))
    assert "ModelStreamInfer" in refusal.value.details()


def test_a_port_that_is_taken_is_told_at_the_start(node: Node, port: int, tmp_path: Path):
    config = tmp_path / "fornada.toml"
    config.write_text(f"[server]\ngrpc_port = {port}\n")
    command = [str(FORNADA), "serve", "--port", "0", "--data-dir", str(tmp_path / "data"), "--config", str(config)]
    ended = subprocess.run(command, env=node_environ(), capture_output=True, text=True, timeout=bound(30), check=False)
    assert ended.returncode == 1
    assert f"port {port} of [server] grpc_port" in ended.stderr


def test_a_successor_listens_again(node: Node, client: Client):
    killed = node.control_pid
    os.kill(killed, signal.SIGKILL)
    node.wait_next_control_plane(after_pid=killed)
    answer = client.infer(request(1), wait_for_ready=True, timeout_s=30)
    assert answer.parameters["pid"].int64_param in node.pids(MODEL)


def test_keys_and_certificates_count_here_too(tmp_path: Path):
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1", "localhost").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "both.pem"))
    port = free_port()
    node = Node(tmp_path, config=f'{DEFAULT_CONFIG}[server]\ngrpc_port = {port}\ntls_cert = "{tmp_path}/both.pem"\n')
    created = [str(FORNADA), "keys", "create", "--account", "mine", "--role", "user", "--json", "--data-dir", str(node.data_dir)]
    key = json.loads(subprocess.run(created, env=node_environ(), capture_output=True, text=True, check=True).stdout)["key"]
    node.spawn()
    try:
        credentials = grpc.ssl_channel_credentials(authority.cert_pem.bytes())
        client = Client(port, credentials)
        live = client.call("ServerLive", pb.ServerLiveRequest(), pb.ServerLiveResponse, wait_for_ready=True, timeout_s=40)
        assert live.live, "health needs no key"
        asked = pb.RepositoryIndexRequest()
        for metadata, expected in (
            ((), "UNAUTHENTICATED"),
            ((("authorization", "Bearer nobody"),), "UNAUTHENTICATED"),
        ):
            with pytest.raises(grpc.RpcError) as refusal:
                client.call("RepositoryIndex", asked, pb.RepositoryIndexResponse, metadata=metadata)
            assert code_of(refusal) == (expected, "10000")
        shown = (("authorization", f"Bearer {key}"),)
        client.call("RepositoryIndex", asked, pb.RepositoryIndexResponse, metadata=shown)
        for method, needs in MAY.items():
            for metadata, role in (((), Role.NOBODY), (shown, Role.USER)):
                assert may(client, method, metadata) == (role >= needs), (method, role)
        many = client.channel.stream_stream(
            SERVICE + "ModelStreamInfer", request_serializer=_written, response_deserializer=pb.ModelStreamInferResponse.FromString
        )
        asking: queue.Queue[Any] = queue.Queue()
        answers = many(iter(asking.get, None), metadata=shown, timeout=bound(30))
        asking.put(request(1))
        assert "No such model" in next(answers).error_message
        with pytest.raises(grpc.RpcError) as refusal:
            client.call(
                "RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="x"), pb.RepositoryModelLoadResponse, metadata=shown
            )
        assert code_of(refusal) == ("PERMISSION_DENIED", "10000")
        revoked = [str(FORNADA), "keys", "revoke", key, "--data-dir", str(node.data_dir)]
        subprocess.run(revoked, env=node_environ(), capture_output=True, check=True)
        asking.put(request(1))
        with pytest.raises(grpc.RpcError) as refusal:
            next(answers)
        assert code_of(refusal) == ("UNAUTHENTICATED", "10000"), "at once, in the middle of a stream"
        asking.put(None)
    finally:
        node.process.send_signal(signal.SIGTERM)
        node.wait()
        node.destroy()


def test_a_message_beyond_the_bound_is_refused_unread(client: Client):
    with pytest.raises(grpc.RpcError) as refusal:
        client.channel.unary_unary(SERVICE + "ModelInfer")(bytes(65 * 1024 * 1024), timeout=bound(30))
    assert code_of(refusal)[0] == "RESOURCE_EXHAUSTED"


def test_an_upgrade_passes_the_port_on_and_ends_what_runs(node: Node, client: Client, tmp_path: Path):
    short: list[str] = []
    slow = client.channel.unary_unary(
        SERVICE + "ModelInfer", request_serializer=_written, response_deserializer=pb.ModelInferResponse.FromString
    )
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            try:
                client.call("ServerReady", pb.ServerReadyRequest(), pb.ServerReadyResponse, wait_for_ready=True)
                short.append("OK")
            except grpc.RpcError as error:
                short.append(error.code().name)

    source = checkout(tmp_path, "99.0.0")
    asking = threading.Thread(target=ask)
    asking.start()
    try:
        before = node.control_pid
        long = slow.future(request(1, sleep_s=3.0), timeout=bound(60))
        until(lambda: node.model(MODEL)["instances"][0]["in_flight"], within_s=10, what="the long one runs")
        done = upgrade(node, source)
        assert done.returncode == 0, done.stderr
        assert list(long.result().raw_output_contents) == [struct.pack("<f", 1)], "answered by the one that it was sent to"
        node.wait_next_control_plane(after_pid=before)
        said = client.call("ServerMetadata", pb.ServerMetadataRequest(), pb.ServerMetadataResponse, wait_for_ready=True)
        assert said.version == "99.0.0"
    finally:
        over.set()
        asking.join()
    refused = [code for code in short if code != "OK"]
    assert short[-1] == "OK"
    assert refused in ([], ["CANCELLED"]), "grpcio refuses the call that crosses its farewell, unread"
