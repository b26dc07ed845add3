"""What a hostile client can send: the answer is a refusal or a closed connection, soon; the node, its pid and its memory stay."""

import json
import random
import selectors
import socket
import time

import pytest

from tests.bounds import bound, count
from tests.harness.client import Closed
from tests.harness.fixtures import Probe, StartNode
from tests.harness.node import Node, run_path
from tests.harness.processes import descriptors, resident_bytes
from tests.harness.waiting import until

MIB = 1024 * 1024
HOST = b"Host: 127.0.0.1\r\n"
GARBAGE = {
    "binary": bytes(range(256)) * 4,
    "TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "SSH": b"SSH-2.0-OpenSSH_9.2\r\n",
    "no version": b"GET /\r\n\r\n",
    "version 9": b"GET / HTTP/9.9\r\n" + HOST + b"\r\n",
    "version without digits": b"GET / HTTP/x.y\r\n" + HOST + b"\r\n",
    "only newlines": b"\r\n" * 2000,
    "a space in the method": b"GE T / HTTP/1.1\r\n" + HOST + b"\r\n",
    "a method of 10,000": b"A" * 10_000 + b" / HTTP/1.1\r\n" + HOST + b"\r\n",
    "NUL in the target": b"GET /\x00 HTTP/1.1\r\n" + HOST + b"\r\n",
    "NUL in a header": b"GET / HTTP/1.1\r\n" + HOST + b"x: a\x00b\r\n\r\n",
    "a bare CR in a header": b"GET / HTTP/1.1\r\n" + HOST + b"x: a\rInjected: yes\r\n\r\n",
    "a header without a colon": b"GET / HTTP/1.1\r\n" + HOST + b"nonsense\r\n\r\n",
    "a space before the colon": b"GET / HTTP/1.1\r\n" + HOST + b"Content-Length : 5\r\n\r\nhello",
    "a folded header": b"GET / HTTP/1.1\r\n" + HOST + b"x: a\r\n  b\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    "length and chunks": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "unknown coding": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "a chunk of no size": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
    "a chunk of 2^64": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
    "a negative chunk": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n",
    "an endless chunk extension": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n5;" + b"x" * 100_000,
}


@pytest.mark.parametrize("what", GARBAGE)
def test_garbage_is_refused_and_the_connection_closed(node: Node, what: str):
    pid = node.control_pid
    with node.connect(timeout_s=5) as connection:
        try:
            connection.send(GARBAGE[what])
            connection.half_close()
        except OSError:
            pass  # it hung up on us before we had sent everything: fine
        rest = b""
        try:
            while data := connection.socket.recv(65536):
                rest += data
                assert len(rest) < MIB
        except ConnectionError:
            pass
    assert not rest or rest.startswith((b"HTTP/1.1 4", b"HTTP/1.1 505", b"HTTP/1.1 501", b"HTTP/1.0 4", b"HTTP/1.1 200")), rest[:200]
    assert b"Traceback" not in rest
    assert node.control_pid == pid and node.ready()


def test_requests_can_t_be_smuggled_by_length_and_chunks(node: Node, probe: Probe):
    model = probe()
    hidden = b'5c\r\n{"echo": 1}\r\n0\r\n\r\nGET /api/v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n'
    head = f"POST {run_path(model)} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(hidden)}\r\nTransfer-Encoding: chunked\r\n\r\n"
    with node.connect() as connection:
        connection.send(head.encode() + hidden)
        answers = connection.rest()
    assert answers.count(b"HTTP/1.1 ") <= 1, "one request, one answer"
    assert b'"models"' not in answers


@pytest.mark.parametrize("form", ["one of 40 KiB", "two thousand of them", "a target of 40 KiB", "without an end"])
def test_headers_over_32_kib_are_431(node: Node, form: str):
    lines = {
        "one of 40 KiB": b"x: " + b"a" * 40_960 + b"\r\n\r\n",
        "two thousand of them": b"".join(b"x-%d: %s\r\n" % (n, b"v" * 20) for n in range(2000)) + b"\r\n",
        "without an end": b"x: " + b"a" * 200_000,
    }
    start = b"GET /" + (b"t" * 40_960 if form == "a target of 40 KiB" else b"health/live") + b" HTTP/1.1\r\n" + HOST
    with node.connect() as connection:
        try:
            connection.send(start + lines.get(form, b"\r\n"))
        except ConnectionError:
            pass
        answer = connection.read_response()
        assert answer.status == 431, answer
        assert answer.json()["success"] is False
        assert answer.took_s < bound(1)


