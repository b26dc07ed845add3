"""Connects to a service that listens on the machine's loopback: the node's own API, a database."""

import socket
from functools import partial

from fornada_sdk import Context
from tests.security.attacks.verdict import Told, Verdict, first_that_works, secret_in

WALL = "EPERM or EAFNOSUPPORT (filter), ECONNREFUSED (own network)"


def attempt(context: Context, told: Told) -> Verdict:
    def connect(port: int) -> str:
        with socket.create_connection(("127.0.0.1", port), timeout=3) as sock:
            sock.sendall(b"GET /health/live HTTP/1.0\r\nHost: localhost\r\n\r\n")
            return secret_in(sock.recv(4096))

    return first_that_works({f"port {number}": partial(connect, port) for number, port in enumerate(told["tcp_ports"])})
