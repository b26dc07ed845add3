"""WebSockets on a real socket over a node in memory: the handshake, its refusals, bounds, and each way in which a conversation ends."""

import base64
import json
import struct
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from fornada.core.errors import Busy, ModelRaised
from fornada.core.ports import Health
from fornada.core.requests import AnswerHead
from fornada.edge.server.conversation import HELD_BYTES, MESSAGE_BYTES
from fornada_sdk.wire.messages import BYTES, INPUT_COST, INPUT_WINDOW, TEXT
from tests.harness.client import Connection
from tests.harness.websocket import UPGRADE, Closed, Refused, WebSocket
from tests.http.edge_server.conftest import RUN, Locked, Served
from tests.unit.edge.fakes import Submitted, items, refuse, stay_silent, until

TARGET = f"{RUN}@test/a"
KEY = base64.b64encode(bytes(16)).decode()
TOO_BIG, POLICY, TRY_LATER, FAILED, PROTOCOL = 1009, 1008, 1013, 1011, 1002


def listen(submitted: Submitted) -> None:
    """The model listens at once."""
    submitted.sink.listens(0)  # type: ignore[attr-defined]


def talk(edge: Served, target: str = TARGET, **headers: str) -> WebSocket:
    return WebSocket(edge.address, target, headers)


@pytest.fixture
def listening(edge: Served) -> Served:
    edge.inference.behaviour = listen
    return edge


@pytest.fixture
def locked() -> Iterator[Locked]:
    edge = Locked()
    edge.inference.behaviour = listen
    edge.start()
    yield edge
    edge.close()


def tell(edge: Served, what: str, *said: object) -> None:
    """What the runner says next, on the server's loop."""
    submitted = edge.inference.last
    edge.loop.call_soon_threadsafe(lambda: getattr(submitted.sink, what)(*said))


def test_messages_go_both_ways_and_the_model_s_end_is_a_close(listening: Served):
    with talk(listening, f"{TARGET}?encoding=linear16&sample_rate=16000") as socket:
        assert socket.headers["cf-ai-req-id"] == listening.inference.last.request.trace_id
        submitted = listening.inference.last
        assert submitted.head.messages and submitted.head.stream
        assert json.loads(submitted.body) == {"encoding": "linear16", "sample_rate": "16000"}
        socket.send("olá")
        socket.send(b"\x00\xff")
        socket.send("")
        until(lambda: len(submitted.said) == 3)
        assert submitted.said == [(TEXT, "olá".encode()), (BYTES, b"\x00\xff"), (TEXT, b"")]
        tell(listening, "stream_begins", AnswerHead())
        tell(listening, "item", b'{"event":"Update"}')
        tell(listening, "item", b'{"event":"EndOfTurn"}')
        assert [socket.receive(), socket.receive()] == ['{"event":"Update"}', '{"event":"EndOfTurn"}']
        tell(listening, "stream_ends", None, AnswerHead())
        assert socket.end().code == 1000
    assert not submitted.left


def test_bytes_come_as_bytes(listening: Served):
    with talk(listening) as socket:
        tell(listening, "stream_begins", AnswerHead(type="audio/mpeg"))
        tell(listening, "item", b"\xff\xfb")
        assert socket.receive() == b"\xff\xfb"


def test_a_model_that_does_not_listen_answers_in_messages(edge: Served):
    with talk(edge, f"{TARGET}?body=" + quote('{"inputs":{"a":1},"options":{"websocket":true}}')) as socket:
        assert socket.receive() == '{"echo":{"a":1},"files":{}}'
        assert socket.end().code == 1000
    edge.inference.behaviour = items(b"1", b"2")
    with talk(edge) as socket:
        assert [socket.receive(), socket.receive()] == ["1", "2"]
        assert socket.end().code == 1000


