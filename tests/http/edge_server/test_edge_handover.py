"""A server gives its connections to another one: between two requests, and at no other time."""

import asyncio
import json
import socket
import time
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from fornada.core.requests import AnswerHead
from fornada.edge.server.server import LEAVE_LOOK_S
from fornada_sdk.wire.messages import TEXT
from tests.bounds import bound
from tests.harness.client import Closed, request_bytes
from tests.harness.sockets import unread, wait_read
from tests.harness.websocket import WebSocket
from tests.http.edge_server.conftest import RUN, Serve, Served
from tests.unit.edge.fakes import answer, stay_silent, until

A = RUN + "@test/a"
LARGE = 8 * 1024 * 1024


class Two:
    """A server that leaves, and its successor."""

    def __init__(self, old: Served, new: Served) -> None:
        self.old = old
        self.new = new
        self.given: list[int] = []
        self._pool = ThreadPoolExecutor(1)

    def withdraw(self) -> None:
        self.old.tell(self.old.server.withdraw)

    def leave(self, within_s: float = 10) -> "Future[None]":
        """What happens to connections from now on; done when there are none any more."""
        return self._pool.submit(lambda: self.old.do(self.old.server.leave(self._give, within_s=within_s)))

    def look_often(self) -> None:
        """Goes on when who leaves has looked at its connections several times, and read what it reads."""
        self.old.do(asyncio.sleep(5 * LEAVE_LOOK_S))

    def _give(self, descriptor: int) -> None:
        self.given.append(descriptor)
        self.new.tell(self.new.loop.create_task, self.new.server.adopt(descriptor))


@pytest.fixture
def two(serve: Serve) -> Two:
    return Two(serve(), serve())


def test_a_connection_that_rests_goes_over_with_what_has_come_meanwhile(two: Two):
    with two.old.connect() as used, two.old.connect() as fresh:
        used.send_request("POST", A, b"{}")
        assert used.read_response().status == 200
        two.withdraw()
        used.send_request("POST", A, b'{"n":1}')
        fresh.send_request("POST", A, b'{"n":2}')
        two.look_often()
        assert unread(used.socket) > 0 and unread(fresh.socket) > 0, "it reads nothing any more"
        assert len(two.old.inference.requests) == 1
        leaving = two.leave()
        assert used.read_response().result["echo"] == {"n": 1}
        assert fresh.read_response().result["echo"] == {"n": 2}
        leaving.result(bound(5))
        assert len(two.new.inference.requests) == 2
        for number in range(20):
            used.send_request("POST", A, b'{"n":%d}' % number)
            assert used.read_response().result["echo"] == {"n": number}
        used.close()
        fresh.close()
    until(lambda: not two.new.connections(), what="the successor sees that they have gone")


@pytest.mark.parametrize("cut", [1, 20, -3])
def test_a_request_that_had_begun_is_answered_where_it_began(two: Two, cut: int):
    whole = request_bytes(two.old.address, "POST", A, b'{"half":1}')
    with two.old.connect() as connection:
        connection.send(whole[:cut])
        wait_read(connection.socket)
        two.withdraw()
        leaving = two.leave()
        two.look_often()
        assert not two.given
        connection.send(whole[cut:])
        assert connection.read_response().result["echo"] == {"half": 1}
        assert len(two.old.inference.requests) == 1
        leaving.result(bound(5))
        connection.send(whole)
        assert connection.read_response().result["echo"] == {"half": 1}
        assert (len(two.old.inference.requests), len(two.new.inference.requests)) == (1, 1)


def test_what_runs_is_answered_and_what_was_pipelined_behind_it(two: Two):
    two.old.inference.behaviour = stay_silent
    with two.old.connect() as connection:
        connection.send(b"".join(request_bytes(two.old.address, "POST", A, b'{"n":%d}' % number) for number in range(3)))
        until(lambda: len(two.old.inference.requests) == 3, what="all run")
        two.withdraw()
        leaving = two.leave()
        connection.send(request_bytes(two.old.address, "POST", A, b'{"n":3}')[:30])
        wait_read(connection.socket)
        connection.send(request_bytes(two.old.address, "POST", A, b'{"n":3}')[30:])
        until(lambda: len(two.old.inference.requests) == 4, what="it came while others ran")
        assert not leaving.done()
        for number in range(4):
            two.old.tell(two.old.inference.requests[number].sink.answer, AnswerHead(), b"%d" % number)
            assert connection.read_response().result == number
        leaving.result(bound(5))
        connection.send_request("POST", A, b'{"n":4}')
        assert connection.read_response().result["echo"] == {"n": 4}
    assert len(two.new.inference.requests) == 1


