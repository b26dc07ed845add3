"""A bug of ours ends the connection that met it, but in order: each request before it is answered, and so is its own."""

from tests.harness.client import request_bytes
from tests.http.edge_server.conftest import RUN, Served
from tests.unit.edge.fakes import Submitted, echo


def breaks_on_demand(submitted: Submitted) -> None:
    if b"break" in b"".join(submitted.request.body):
        raise KeyError("nobody thought of this")
    echo(submitted)


def runs(edge: Served, *bodies: bytes) -> list[bytes]:
    return [request_bytes(edge.address, "POST", RUN + "@test/a", body) for body in bodies]


def test_what_came_before_a_fault_is_answered(edge: Served):
    edge.inference.behaviour = breaks_on_demand
    with edge.connect() as connection:
        connection.send(b"".join(runs(edge, b'{"n":1}', b'{"n":"break"}', b'{"n":3}')))
        answers = [connection.read_response() for _ in range(2)]
        assert connection.at_end(within_s=3)
    assert [answer.status for answer in answers] == [200, 500]
    assert answers[1].json()["errors"][0]["message"].startswith("AiError: AiError: the server failed")


def test_a_fault_of_a_request_that_waited_for_its_turn_is_told_too(edge: Served):
    edge.inference.behaviour = breaks_on_demand
    with edge.connect() as connection:
        connection.send(b"".join([request_bytes(edge.address, "GET", "/health/live"), *runs(edge, b'{"n":"break"}', b'{"n":3}')]))
        answers = [connection.read_response() for _ in range(2)]
        assert connection.at_end(within_s=3)
    assert [answer.status for answer in answers] == [200, 500]