def test_over_the_binding(listening: Served):
    url = "https://workers-binding.ai/run?version=3&body=" + quote('{"inputs":{"sample_rate":"16000"},"options":{"websocket":true}}')
    headers = {"MF-Binding": "AI", "MF-URL": url, "MF-Header-cf-consn-model-id": "@test/a"}
    with WebSocket(listening.address, "/", headers) as socket:
        socket.send("hello")
        until(lambda: listening.inference.last.said == [(TEXT, b"hello")])
        assert json.loads(listening.inference.last.body) == {"sample_rate": "16000"}


@pytest.mark.parametrize(
    ("target", "status", "code"),
    [
        (f"{RUN}@test/nothing", 400, 5007),
        (f"{TARGET}?tags=%3F", 400, 5006),
        (f"{TARGET}?body=[", 400, 5006),
        (f"{RUN}@test/../x", 400, 3042),
    ],
)
def test_what_cannot_be_is_refused_with_a_status(edge: Served, target: str, status: int, code: int):
    with pytest.raises(Refused) as refused:
        talk(edge, target)
    assert refused.value.response.status == status, refused.value.response.body
    assert edge.inference.requests == []


def test_who_finds_no_room_is_told_before_the_handshake(edge: Served):
    edge.inference.behaviour = refuse(Busy("full", retry_after_s=3.0))
    with pytest.raises(Refused) as refused:
        talk(edge, f"{TARGET}?body=" + quote('{"inputs":{},"options":{"rejectIfBusy":true}}'))
    assert (refused.value.response.status, refused.value.response.headers["retry-after"]) == (429, "3")
    assert edge.inference.last.request.reject_if_busy


@pytest.mark.parametrize(
    "change",
    [
        {"Sec-WebSocket-Version": "8"},
        {"Sec-WebSocket-Key": "short"},
        {"Sec-WebSocket-Key": ""},
        {"Content-Length": "2"},
        {"Host": "evil.example"},
    ],
)
def test_a_handshake_that_is_none_is_refused(edge: Served, change: dict[str, str]):
    headers = {"Host": "localhost", **UPGRADE, "Sec-WebSocket-Key": KEY, **change}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with edge.connect() as connection:
        connection.send(f"GET {TARGET} HTTP/1.1\r\n{lines}\r\n".encode())
        assert 400 <= connection.read_response(of="GET").status < 500
    assert edge.inference.requests == []


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [("chat", "chat"), ("token, abc.DEF-123", "token"), (" , ,b ", "b"), ("no token, c", "c"), ("", None), ("(,)", None)],
)
def test_who_offers_subprotocols_gets_the_first_of_them_and_nobody_else_gets_one(listening: Served, offered: str, chosen: str | None):
    with talk(listening, **{"Sec-WebSocket-Protocol": offered}) as socket:
        assert socket.headers.get("sec-websocket-protocol") == chosen
    with talk(listening) as socket:
        assert "sec-websocket-protocol" not in socket.headers


def test_offers_on_two_lines_are_one_list(listening: Served):
    lines = {"Host": "localhost", **UPGRADE, "Sec-WebSocket-Key": KEY}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items()) + "Sec-WebSocket-Protocol: a\r\nsec-websocket-protocol: b\r\n"
    with Connection(listening.address) as connection:
        connection.send(f"GET {TARGET} HTTP/1.1\r\n{head}\r\n".encode())
        assert connection.read_head().headers["sec-websocket-protocol"] == "a"


def test_what_a_worker_was_offered_by_its_own_caller_is_not_offered_to_the_node(listening: Served):
    url = "https://workers-binding.ai/run?version=3&body=" + quote('{"inputs":{},"options":{"websocket":true}}')
    inner = {"Sec-WebSocket-Protocol": "theirs", "Sec-WebSocket-Key": "dGhlaXJzdGhlaXJzdGhlaQ==", "Sec-WebSocket-Version": "8"}
    headers = {"MF-Binding": "AI", "MF-URL": url, "MF-Header-cf-consn-model-id": "@test/a"}
    with WebSocket(listening.address, "/", headers | {f"MF-Header-{name}": value for name, value in inner.items()}) as socket:
        assert "sec-websocket-protocol" not in socket.headers


