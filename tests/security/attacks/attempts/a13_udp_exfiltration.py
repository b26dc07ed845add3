"""Sends data away in a datagram."""

import socket

from fornada_sdk import Context
from tests.security.attacks.verdict import MARK, Told, Verdict, first_that_works

WALL = "EPERM or EAFNOSUPPORT (filter); leaves into an empty network"
SEEN_OUTSIDE = True


def attempt(context: Context, told: Told) -> Verdict:
    def send() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.sendto(MARK.encode(), ("127.0.0.1", told["udp_port"]))

    return first_that_works({"sendto": send})
