"""Conversations over WebSockets with models that listen, on a node: whatever dies or leaves, nobody waits for ever and no place is lost."""

import json
import os
import signal
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.bounds import bound, count
from tests.docs.pages import REPOSITORY
from tests.harness.bundles import archive
from tests.harness.client import Response
from tests.harness.fixtures import StartNode
from tests.harness.node import RUN, Node
from tests.harness.waiting import Background, until
from tests.harness.websocket import Closed, Refused, WebSocket

SYNC = """
def handle_request(request, context):
    yield {"pid": context.pid}
    for number, message in enumerate(request.messages):
        if message == "enough":
            return
        if message == "break":
            raise ValueError("broken")
        text = isinstance(message, str)
        yield {"number": number, "text": text, "size": len(message), "said": message if text else list(message[:4])}
"""
ASYNC = """
async def handle_request(request, context):
    yield {"pid": context.pid}
    number = 0
    async for message in request.messages:
        if message == "enough":
            return
        if message == "break":
            raise ValueError("broken")
        text = isinstance(message, str)
        yield {"number": number, "text": text, "size": len(message), "said": message if text else list(message[:4])}
        number += 1
"""
FORMS = {"inline": (SYNC, 1), "threads": (SYNC, 2), "async": (ASYNC, 2)}


@pytest.fixture
def background() -> Iterator[Background]:
    with Background() as made:
        yield made


@pytest.fixture(params=FORMS)
def talker(request: pytest.FixtureRequest, node: Node, fresh_name: Callable[[], str]) -> str:
    """A model that repeats what it hears, in each of the ways in which model code is run."""
    code, concurrency = FORMS[request.param]
    return deploy(node, fresh_name(), code, concurrency)


def deploy(node: Node, name: object, code: str, concurrency: int, **serving: Any) -> str:
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in {"concurrency": concurrency, **serving}.items())
    node.deploy(str(name), archive({"model.toml": f'name = "{name}"\n[serving]\n{lines}', "model.py": code}))
    return str(name)


def talk(node: Node, model: str, query: str = "") -> WebSocket:
    return WebSocket(node.address, f"{RUN}{model}{query}")


def hear(socket: WebSocket, *, fine: bool = True) -> Any:
    said = json.loads(socket.receive())
    assert ("errors" not in said) is fine, said
    return said


def test_it_hears_and_is_heard_and_the_next_one_finds_its_place(node: Node, talker: str):
    for _ in range(3):
        with talk(node, talker) as socket:
            assert hear(socket)["pid"] > 0
            messages: list[str | bytes] = ["olá", b"\x00\x01\xff", "", b"", "x" * 200_000, bytes(1024 * 1024)]
            for number, message in enumerate(messages):
                socket.send(message)
                echoed = hear(socket)
                assert echoed["number"] == number and echoed["size"] == len(message)
                assert echoed["said"] == message if isinstance(message, str) else echoed["said"] == list(message[:4])
            socket.send("enough")
            assert socket.end().code == 1000


def test_whoever_leaves_frees_the_place(node: Node, talker: str):
    for way in ("close", "half close", "gone", "close"):
        with talk(node, talker) as socket:
            hear(socket)
            socket.send("hello")
            hear(socket)
            if way == "close":
                assert socket.close() == 1000
            elif way == "half close":
                socket.socket.shutdown(1)
                assert socket.end().code == 1006
    with talk(node, talker) as socket:
        hear(socket)
        socket.send("still there?")
        assert hear(socket)["said"] == "still there?"


def test_a_model_that_raises_says_so(node: Node, talker: str):
    with talk(node, talker) as socket:
        hear(socket)
        socket.send("break")
        assert "ValueError: broken" in hear(socket, fine=False)["errors"][0]["message"]
        assert socket.end().code == 1011


def test_who_speaks_faster_than_it_listens_loses_nothing(node: Node, talker: str, background: Background):
    messages = 3000
    with talk(node, talker) as socket:
        hear(socket)

        def speak() -> None:
            for number in range(messages):
                socket.send(str(number) + "." * 1000)

        spoken = background.start(speak)
        heard = [hear(socket)["said"].partition(".")[0] for _ in range(messages)]
        spoken.result()
        assert heard == [str(number) for number in range(messages)]
        socket.send("enough")
        assert socket.end().code == 1000


def test_an_ordinary_model_answers_in_one_message(node: Node, fresh_name: Callable[[], str]):
    name = str(fresh_name())
    node.deploy_probe(name)
    with talk(node, name, "?body=%7B%22inputs%22:%7B%22echo%22:5%7D%7D") as socket:
        assert hear(socket)["echo"] == 5
        assert socket.end().code == 1000
    with talk(node, name, "?body=%7B%22inputs%22:%7B%22steps%22:3%7D%7D") as socket:
        assert [hear(socket)["step"] for _ in range(3)] == [0, 1, 2]
        assert socket.end().code == 1000