def test_a_long_answer_leaves_before_its_connection_does(two: Two):
    two.old.inference.behaviour = answer(json.dumps("x" * LARGE).encode())
    with two.old.connect(receive_buffer=4096) as connection:
        connection.send_request("POST", A, b"{}")
        until(lambda: two.old.inference.requests, what="it is answered")
        two.withdraw()
        leaving = two.leave()
        two.look_often()
        assert not two.given
        assert len(connection.read_response().result) == LARGE
        leaving.result(bound(5))
        connection.send_request("POST", A, b'{"n":1}')
        assert connection.read_response().result["echo"] == {"n": 1}


def test_without_a_successor_everything_goes_on(two: Two):
    with two.old.connect() as used, two.old.connect() as half:
        used.send_request("POST", A, b"{}")
        assert used.read_response().status == 200
        half.send(request_bytes(two.old.address, "POST", A, b"{}")[:10])
        wait_read(half.socket)
        two.withdraw()
        used.send_request("POST", A, b'{"n":1}')
        two.old.do(two.old.server.come_back([two.old.listener.dup()]))
        assert used.read_response().result["echo"] == {"n": 1}
        half.send(request_bytes(two.old.address, "POST", A, b"{}")[10:])
        assert half.read_response().status == 200
        assert two.old.run({"n": 1}).status == 200
        used.send_request("POST", A, b'{"n":2}')
        assert used.read_response().result["echo"] == {"n": 2}


def test_an_operators_change_is_seen_and_refused_between_the_two(two: Two):
    two.old.catalog.add("@test/slow")
    load = request_bytes(two.old.address, "POST", "/api/v1/models/@test/slow/load", b"")
    with two.old.connect() as connection:
        connection.send(load)
        until(lambda: two.old.operations.done, what="it runs")
        assert two.old.server.changes
    until(lambda: not two.old.server.changes, what="its caller has gone")
    two.old.inference.behaviour = stay_silent
    with two.old.connect() as connection:
        connection.send(request_bytes(two.old.address, "POST", A, b"{}"))
        until(lambda: two.old.inference.requests, what="it runs")
        assert not two.old.server.changes
        two.withdraw()
        connection.send(load)
        wait_read(connection.socket)
        two.old.tell(two.old.inference.last.sink.answer, AnswerHead(), b"1")
        assert connection.read_response().result == 1
        refused = connection.read_response()
        assert refused.status == 503 and "upgraded" in refused.body.decode() and refused.headers["retry-after"]


def test_who_follows_logs_is_cut_off_soon_and_who_never_ends_at_last(two: Two):
    two.old.operations.goes_on = True
    two.old.inference.behaviour = stay_silent
    with two.old.connect() as follower, two.old.connect() as caller:
        follower.send_request("GET", "/api/v1/events")
        head = follower.read_head()
        assert head.status == 200 and head.chunked
        caller.send_request("POST", A, b"{}")
        until(lambda: two.old.inference.requests, what="it runs")
        two.withdraw()
        began = time.monotonic()
        leaving = two.leave(within_s=2)
        with pytest.raises((Closed, ConnectionResetError)):
            list(follower.read_chunks())
        leaving.result(bound(5))
        assert time.monotonic() - began >= 2
        two.old.stop()
        assert caller.at_end(within_s=2)


def test_the_listening_socket_stays_open_for_who_has_a_copy(two: Two):
    copy = two.old.listener.dup()
    two.withdraw()
    with socket.create_connection(two.old.address, timeout=bound(2)) as waiting, copy:
        copy.settimeout(bound(2))
        accepted, peer = copy.accept()
        assert peer == waiting.getsockname()
        accepted.close()


def test_a_conversation_goes_on_until_another_one_serves_and_is_then_ended_with_1012(two: Two):
    two.old.inference.behaviour = lambda submitted: submitted.sink.listens(0)  # type: ignore[attr-defined]
    with WebSocket(two.old.address, A) as talk, WebSocket(two.old.address, A) as other:
        two.withdraw()
        talk.send("still there?")
        until(lambda: two.old.inference.requests[0].said == [(TEXT, b"still there?")])
        leaving = two.leave()
        assert (talk.end().code, other.end().code) == (1012, 1012)
        leaving.result(bound(10))
    assert two.given == []
    assert all(submitted.left for submitted in two.old.inference.requests)