def test_elsewhere_the_wish_counts_for_nothing(edge: Served):
    for method, target, status in (("GET", "/health/live", 200), ("POST", TARGET, 200), ("GET", "/v1/models", 200)):
        body = b"{}" if method == "POST" else None
        assert edge.fetch(method, target, body, headers={**UPGRADE, "Sec-WebSocket-Key": KEY}).status == status


def test_other_protocols_than_websockets_are_ignored(edge: Served):
    assert edge.fetch("GET", TARGET, headers={"Upgrade": "h2c", "Connection": "Upgrade"}).status in (400, 405)


def test_with_keys_nobody_talks_without_one(locked: Locked):
    for caller, status in (("no key", 401), ("wrong key", 401), ("other deployer", 403)):
        with pytest.raises(Refused) as refused:
            talk(locked, "/client/v4/accounts/mine/ai/run/@test/mine", **locked.show(caller))
        assert refused.value.response.status == status
    assert locked.inference.requests == []
    with talk(locked, "/client/v4/accounts/mine/ai/run/@test/mine", **locked.show("user")) as socket:
        key = next(key for key in locked.keys.keys() if (key.account, key.role.name) == ("mine", "USER"))  # noqa: SIM118
        locked.keys.revoke_key(key.id, now=2.0)
        locked.mark[0] += 1
        assert socket.end().code == POLICY
    until(lambda: locked.inference.last.left)


@pytest.mark.parametrize("way", ["close", "half close", "reset", "away"])
def test_a_caller_that_leaves_cancels(listening: Served, way: str):
    with talk(listening) as socket:
        if way == "close":
            assert socket.close(1000) == 1000
        elif way == "half close":
            socket.socket.shutdown(1)
        elif way == "reset":
            socket.socket.setsockopt(1, 13, struct.pack("ii", 1, 0))
            socket.socket.close()
        else:
            socket.socket.close()
        until(lambda: listening.inference.last.left)


def test_a_caller_that_leaves_before_the_handshake_cancels(edge: Served):
    edge.inference.behaviour = stay_silent
    with edge.connect() as connection:
        connection.send_request("GET", TARGET, None, {**UPGRADE, "Sec-WebSocket-Key": KEY})
        until(lambda: bool(edge.inference.requests))
    until(lambda: edge.inference.last.left)


def test_a_failure_is_a_last_message_and_a_code(listening: Served):
    for error, code in ((ModelRaised("ValueError: broke"), FAILED), (Busy("later"), TRY_LATER)):
        with talk(listening) as socket:
            tell(listening, "stream_begins", AnswerHead())
            tell(listening, "stream_ends", error)
            told = json.loads(socket.receive())
            assert told["errors"][0]["code"] == error.code
            assert socket.end().code == code


def test_what_is_no_json_never_goes_out_as_a_text(listening: Served):
    with talk(listening) as socket:
        tell(listening, "stream_begins", AnswerHead())
        tell(listening, "item", b"\xff{")
        assert json.loads(socket.receive())["errors"][0]["code"] == 3103
        assert socket.end().code == FAILED


