"""Takes an open descriptor out of another process."""

import os

from fornada_sdk import Context
from tests.security.attacks.kernel import call
from tests.security.attacks.verdict import Told, Verdict, first_that_works, secret_in

WALL = "ESRCH (own pids), EPERM (filter)"


def attempt(context: Context, told: Told) -> Verdict:
    def steal(pid: int, descriptor: int) -> int:
        process = call("pidfd_open", pid, 0)
        try:
            return call("pidfd_getfd", process, descriptor, 0)
        finally:
            os.close(process)

    def read() -> str:
        return secret_in(os.pread(steal(told["neighbour_pid"], told["neighbour_descriptor"]), 4096, 0))

    return first_that_works({"neighbour": read, "parent": lambda: os.close(steal(os.getppid(), 0))})
