"""Talks to a service over its Unix socket: an administration socket, docker.sock."""

import socket

from fornada_sdk import Context
from tests.security.attacks.verdict import Told, Verdict, first_that_works, secret_in

WALL = "ENOENT (own mounts), EPERM (the strict filter)"


def attempt(context: Context, told: Told) -> Verdict:
    def connect() -> str:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(3)
            sock.connect(told["socket_path"])
            return secret_in(sock.recv(4096))

    return first_that_works({"connect": connect})
