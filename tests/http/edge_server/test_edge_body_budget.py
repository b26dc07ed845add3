"""All bodies together have a bound: who comes beyond it is told to come again, and the room comes back."""

import contextlib

import pytest

from fornada.core.requests import AnswerHead
from fornada.edge.headers import SMALL_BODY
from fornada.edge.server.bodies import STEP, Bodies
from tests.harness.client import Connection, Response, request_bytes
from tests.http.edge_server.conftest import RUN, Serve, Served
from tests.unit.edge.fakes import stay_silent, until

A = RUN + "@test/a"
MIB = 1024 * 1024
BUDGET = 4 * MIB


@pytest.fixture
def edge(serve: Serve) -> Served:
    return serve(body_bytes=BUDGET)


def body_of(size: int) -> bytes:
    return b'{"a":"' + b"x" * (size - 8) + b'"}'


def begun(edge: Served, stack: contextlib.ExitStack, size: int, sent: int) -> Connection:
    """A request of whose body `sent` bytes of `size` have been sent."""
    connection = stack.enter_context(edge.connect())
    connection.send(request_bytes(edge.address, "POST", A, None, {"content-length": str(size)}) + body_of(size)[:sent])
    return connection


def unfinished(edge: Served, stack: contextlib.ExitStack, count: int) -> list[Connection]:
    """Requests with bodies of 1 MiB that have come but for their last byte, and hold all they ever will: what was tried beside them while
    they still came would have taken the room of some, and those would have been the refused ones."""
    slow = [begun(edge, stack, MIB, MIB - 1) for _ in range(count)]
    until(lambda: edge.held_bytes() >= count * (MIB - 1), what=f"{count} unfinished bodies have come")
    return slow


def large(edge: Served, size: int = MIB, *, chunked: bool = False) -> Response:
    return edge.fetch("POST", A, body_of(size), chunked=chunked)


def fits(edge: Served) -> bool:
    return large(edge).status == 200


@pytest.mark.parametrize("chunked", [False, True])
def test_who_comes_beyond_the_bound_is_refused_early_and_told_when_to_come_again(edge: Served, chunked: bool):
    with contextlib.ExitStack() as stack:
        slow = unfinished(edge, stack, 4)
        refused = large(edge, chunked=chunked)
        assert (refused.status, refused.code) == (429, 3040)
        assert refused.headers["retry-after"] == "1" and "max_buffered" in refused.message
        assert edge.run({"small": 1}).status == 200, "small ones don't count"
        assert edge.fetch("GET", "/health/live").status == 200
        slow[0].close()
        until(lambda: fits(edge), what="who leaves gives back what it held")
    until(lambda: all(fits(edge) for _ in range(3)), what="everything has come back")


def test_a_caller_in_the_middle_is_refused_and_the_connection_goes_on(edge: Served):
    with contextlib.ExitStack() as stack:
        slow = unfinished(edge, stack, 3)
        pushy = begun(edge, stack, 8 * MIB, 4 * MIB)
        answer = pushy.read_response()
        assert (answer.status, answer.code) == (429, 3040)
        for connection in slow:
            connection.close()
        until(lambda: fits(edge), what="who leaves gives back what it held")
        pushy.send(body_of(8 * MIB)[4 * MIB :])  # what it had announced
        pushy.send_request("POST", A, body_of(MIB))
        assert pushy.read_response().status == 200


def test_a_body_counts_until_it_is_answered(edge: Served):
    edge.inference.behaviour = stay_silent
    with contextlib.ExitStack() as stack:
        waiting = []
        for _ in range(4):
            connection = stack.enter_context(edge.connect())
            connection.send_request("POST", A, body_of(MIB))
            waiting.append(connection)
        until(lambda: len(edge.inference.requests) == 4)
        assert large(edge).status == 429
        edge.tell(edge.inference.requests[0].sink.answer, AnswerHead(), b"{}")
        edge.inference.behaviour = lambda submitted: submitted.sink.answer(AnswerHead(), b"{}")
        until(lambda: fits(edge), what="an answer makes room")


def test_many_bodies_one_after_the_other_need_no_more_room_than_one(edge: Served):
    with edge.connect() as connection:
        for number in range(40):
            connection.send_request("POST", A, body_of(MIB), chunked=bool(number % 2))
            assert connection.read_response().status == 200, number


def test_pipelined_answers_that_wait_for_their_turn_give_back_too(edge: Served):
    edge.inference.behaviour = stay_silent
    with edge.connect() as connection:
        connection.send(b"".join(request_bytes(edge.address, "POST", A, body_of(MIB)) for _ in range(3)))
        until(lambda: len(edge.inference.requests) == 3)
        for number in (2, 1, 0):
            edge.tell(edge.inference.requests[number].sink.answer, AnswerHead(), b"%d" % number)
        assert [connection.read_response().status for _ in range(3)] == [200, 200, 200]
        edge.inference.behaviour = lambda submitted: submitted.sink.answer(AnswerHead(), b"{}")
        for _ in range(4):
            assert fits(edge)


def test_one_body_passes_however_small_the_bound_is(serve: Serve):
    edge = serve(body_bytes=SMALL_BODY)
    for _ in range(3):
        assert large(edge).status == 200


def test_what_is_held_is_what_was_given():
    bodies = Bodies(4 * STEP)
    one, two = bodies.hold(), bodies.hold()
    assert one.grow(1, most=3 * STEP) is None and bodies.held == STEP + 1
    assert one.grow(2 * STEP + 1, most=3 * STEP) is None and bodies.held == 3 * STEP
    assert two.grow(STEP, most=3 * STEP) is not None and bodies.held == 3 * STEP
    assert two.grow(10, most=10) is None
    del one
    assert bodies.held == 10
    del two
    assert bodies.held == 0
