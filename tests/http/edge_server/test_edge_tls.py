"""TLS at the door: handshakes that never end keep nobody out, and connections end with a word when another server takes over."""

import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import trustme

from fornada.core.requests import AnswerHead
from fornada.core.settings import ServerSettings
from fornada.edge.server.certificates import Certificates
from tests.bounds import bound
from tests.harness.client import Connection, request_bytes
from tests.http.edge_server.conftest import RUN, Served
from tests.unit.edge.fakes import stay_silent, until

A = RUN + "@test/a"
MOST = 8


class Secured(Connection):
    """A client's connection over TLS."""

    def __init__(self, edge: Served, context: ssl.SSLContext) -> None:
        super().__init__(edge.address)
        self.socket = context.wrap_socket(self.socket, server_hostname="127.0.0.1")


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def context(authority: trustme.CA) -> ssl.SSLContext:
    made = ssl.create_default_context()
    authority.configure_trust(made)
    return made


@pytest.fixture
def edge(authority: trustme.CA, tmp_path: Path) -> Iterator[Served]:
    cert = authority.issue_cert("127.0.0.1")
    cert.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "both.pem"))
    certificates = Certificates(tmp_path / "both.pem", None, told=lambda event, reason: None)
    served = Served(settings=ServerSettings(max_connections=MOST, header_timeout_s=60.0), certificates=certificates)
    served.start()
    yield served
    served.close()


def is_open(sock: socket.socket) -> bool:
    sock.setblocking(False)
    try:
        return sock.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def never(descriptor: int) -> None:
    raise AssertionError("nobody else can read what comes over it")


def test_handshakes_that_never_end_count_as_connections_and_give_way_to_those_that_do(edge: Served, context: ssl.SSLContext):
    begun = [socket.create_connection(edge.address) for _ in range(4 * MOST)]
    try:
        until(lambda: sum(map(is_open, begun)) <= MOST, what="no more than may be connected")
        assert all(map(is_open, begun[-MOST:])), "the oldest have gone"
        kept = [Secured(edge, context) for _ in range(MOST)]
        for connection in kept:
            connection.send_request("POST", A, b"{}")
            assert connection.read_response().status == 200
        until(lambda: not any(map(is_open, begun)), what="there is room for one that has just come, at most")
        with Secured(edge, context) as refused:
            assert refused.read_response().status == 503, "with words, where the room is taken by connections"
        for connection in kept:
            connection.close()
    finally:
        for sock in begun:
            sock.close()


def test_whoever_says_nothing_or_nonsense_is_let_go(edge: Served, context: ssl.SSLContext):
    with socket.create_connection(edge.address) as gone:
        pass
    with socket.create_connection(edge.address) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        until(lambda: not is_open(plain), what="the end of it")
    assert gone.fileno() == -1
    with Secured(edge, context) as connection:
        connection.send_request("POST", A, b"{}")
        assert connection.read_response().status == 200


def test_when_another_server_takes_over_each_connection_ends_with_an_answer_or_with_a_word(edge: Served, context: ssl.SSLContext):
    idle, new, busy = (Secured(edge, context) for _ in range(3))
    idle.send_request("POST", A, b"{}")
    assert "connection" not in idle.read_response().headers
    edge.inference.behaviour = stay_silent
    busy.send_request("POST", A, b"{}")
    until(lambda: len(edge.inference.requests) == 2, what="it runs")
    edge.tell(edge.server.withdraw)
    assert idle.socket.recv(1) == b"", "the end as TLS has it: recv would raise for a connection that was cut off"
    with ThreadPoolExecutor(1) as pool:
        leaving = pool.submit(lambda: edge.do(edge.server.leave(never, within_s=bound(10))))
        new.send(request_bytes(edge.address, "POST", A, b'{"n":1}'))
        until(lambda: len(edge.inference.requests) == 3, what="a first request is taken")
        for request in edge.inference.requests[1:]:
            edge.tell(request.sink.answer, AnswerHead(), b"1")
        for connection in (busy, new):
            answer = connection.read_response()
            assert (answer.status, answer.headers["connection"]) == (200, "close")
            assert connection.socket.recv(1) == b""
        for connection in (idle, new, busy):
            connection.close()
        leaving.result(bound(10))


def test_without_a_successor_new_connections_last_again(edge: Served, context: ssl.SSLContext):
    edge.tell(edge.server.withdraw)
    edge.do(edge.server.come_back([edge.listener.dup()]))
    with Secured(edge, context) as connection:
        for _ in range(2):
            connection.send_request("POST", A, b"{}")
            answer = connection.read_response()
            assert answer.status == 200 and "connection" not in answer.headers
