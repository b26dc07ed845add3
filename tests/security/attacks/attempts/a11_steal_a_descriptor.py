"""Takes an open descriptor out of another process."""

import os
from functools import partial

from fornada_sdk import Context
from tests.security.attacks.kernel import call, own_sockets, peer_of
from tests.security.attacks.verdict import Told, Verdict, first_that_works, secret_in

WALL = "ESRCH (own pids), EPERM (filter)"


def attempt(context: Context, told: Told) -> Verdict:
    def steal(process: int, descriptor: int) -> int:
        try:
            return call("pidfd_getfd", process, descriptor, 0)
        finally:
            os.close(process)

    def read() -> str:
        neighbour = call("pidfd_open", told["neighbour_pid"], 0)
        return secret_in(os.pread(steal(neighbour, told["neighbour_descriptor"]), 4096, 0))

    def steal_from_peer(number: int) -> None:
        os.close(steal(peer_of(number), 0))

    peers = {f"peer({number})": partial(steal_from_peer, number) for number in own_sockets()}
    return first_that_works({"neighbour": read, "parent": lambda: os.close(steal(call("pidfd_open", os.getppid(), 0), 0)), **peers})