def test_a_message_has_a_bound_in_one_frame_and_in_many(listening: Served):
    with talk(listening) as socket:
        socket.send(bytes(MESSAGE_BYTES))
        until(lambda: [len(data) for _, data in listening.inference.last.said] == [MESSAGE_BYTES])
    with talk(listening) as socket:
        socket.send(bytes(MESSAGE_BYTES + 1))
        assert socket.end().code == TOO_BIG
    with talk(listening) as socket:
        socket.raw(b"\x02\xfe\x00\x80" + bytes(4) + bytes(128))
        for _ in range(MESSAGE_BYTES // 32768 + 1):
            socket.raw(b"\x00\xfe\x80\x00" + bytes(4) + bytes(32768))
        assert socket.end().code == TOO_BIG


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"\x81\x02hi", PROTOCOL),  # unmasked
        (b"\x83\x80\x00\x00\x00\x00", PROTOCOL),  # an opcode that isn't there
        (b"\xf1\x80\x00\x00\x00\x00", PROTOCOL),  # reserved bits
        (b"\x89\xfe\x00\x80" + bytes(4) + bytes(128), PROTOCOL),  # a long ping
        (b"\x80\x80\x00\x00\x00\x00", PROTOCOL),  # goes on with nothing
        (b"\x81\x82\x00\x00\x00\x00\xff\xff", 1007),  # no UTF-8
    ],
)
def test_a_broken_frame_ends_it(listening: Served, frame: bytes, code: int):
    with talk(listening) as socket:
        socket.raw(frame)
        assert socket.end().code == code
    until(lambda: listening.inference.last.left)


def test_pings_are_answered(listening: Served):
    with talk(listening) as socket:
        socket.raw(b"\x89\x82\x00\x00\x00\x00hi")
        socket.socket.settimeout(10)
        assert socket.socket.recv(4) == b"\x8a\x02hi"


def test_who_speaks_faster_than_the_model_listens_waits(listening: Served):
    with talk(listening) as socket:
        submitted = listening.inference.last
        piece = 8000
        socket.socket.settimeout(0.5)
        sent = 0
        try:
            while sent < 64 * 1024 * 1024:
                socket.send(bytes(piece))
                sent += piece
        except TimeoutError:
            pass
        assert sent < 64 * 1024 * 1024, "it was never held back"
        most = (INPUT_WINDOW + HELD_BYTES) // (piece + INPUT_COST)
        assert len(submitted.said) <= most
        before = len(submitted.said)
        tell(listening, "listens", INPUT_WINDOW)
        until(lambda: len(submitted.said) > before)


def test_a_slow_reader_holds_the_model_back(listening: Served):
    with talk(listening) as socket:
        submitted = listening.inference.last
        tell(listening, "stream_begins", AnswerHead())
        item = json.dumps("x" * 65536).encode()
        for _ in range(200):
            tell(listening, "item", item)
        until(lambda: submitted.taken > 0)
        assert submitted.taken < 200 * len(item)
        for _ in range(200):
            assert len(socket.receive()) == len(item)
        until(lambda: submitted.taken == 200 * len(item))


def test_a_draining_node_says_that_it_goes(listening: Served):
    with talk(listening) as socket:
        listening.loop.call_soon_threadsafe(listening.server.drain)
        assert socket.end().code == 1001
    until(lambda: listening.inference.last.left)
    with pytest.raises((Refused, Closed, OSError)) as refused:
        talk(listening)
    if isinstance(refused.value, Refused):
        assert refused.value.response.status == 503


def test_a_node_that_starts_takes_none_yet(edge: Served):
    edge.operations.healthy = Health(accepting=False, draining=False, loop_age_s=0.0)
    until(lambda: edge.fetch("POST", TARGET, b"{}").status == 503)
    with pytest.raises(Refused) as refused:
        talk(edge)
    assert refused.value.response.status == 503


def test_frames_behind_the_request_are_not_lost(listening: Served):
    with Connection(listening.address) as connection:
        head = "".join(f"{name}: {value}\r\n" for name, value in {"Host": "localhost", **UPGRADE, "Sec-WebSocket-Key": KEY}.items())
        connection.send(f"GET {TARGET} HTTP/1.1\r\n{head}\r\n".encode() + b"\x81\x82\x00\x00\x00\x00hi")
        assert connection.read_head().headers["sec-websocket-accept"] == "ICX+Yqv66kxgM0FcWaLWlFLwTAI="
        until(lambda: listening.inference.last.said == [(TEXT, b"hi")])