def test_headers_under_the_limit_are_served(node: Node):
    assert node.fetch("GET", "/health/live", headers={"x-large": "v" * 30_000}).status == 200


def test_headers_that_dribble_in_are_408_after_ten_seconds(new_node: StartNode):
    """Slow loris, with a shorter limit than the default of 10 s so that the test is quick; a byte now and then doesn't help."""
    node = new_node(config="[node]\ndrain_s = 5\n[server]\nheader_timeout_s = 1.5\nbody_timeout_s = 1.5\n").start()
    node.deploy_probe("@test/loris")
    node.load("@test/loris")
    began = time.monotonic()
    with node.connect(timeout_s=10) as connection:
        connection.send(b"GET /health/live HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        while time.monotonic() - began < 5:
            try:
                connection.send(b"x")
            except ConnectionError:
                break
            connection.socket.settimeout(0.2)
            try:
                if connection.socket.recv(1, socket.MSG_PEEK):
                    break
            except TimeoutError:
                continue
            finally:
                connection.socket.settimeout(bound(10))
        answer = connection.read_response()
    took_s = time.monotonic() - began
    assert answer.status == 408
    assert 1.0 <= took_s <= bound(2.5)

    with node.connect(timeout_s=10) as connection:  # a body that stops in the middle
        connection.send(b"POST " + run_path("@test/loris").encode() + b" HTTP/1.1\r\n" + HOST + b"Content-Length: 100\r\n\r\n{")
        answer = connection.read_response()
        assert answer.status == 408 and answer.took_s <= bound(2.5)
    assert node.stop() == 0


def test_an_idle_connection_may_be_used_again_after_a_while(node: Node):
    with node.connect() as connection:
        for _ in range(3):
            connection.send_request("GET", "/health/live")
            assert connection.read_response().status == 200
            time.sleep(0.3)  # the case itself: idle, then used again


def test_a_silent_connection_is_closed_in_the_end(new_node: StartNode):
    node = new_node(config="[node]\ndrain_s = 5\n[server]\nidle_timeout_s = 1\nheader_timeout_s = 1\n").start()
    with node.connect() as silent, node.connect() as idle:
        idle.send_request("GET", "/health/live")
        assert idle.read_response().status == 200
        assert idle.at_end(within_s=3)
        silent.rest()
    assert node.stop() == 0


def test_a_thousand_quick_connections_are_all_answered(node: Node):
    """In waves of at most 200 open at the same time; each is answered, and nothing of them stays."""
    before = descriptors(node.control_pid)
    total, answered = count(1000, long=10_000), 0
    request = b"GET /health/live HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    began = time.monotonic()
    while answered < total:
        answered += wave(node, min(200, total - answered), request)
    assert time.monotonic() - began < bound(20)
    until(lambda: descriptors(node.control_pid) <= before + 5, within_s=5, what="the connections are gone")


def wave(node: Node, size: int, request: bytes) -> int:
    selector = selectors.DefaultSelector()
    sockets = []
    answers = 0
    try:
        for _ in range(size):
            one = socket.create_connection(node.address, timeout=bound(10))
            sockets.append(one)
            one.sendall(request)
            selector.register(one, selectors.EVENT_READ)
        limit = time.monotonic() + bound(10)
        while selector.get_map():
            assert time.monotonic() < limit, f"only {answers} of {size} were answered"
            for key, _ in selector.select(1):
                data = key.fileobj.recv(65536)  # type: ignore[union-attr]
                if not data:
                    selector.unregister(key.fileobj)
                else:
                    answers += data.startswith(b"HTTP/1.1 200")
    finally:
        selector.close()
        for one in sockets:
            one.close()
    assert answers == size
    return answers


def test_connections_without_number_are_bounded_and_the_node_lives(new_node: StartNode):
    node = new_node(config="[node]\ndrain_s = 5\n[server]\nmax_connections = 50\n").start()
    held = []
    try:
        for _ in range(120):
            one = socket.create_connection(node.address, timeout=bound(5))
            one.sendall(b"GET /health/live HTTP/1.1\r\nHost: 127.0.0.1\r\n")  # never complete
            held.append(one)
        until(lambda: open_on(node) <= 60, within_s=5, what="the node holds no more than it said")
    finally:
        for one in held:
            one.close()
    until(node.ready, within_s=5, what="it serves again once they have gone")
    assert node.stop() == 0


def open_on(node: Node) -> int:
    return descriptors(node.control_pid) - 30


def test_pipelined_requests_are_answered_in_order(node: Node, probe: Probe):
    model = probe()
    node.load(model)
    from tests.harness.client import request_bytes

    bodies = [json.dumps({"echo": number, "sleep_s": 0.05 if number == 0 else 0}).encode() for number in range(20)]
    with node.connect() as connection:
        connection.send(b"".join(request_bytes(node.address, "POST", run_path(model), body) for body in bodies))
        assert [connection.read_response().result["echo"] for _ in bodies] == list(range(20))


def test_a_thousand_pipelined_requests_hold_no_memory(node: Node):
    memory = resident_bytes(node.control_pid)
    request = b"GET /health/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with node.connect(timeout_s=20) as connection:
        connection.send(request * 1000)
        for _ in range(1000):
            assert connection.read_response(of="GET").status == 200
    assert resident_bytes(node.control_pid) - memory < 50 * MIB


BODIES = {
    "empty": b"",
    "a bracket": b"{",
    "a list": b"[1,2,3]",
    "a number": b"5",
    "two objects": b"{}{}",
    "a BOM": b"\xef\xbb\xbf{}",
    "UTF-16": '{"echo": 1}'.encode("utf-16"),
    "no UTF-8": b'{"echo": "\xff\xfe"}',
    "deep lists": b'{"echo": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep objects": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "a huge number": b'{"echo": ' + b"9" * 100_000 + b"}",
    "a huge exponent": b'{"echo": 1e999999}',
    "doubled keys": b'{"echo": 1, "echo": 2}',
    "NUL in a string": b'{"echo": "\\u0000"}',
    "a raw newline in a string": b'{"echo": "a\nb"}',
    "form": b"echo=1&sleep_s=2",
    "a key of 1 MB": b'{"' + b"k" * 1_000_000 + b'": 1}',
    "100,000 keys": json.dumps({f"k{n}": n for n in range(100_000)}).encode(),
}


@pytest.mark.parametrize("what", BODIES)
def test_a_strange_body_is_answered_or_refused_in_json(node: Node, probe: Probe, what: str):
    model = probe()
    pid = node.load(model)["instances"][0]["pid"]
    answer = node.fetch("POST", run_path(model), BODIES[what])
    assert answer.status in (200, 400), (answer.status, answer.body[:300])
    answer.json()
    assert node.ask(model, {"echo": "alive"})["pid"] == pid, "the runner lives"


def test_five_hundred_mutations_of_a_good_request_never_hurt(node: Node, probe: Probe):
    model = probe()
    good = b"POST " + run_path(model).encode() + b' HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 11\r\nX-Request-Id: m\r\n\r\n{"echo": 1}'
    pid = node.load(model)["instances"][0]["pid"]
    control = node.control_pid
    chance = random.Random(36)
    for _ in range(count(150, long=5000)):
        broken = bytearray(good)
        for _ in range(chance.randint(1, 4)):
            where = chance.randrange(len(broken))
            match chance.randrange(3):
                case 0:
                    broken[where] = chance.randrange(256)
                case 1:
                    del broken[where : where + chance.randint(1, 8)]
                case 2:
                    broken[where:where] = chance.randbytes(chance.randint(1, 8))
            if not broken:
                break
        with node.connect(timeout_s=5) as connection:
            connection.send(bytes(broken))
            connection.half_close()
            try:
                head = connection.read_head()
            except (Closed, ConnectionError):
                continue
            assert 200 <= head.status < 500 or head.status in (501, 505), (bytes(broken), head)
    assert node.control_pid == control
    assert node.ask(model, {"echo": 2})["pid"] == pid


def test_a_request_id_is_echoed_only_if_it_is_printable(node: Node, probe: Probe):
    model = probe()
    for sent, kept in (("abc-123", True), ("x" * 128, True), ("x" * 129, False), ("with space", True), ("", False)):
        answer = node.run(model, {"echo": 1}, headers={"x-request-id": sent})
        assert (answer.headers["x-request-id"] == sent) == kept, (sent, answer.headers)
        assert answer.headers["x-request-id"]
        assert len(answer.headers["cf-ai-req-id"]) == 36
