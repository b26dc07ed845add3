"""HTTP/1.1 as hostile and hurried clients speak it."""

import json
import socket
import time

import pytest

from fornada.core.requests import AnswerHead
from tests.bounds import bound
from tests.harness.client import Closed, request_bytes
from tests.http.edge_server.conftest import RUN, Serve, Served
from tests.unit.edge.fakes import stay_silent, until

A = RUN + "@test/a"


def test_an_answer_is_enveloped_and_carries_its_ids(edge: Served):
    response = edge.run({"x": 1})
    assert response.result == {"echo": {"x": 1}, "files": {}}
    assert response.headers["content-type"] == "application/json"
    assert len(response.headers["cf-ai-req-id"]) == 36
    assert response.headers["x-request-id"] == response.headers["cf-ai-req-id"]
    assert "date" in response.headers


def test_a_connection_is_kept_and_used_again(edge: Served):
    with edge.connect() as connection:
        for number in range(20):
            connection.send_request("POST", A, json.dumps({"n": number}).encode())
            assert connection.read_response().result["echo"] == {"n": number}
        connection.send_request("GET", "/health/live")
        assert connection.read_response(of="GET").status == 200


def test_a_caller_that_says_close_is_closed(edge: Served):
    with edge.connect() as connection:
        connection.send_request("POST", A, b"{}", {"connection": "close"})
        assert connection.read_response().headers["connection"] == "close"
        assert connection.at_end(within_s=2)


