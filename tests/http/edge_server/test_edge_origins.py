"""Open mode: this machine's programs and pages, nobody else's."""

import pytest

from tests.http.edge_server.conftest import RUN, Serve, Served

A = RUN + "@test/a"


@pytest.mark.parametrize("path", [A, "/v1/embeddings", "/api/v1/models/@test/a/load", "/nothing"])
@pytest.mark.parametrize("name", ["host", "origin"])
def test_a_foreign_host_or_origin_is_refused_everywhere(edge: Served, path: str, name: str):
    for value in (
        ("evil.example", "127.0.0.1.evil.example", "10.0.0.1", "null") if name == "host" else ("https://evil.example", "null", "file://")
    ):
        response = edge.fetch("POST", path, b"{}", headers={name: value})
        assert (response.status, response.code) == (403, 3105), value
        assert "access-control-allow-origin" not in response.headers
    assert edge.inference.requests == [] and edge.operations.done == []


def test_a_local_page_may_read_what_it_gets(edge: Served):
    for origin in ("http://localhost:3000", "http://127.0.0.1", "https://[::1]:8", "http://app.localhost"):
        response = edge.run({}, headers={"origin": origin})
        assert response.headers["access-control-allow-origin"] == origin
        assert "origin" in response.headers["vary"]
        for path in ("/api/v1/models", "/nothing"):
            assert edge.fetch("GET", path, headers={"origin": origin}).headers["access-control-allow-origin"] == origin
    assert "access-control-allow-origin" not in edge.run({}).headers


def test_a_preflight_is_answered_for_whom_it_may_be(serve: Serve):
    edge = serve(cors=["https://app.example"])
    wish = {"access-control-request-method": "POST", "access-control-request-headers": "authorization, content-type"}
    for path in (A, "/v1/embeddings", "/api/v1/models", "/nothing"):
        response = edge.fetch("OPTIONS", path, headers={**wish, "origin": "https://app.example"})
        assert response.status == 204
        assert response.headers["access-control-allow-origin"] == "https://app.example"
        assert "POST" in response.headers["access-control-allow-methods"]
        assert response.headers["access-control-allow-headers"] == "authorization, content-type"
        assert edge.fetch("OPTIONS", path, headers={**wish, "origin": "https://other.example"}).status == 403
    assert edge.run({}, headers={"origin": "https://app.example"}).status == 200


def test_headers_that_change_on_one_connection_are_seen(edge: Served):
    with edge.connect() as connection:
        for origin, status in (("http://localhost", 200), ("https://evil.example", 403), ("http://localhost", 200), ("", 200)):
            connection.send_request("POST", A, b"{}", {"origin": origin})
            assert connection.read_response().status == status


def test_two_hosts_or_none_are_refused(edge: Served):
    for head in (b"GET /health/live HTTP/1.1\r\n\r\n", b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n"):
        with edge.connect() as connection:
            connection.send(head)
            assert connection.read_response(of="GET").status == 400