def test_each_conversation_is_a_request_in_the_usage_however_it_ended(node: Node, fresh_name: Callable[[], str]):
    name = deploy(node, fresh_name(), SYNC, 1)

    def counted() -> int:
        rows = node.fetch("GET", "/api/v1/usage").json()["usage"]
        return sum(row["requests"] for row in rows if row["model"] == name)

    for last in ("enough", "break", ""):
        with talk(node, name) as socket:
            hear(socket)
            if last:
                socket.send(last)
                socket.end()
    until(lambda: counted() == 3, within_s=20, what="each is counted")


def test_a_conversation_has_the_time_that_its_model_gives_it(node: Node, fresh_name: Callable[[], str]):
    name = deploy(node, fresh_name(), SYNC, 1, timeout_s=2)
    assert node.act(name, "load").status == 200
    for _ in range(2):
        with talk(node, name) as socket:
            hear(socket)
            assert hear(socket, fine=False)["errors"][0]["code"] == 3046
            assert socket.end().code == 1008


@pytest.mark.parametrize("form", FORMS)
def test_kill_9_of_the_runner_is_told_at_once(node: Node, fresh_name: Callable[[], str], form: str):
    name = deploy(node, fresh_name(), *FORMS[form])
    for _ in range(count(2, long=20)):
        with talk(node, name) as socket:
            pid = hear(socket)["pid"]
            socket.send("hello")
            hear(socket)
            os.kill(pid, signal.SIGKILL)
            assert hear(socket, fine=False)["errors"][0]["code"] == 3101
            assert socket.end().code == 1011
        until(lambda: ready(node, name), within_s=20, what="it can be talked with again")


def ready(node: Node, name: str) -> bool:
    try:
        with talk(node, name) as socket:
            hear(socket)
            return socket.close() == 1000
    except Exception:  # noqa: BLE001 - refused or cut off: not yet
        return False


def test_kill_9_of_the_control_plane_ends_conversations_and_frees_their_places(new_node: StartNode, tmp_path: Path):
    node = new_node().start()
    names = [deploy(node, f"@local/{form}", *FORMS[form]) for form in FORMS]
    for _ in range(count(1, long=10)):
        with ExitStack() as open_ones:
            sockets = [open_ones.enter_context(talk(node, name)) for name in names]
            pids = [hear(socket)["pid"] for socket in sockets]
            sockets[0].send("hello")
            before, killed = node.control_pid, time.monotonic()
            os.kill(before, signal.SIGKILL)
            assert [socket.end().code for socket in sockets] == [1006] * 3
            assert time.monotonic() - killed < bound(20)
        node.wait_next_control_plane(after_pid=before)
        for name, pid in zip(names, pids, strict=True):
            until(lambda name=name: ready(node, name), within_s=20, what="its place is free")  # type: ignore[misc]
            with talk(node, name) as socket:
                assert hear(socket)["pid"] == pid, "the same runner listens"
    assert node.stop() == 0


def test_a_draining_node_closes_conversations_with_1001(new_node: StartNode):
    node = new_node().start()
    name = deploy(node, "@local/talker", SYNC, 1)
    with talk(node, name) as socket:
        hear(socket)
        node.process.send_signal(signal.SIGTERM)
        assert socket.end().code == 1001
    assert node.wait() == 0


def test_the_contract_model_tells_turns_of_sound(node: Node):
    node.deploy("@contract/flux", REPOSITORY / "examples/contract/flux")
    loud, quiet = (struct.pack("<h", level) * 1600 for level in (9000, 0))
    with talk(node, "@contract/flux", "?encoding=linear16&sample_rate=16000") as socket:
        events = []
        for piece in (quiet, loud, loud, *[quiet] * 5):
            socket.send(piece)
            events.append(hear(socket))
        assert [each["event"] for each in events] == ["Update", "StartOfTurn", "Update", *["Update"] * 4, "EndOfTurn"]
        assert events[0]["request_id"] == socket.headers["x-request-id"]
        socket.send('{"type": "CloseStream"}')
        assert socket.end().code == 1000
    refused: Response = node.fetch("GET", f"{RUN}@contract/flux")
    assert refused.status == 405 and "Upgrade: websocket" in refused.message


def test_bad_inputs_end_it_with_their_reason(node: Node):
    node.deploy("@contract/flux", REPOSITORY / "examples/contract/flux")
    with pytest.raises((Refused, Closed)) as refused:
        with talk(node, "@contract/flux", "?encoding=opus") as socket:
            socket.receive()
    assert isinstance(refused.value, Refused) and refused.value.response.status == 400
    assert '"encoding" must be linear16' in refused.value.response.message