def test_http_1_0_is_spoken(edge: Served):
    with edge.connect() as connection:
        connection.send(b"POST %b HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}" % A.encode())
        assert connection.read_response().status == 200
        assert connection.at_end(within_s=2)
    with edge.connect() as connection:
        for _ in range(2):
            connection.send(b"GET /health/live HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            assert connection.read_response().headers["connection"] == "keep-alive"


def test_pipelined_requests_run_side_by_side_and_are_answered_in_order(edge: Served):
    edge.inference.behaviour = stay_silent
    with edge.connect() as connection:
        connection.send(b"".join(request_bytes(edge.address, "POST", A, b'{"n":%d}' % number) for number in range(5)))
        until(lambda: len(edge.inference.requests) == 5, what="all five run")
        for number in (3, 1, 4, 0, 2):
            edge.tell(edge.inference.requests[number].sink.answer, AnswerHead(), b"%d" % number)
        assert [connection.read_response().result for _ in range(5)] == [0, 1, 2, 3, 4]


def test_what_is_pipelined_behind_an_operators_request_waits_for_it(edge: Served):
    edge.inference.behaviour = stay_silent
    run = request_bytes(edge.address, "POST", A, b"{}")
    with edge.connect() as connection:
        connection.send(run + request_bytes(edge.address, "POST", "/api/v1/models/@test/a/load", b"") + run)
        until(lambda: len(edge.inference.requests) == 1, what="the first runs")
        assert edge.operations.done == []
        edge.tell(edge.inference.requests[0].sink.answer, AnswerHead(), b"1")
        assert connection.read_response().result == 1
        assert connection.read_response().json()["name"] == "@test/a"
        until(lambda: len(edge.inference.requests) == 2, what="the last runs")
        edge.tell(edge.inference.requests[1].sink.answer, AnswerHead(), b"2")
        assert connection.read_response().result == 2


def test_a_thousand_requests_in_one_packet_are_bounded_and_all_answered(edge: Served):
    with edge.connect(timeout_s=20) as connection:
        connection.send(request_bytes(edge.address, "POST", A, b"{}") * 1000)
        assert [connection.read_response().status for _ in range(1000)] == [200] * 1000
    edge.inference.behaviour = stay_silent
    with edge.connect() as connection:
        connection.send(request_bytes(edge.address, "POST", A, b"{}") * 500)
        until(lambda: len(edge.inference.requests) >= 1064, what="64 of them run")
        assert len(edge.inference.requests) == 1064


@pytest.mark.parametrize("way", ["fin", "half-close", "reset"])
@pytest.mark.parametrize("stream", [False, True])
def test_leaving_is_told_to_every_request_of_the_connection(edge: Served, way: str, stream: bool):
    edge.inference.behaviour = stay_silent
    with edge.connect() as connection:
        connection.send(request_bytes(edge.address, "POST", A, json.dumps({"stream": stream}).encode()) * 70)
        until(lambda: len(edge.inference.requests) == 64, what="as many run as may")
        if stream:
            edge.tell(edge.inference.requests[0].sink.stream_begins, AnswerHead())
            edge.tell(edge.inference.requests[0].sink.item, b"{}")
            connection.read_head()
        began = time.monotonic()
        match way:
            case "fin":
                connection.close()
            case "half-close":
                connection.half_close()
            case "reset":
                connection.reset()
        until(lambda: all(request.left for request in edge.inference.requests), what="all are told")
        assert time.monotonic() - began < bound(0.5)
    assert len(edge.inference.requests) == 64, "what waited on the connection was never run"


def test_a_caller_that_left_hears_nothing_more(edge: Served):
    edge.inference.behaviour = stay_silent
    with edge.connect() as connection:
        connection.send_request("POST", A, b"{}")
        until(lambda: edge.inference.requests)
        connection.half_close()
        until(lambda: edge.inference.last.left)
        edge.tell(edge.inference.last.sink.answer, AnswerHead(), b"1")
        assert connection.rest() == b""


def test_chunked_bodies_come_whole_whatever_their_pieces(edge: Served):
    body = json.dumps({"text": "ü" * 3000}).encode()
    for size in (1, 7, 4096):
        with edge.connect() as connection:
            connection.send(request_bytes(edge.address, "POST", A, body, chunked=True, chunk=size))
            assert connection.read_response().result["echo"] == {"text": "ü" * 3000}


def test_a_request_may_come_byte_by_byte(edge: Served):
    with edge.connect() as connection:
        for byte in request_bytes(edge.address, "POST", A, b'{"a":1}', {"x-request-id": "slow"}):
            connection.send(bytes([byte]))
        response = connection.read_response()
    assert response.result["echo"] == {"a": 1}
    assert response.headers["x-request-id"] == "slow"


def test_heads_in_two_pieces_never_add_up_to_one_that_is_too_large(edge: Served):
    request = request_bytes(edge.address, "POST", A, b"{}", {"x": "y" * 5000})
    with edge.connect() as connection:
        for _ in range(20):
            connection.send(request[:4000])
            time.sleep(0.002)  # the case itself: a packet of its own
            connection.send(request[4000:])
            assert connection.read_response().status == 200


def test_trailers_and_chunk_extensions_are_skipped_and_bounded(edge: Served):
    head = request_bytes(edge.address, "POST", A, None, {"transfer-encoding": "chunked"})
    with edge.connect() as connection:
        for _ in range(2):
            connection.send(head + b'2;note="a"\r\n{}\r\n0\r\nX-Trailer: 1\r\n\r\n')
            assert connection.read_response().status == 200
    with edge.connect() as connection:
        connection.send(head + b"2\r\n{}\r\n0\r\n")
        with pytest.raises((AssertionError, OSError)):  # one of the two ends first: we stop, or it hangs up
            for _ in range(5000):
                connection.send(b"X-Trailer: " + b"t" * 100 + b"\r\n")
            raise AssertionError("endless trailers")
        try:
            assert connection.read_response().status == 431
        except (Closed, ConnectionError):
            pass


@pytest.mark.parametrize(
    "fields",
    [
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        b"Content-Length: 5\r\nContent-Length: 6\r\n",
        b"Content-Length: 5\r\nContent-Length: 5\r\n",
        b"Content-Length: 5, 5\r\n",
        b"Content-Length: +5\r\n",
        b"Content-Length: 0x5\r\n",
        b"Content-Length : 5\r\n",
        b"Content-Length:\r\n",
        b"Transfer-Encoding: xchunked\r\n",
        b"Transfer-Encoding: identity\r\n",
        b"Transfer-Encoding: gzip, chunked\r\n",
        b"Transfer-Encoding: chunked, identity\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        b"Transfer-Encoding:\x0bchunked\r\n",
        b"Transfer-Encoding\x00: chunked\r\n",
        b"X: a\r\n folded\r\n",
        b"X: a\rContent-Length: 5\r\n",
    ],
)
def test_a_body_whose_end_is_doubtful_is_refused_and_the_connection_ended(edge: Served, fields: bytes):
    hidden = b"0\r\n\r\nGET /api/v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with edge.connect() as connection:
        connection.send(b"POST " + A.encode() + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n" + fields + b"\r\n" + hidden)
        rest = connection.rest()
    assert rest.startswith(b"HTTP/1.1 400"), rest
    assert rest.count(b"HTTP/1.1 ") == 1 and b"connection: close" in rest
    assert edge.inference.requests == []


def test_http_1_0_with_chunks_is_refused(edge: Served):
    with edge.connect() as connection:
        connection.send(b"POST " + A.encode() + b" HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
        assert connection.read_response().status == 400
        assert connection.at_end(within_s=3)


def test_garbage_after_a_good_request_doesnt_cost_its_answer(edge: Served):
    edge.inference.behaviour = stay_silent
    with edge.connect() as connection:
        connection.send(request_bytes(edge.address, "POST", A, b"{}") + b"\x16\x03\x01 no http\r\n\r\n")
        until(lambda: edge.inference.requests)
        edge.tell(edge.inference.last.sink.answer, AnswerHead(), b"1")
        assert connection.read_response().result == 1
        assert connection.read_response().status == 400
        assert connection.at_end(within_s=3)


@pytest.mark.parametrize(
    "request_line",
    [
        b"GET / HTTP/2.0",
        b"GET / HTTP/0.9",
        b"PRI * HTTP/2.0",
        b"BREW / HTTP/1.1",
        b"GET",
        b"CONNECT a:1 HTTP/1.1",
        b"CONNECT / HTTP/1.1",
        b"GET foo HTTP/1.1",
    ],
)
def test_what_is_no_request_of_ours_is_a_400(edge: Served, request_line: bytes):
    with edge.connect() as connection:
        connection.send(request_line + b"\r\nHost: 127.0.0.1\r\n\r\n")
        response = connection.read_response()
        assert response.status == 400
        assert response.json()["success"] is False


def test_an_upgrade_is_ignored_and_the_body_is_kept(edge: Served):
    """Java's HttpClient wishes for h2c with every first request."""
    wish = {"connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c", "http2-settings": "AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA"}
    with edge.connect() as connection:
        for number in range(2):
            connection.send_request("POST", A, json.dumps({"n": number}).encode(), wish)
            assert connection.read_response().result["echo"] == {"n": number}
        connection.send_request("GET", "/health/live", None, {"connection": "upgrade", "upgrade": "websocket"})
        assert connection.read_response(of="GET").status == 200
        body = b'{"n":9}'
        connection.send(request_bytes(edge.address, "POST", A, body, wish)[:-3])
        connection.send(body[-3:])
        assert connection.read_response().result["echo"] == {"n": 9}


def test_a_path_in_unicode_is_understood_as_curl_sends_it(edge: Served):
    edge.catalog.add("@test/pão")
    with edge.connect() as connection:
        connection.send(f"POST {RUN}@test/pão HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{{}}".encode())
        assert connection.read_response().status == 200


def test_an_absolute_target_counts_before_the_host(edge: Served):
    with edge.connect() as connection:
        connection.send(b"GET http://localhost:1/health/live?x HTTP/1.1\r\nHost: evil.example\r\n\r\n")
        assert connection.read_response(of="GET").status == 200
        connection.send(b"GET http://evil.example/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.read_response(of="GET").status == 403


@pytest.mark.parametrize("form", ["one line", "many lines", "target", "unfinished"])
def test_heads_over_the_limit_are_431(edge: Served, form: str):
    fields = {
        "one line": b"X: " + b"x" * 40_000 + b"\r\n\r\n",
        "many lines": b"".join(b"X-%d: y\r\n" % number for number in range(4000)) + b"\r\n",
        "target": b"\r\n",
        "unfinished": b"X: " + b"x" * 40_000,
    }[form]
    target = b"/" + (b"t" * 40_000 if form == "target" else b"health/live")
    with edge.connect() as connection:
        connection.send(b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\n" + fields)
        response = connection.read_response(of="GET")
        assert (response.status, response.code) == (431, 3005)
        assert "32" in response.message
        assert connection.at_end(within_s=3)
    assert edge.fetch("GET", "/health/live", headers={"x": "y" * 30_000}).status == 200


def test_bodies_may_be_larger_than_heads(edge: Served):
    with edge.connect() as connection:
        for _ in range(3):
            body = json.dumps({"text": "x" * 300_000}).encode()
            connection.send_request("POST", A, body, chunked=True)
            assert connection.read_response().status == 200
        connection.send(request_bytes(edge.address, "POST", A, body) * 3)
        assert [connection.read_response().status for _ in range(3)] == [200] * 3


def test_silence_is_ended_as_the_settings_say(serve: Serve):
    edge = serve(header_timeout_s=0.5, body_timeout_s=0.5, idle_timeout_s=0.5)
    with edge.connect() as head, edge.connect() as body, edge.connect() as idle, edge.connect() as silent, edge.connect() as waiting:
        edge.inference.behaviour = stay_silent
        waiting.send_request("POST", A, b"{}")
        head.send(b"GET / HTTP/1.1\r\nHost")
        body.send(request_bytes(edge.address, "POST", A, None, {"content-length": "10"}) + b"{")
        idle.send_request("GET", "/health/live")
        assert idle.read_response(of="GET").status == 200
        for connection in (head, silent, body):
            response = connection.read_response()
            assert (response.status, response.code) == (408, 3007)
            assert connection.at_end(within_s=3)
        assert idle.at_end(within_s=3)
        edge.tell(edge.inference.last.sink.answer, AnswerHead(), b"1")
        assert waiting.read_response().result == 1, "who waits for an answer isn't silent"


def test_a_byte_now_and_then_doesnt_stretch_the_time_for_headers(serve: Serve):
    edge = serve(header_timeout_s=0.6)
    began = time.monotonic()
    with edge.connect() as connection:
        connection.send(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nX: ")
        connection.socket.settimeout(0.1)
        while time.monotonic() - began < bound(4):
            try:
                connection.send(b"x")
                if connection.socket.recv(1, socket.MSG_PEEK):
                    break
            except TimeoutError:
                continue
        connection.socket.settimeout(bound(5))
        assert connection.read_response(of="GET").status == 408
    assert time.monotonic() - began < bound(2)


def test_more_connections_than_allowed_are_refused_politely(serve: Serve):
    edge = serve(max_connections=3)
    held = [edge.connect() for _ in range(3)]
    try:
        for connection in held:
            connection.send_request("GET", "/health/live")
            assert connection.read_response(of="GET").status == 200
        with edge.connect() as connection:
            response = connection.read_response()
            assert (response.status, response.code) == (503, 3100)
            assert response.headers["retry-after"] == "1"
    finally:
        for connection in held:
            connection.close()

    def served() -> bool:
        return edge.fetch("GET", "/health/live").status == 200

    until(served, what="there is room again")


def test_a_bug_on_the_hot_path_is_a_500_and_the_end_of_its_connection(edge: Served):
    def breaks(_submitted: object) -> None:
        raise ZeroDivisionError("quoting the request: sesame")

    edge.inference.behaviour = breaks
    with edge.connect() as connection:
        connection.send_request("POST", A, b"{}")
        response = connection.read_response()
        assert (response.status, response.code) == (500, 3199)
        assert b"sesame" not in response.body
        assert connection.at_end(within_s=3)
    assert edge.fetch("GET", "/health/live").status == 200
