"""The runner's proxy, as far as it needs no node: what a head asks for, what libraries are told, what happens where nothing can listen."""

import subprocess
import sys

import pytest

from fornada_sdk.runner.outbound import proxy_variables
from fornada_sdk.runner.outbound_client import BadHead, Wish, read_head
from tests.bounds import bound


@pytest.mark.parametrize(
    ("head", "wish"),
    [
        (b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443", Wish("a.example", 443, b"", None)),
        (b"CONNECT [2001:db8::1]:80 HTTP/1.0", Wish("2001:db8::1", 80, b"", None)),
        (b"GET http://a.example HTTP/1.1", Wish("a.example", 80, b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n", 0)),
        (b"GET http://u:p@a.example:8080?q=1 HTTP/1.1", Wish("a.example", 8080, b"GET /?q=1 HTTP/1.1\r\nConnection: close\r\n\r\n", 0)),
        (b"GET HTTP://[::1]/x HTTP/1.1", Wish("::1", 80, b"GET /x HTTP/1.1\r\nConnection: close\r\n\r\n", 0)),
        (
            b"POST http://a.example/x HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\nProxy-Connection: keep-alive\r\nConnection: x",
            Wish("a.example", 80, b"POST /x HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\nConnection: close\r\n\r\n", 3),
        ),
        (
            b"POST http://a.example/ HTTP/1.1\r\nTransfer-Encoding: chunked",
            Wish("a.example", 80, b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n", None),
        ),
    ],
)
def test_a_head_says_where_to_and_what_goes_there(head: bytes, wish: Wish) -> None:
    assert read_head(head) == wish


@pytest.mark.parametrize(
    "head",
    [
        b"", b"GET / HTTP/1.1", b"CONNECT a.example HTTP/1.1", b"CONNECT a.example:99999999 HTTP/1.1", b"CONNECT :1 HTTP/1.1",
        b"CONNECT \xff:1 HTTP/1.1", b"GET https://a.example/ HTTP/1.1", b"GET http:///x HTTP/1.1", b"GET http://a.example:x/ HTTP/1.1",
        b"GET http://a.example/ HTTP/2", b"GET http://a.example/ x HTTP/1.1", b"POST http://a.example/ HTTP/1.1\r\nContent-Length: -1",
    ],
)  # fmt: skip
def test_what_is_no_request_to_a_proxy_is_refused(head: bytes) -> None:
    with pytest.raises(BadHead):
        read_head(head)


def test_this_machine_is_asked_directly_unless_it_is_named() -> None:
    found = proxy_variables(8080, ["api.example.com:443"])
    assert found["HTTPS_PROXY"] == found["http_proxy"] == found["ALL_PROXY"] == "http://127.0.0.1:8080"
    assert found["NO_PROXY"] == found["no_proxy"] == "localhost,127.0.0.1,::1"
    assert proxy_variables(1, ["LOCALHOST.:1", "[::1]:2"])["NO_PROXY"] == "127.0.0.1"


IN_NEED = """
import os, resource, socket, sys
from fornada_sdk.runner.outbound import open_way_out
near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
given = [near.detach()] if sys.argv[1] == "given" else []
resource.setrlimit(resource.RLIMIT_NOFILE, (far.fileno() + 1, far.fileno() + 1))
open_way_out(given, ["api.example.com:443"])
print(sorted(name for name in os.environ if name.endswith("_PROXY")))
"""


@pytest.mark.parametrize(("given", "said"), [("given", "no socket on 127.0.0.1"), ("nothing", "given no way")])
def test_where_there_can_be_no_proxy_the_model_goes_on_and_its_output_says_so(given: str, said: str) -> None:
    command = [sys.executable, "-c", IN_NEED, given]
    done = subprocess.run(command, capture_output=True, text=True, timeout=bound(30), check=True, env={"PYTHONDONTWRITEBYTECODE": "1"})
    assert said in done.stderr and done.stdout == "[]\n"
