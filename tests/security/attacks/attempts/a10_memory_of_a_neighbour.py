"""Reads another process's memory through /proc."""

import os

from fornada_sdk import Context
from tests.security.attacks.verdict import Told, Verdict, first_that_works, secret_in

WALL = "ENOENT (own pids), EACCES"


def attempt(context: Context, told: Told) -> Verdict:
    def read() -> str:
        descriptor = os.open(f"/proc/{told['neighbour_pid']}/mem", os.O_RDONLY)
        try:
            return secret_in(os.pread(descriptor, told["neighbour_length"], told["neighbour_address"]))
        finally:
            os.close(descriptor)

    return first_that_works({"read": read})
