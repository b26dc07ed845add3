"""Talks to another process over a Unix socket without a path."""

import socket

from fornada_sdk import Context
from tests.security.attacks.verdict import Told, Verdict, first_that_works, secret_in

WALL = "ECONNREFUSED (own network), EPERM (Landlock's scope, the strict filter)"


def attempt(context: Context, told: Told) -> Verdict:
    def connect() -> str:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(3)
            sock.connect(f"\0{told['abstract_socket']}")
            return secret_in(sock.recv(4096))

    return first_that_works({"connect": connect})
