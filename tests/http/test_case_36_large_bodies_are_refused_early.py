"""Case 36: a body over the limit is refused early, by name of the limit, and the connection or at least the node stays usable."""

import json
import time

import pytest

from tests.bounds import bound
from tests.harness.client import Closed, request_bytes
from tests.harness.fixtures import Probe
from tests.harness.node import Node, run_path

LIMIT = 256 * 1024


@pytest.fixture
def model(node: Node, probe: Probe) -> str:
    name = probe(serving={"max_body": "256KiB"})
    node.load(name)
    return name


def body_of(size: int) -> bytes:
    frame = len(json.dumps({"echo": ""}))
    return json.dumps({"echo": "x" * (size - frame)}).encode()


@pytest.mark.parametrize("chunked", [False, True])
def test_limit_minus_one_and_the_limit_pass_and_one_more_doesn_t(node: Node, model: str, chunked: bool):
    for size in (LIMIT - 1, LIMIT):
        answer = node.fetch("POST", run_path(model), body_of(size), chunked=chunked)
        assert len(answer.result["echo"]) == size - 12
    answer = node.fetch("POST", run_path(model), body_of(LIMIT + 1), chunked=chunked)
    assert (answer.status, answer.code) == (413, 3006), answer.body
    assert "256 KiB" in answer.message or str(LIMIT) in answer.message, "the limit is named"


def test_the_refusal_comes_before_the_body(node: Node, model: str):
    with node.connect() as connection:
        head = request_bytes(node.address, "POST", run_path(model), None, {"content-length": str(LIMIT * 1000)})
        connection.send(head)
        answer = connection.read_response()
        assert (answer.status, answer.code) == (413, 3006)
        assert answer.took_s < bound(0.5)


def test_a_chunked_body_is_refused_as_soon_as_it_is_too_long(node: Node, model: str):
    with node.connect() as connection:
        connection.send(request_bytes(node.address, "POST", run_path(model), None, {"transfer-encoding": "chunked"}))
        piece = b"%x\r\n%s\r\n" % (65536, b"x" * 65536)
        connection.send(b'7\r\n{"a": "\r\n')
        try:
            for _ in range(2 * LIMIT // 65536):
                connection.send(piece)
                time.sleep(0.01)
        except ConnectionError:
            pass
        answer = connection.read_response()
        assert (answer.status, answer.code) == (413, 3006)


def test_a_refused_body_leaves_the_connection_usable_or_closed_never_confused(node: Node, model: str):
    with node.connect() as connection:
        connection.send_request("POST", run_path(model), body_of(LIMIT + 1000))
        assert connection.read_response().status == 413
        try:
            connection.send_request("POST", run_path(model), b'{"echo": "after"}')
            answer = connection.read_response()
        except (Closed, ConnectionError):
            return
        assert answer.result["echo"] == "after"


def test_expect_100_continue_is_answered_at_once_or_refused_without_the_body(node: Node, model: str):
    body = body_of(LIMIT)
    with node.connect() as connection:
        connection.send(
            request_bytes(node.address, "POST", run_path(model), None, {"content-length": str(len(body)), "expect": "100-continue"})
        )
        assert connection.read_head().status == 100
        connection.send(body)
        assert connection.read_response().status == 200
    with node.connect() as connection:
        connection.send(
            request_bytes(node.address, "POST", run_path(model), None, {"content-length": str(LIMIT + 1), "expect": "100-continue"})
        )
        head = connection.read_head()
        assert head.status == 413, "no 100 for what won't be taken"


def test_a_length_longer_than_the_body_is_a_caller_who_left(node: Node, model: str):
    with node.connect(timeout_s=3) as connection:
        connection.send(request_bytes(node.address, "POST", run_path(model), b'{"echo": 1}', {"content-length": "500"}))
        connection.half_close()
        rest = connection.rest()
    assert not rest or rest.startswith(b"HTTP/1.1 400")


def test_what_follows_a_body_is_no_part_of_it(node: Node, model: str):
    with node.connect() as connection:
        connection.send(request_bytes(node.address, "POST", run_path(model), b'{"echo": 1}trailing\r\n\r\n', {"content-length": "11"}))
        assert connection.read_response().result["echo"] == 1
        rest = connection.rest()
    assert not rest or rest.startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("lie", ["-1", "1e3", "0x10", "11, 12", "99999999999999999999", "+11"])
def test_a_length_that_is_no_length_is_refused(node: Node, model: str, lie: str):
    answer = node.fetch("POST", run_path(model), b'{"echo": 1}', headers={"content-length": lie})
    assert answer.status in (400, 413), answer.body


def test_a_slow_upload_is_served_and_holds_nobody_up(node: Node, model: str):
    body = body_of(20_000)
    with node.connect() as connection:
        connection.send(request_bytes(node.address, "POST", run_path(model), None, {"content-length": str(len(body))}))
        connection.send_slowly(body[:10_000], piece=1000, pause_s=0.05)
        quick = node.run(model, {"echo": "quick"})
        assert quick.result["echo"] == "quick" and quick.took_s < bound(0.5)
        connection.send_slowly(body[10_000:], piece=2000, pause_s=0.02)
        assert len(connection.read_response().result["echo"]) == 20_000 - 12


def test_a_body_of_many_packets_comes_and_goes_whole(node: Node, probe: Probe):
    model = probe(serving={"max_body": "12MiB"})
    text = "".join(chr(0x21 + number % 90) for number in range(100_000)) * 30
    assert node.ask(model, {"echo": text}, timeout_s=60)["echo"] == text
    assert len(node.ask(model, {"big_out_mb": 8}, timeout_s=60)["big"]) == 8_000_000
