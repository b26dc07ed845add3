"""Attaches a System V memory segment of another process."""

import ctypes

from fornada_sdk import Context
from tests.security.attacks.kernel import call
from tests.security.attacks.verdict import Told, Verdict, first_that_works, secret_in

WALL = "ENOENT (own IPC namespace), EPERM (the strict filter)"
READ_ONLY = 0o10000


def attempt(context: Context, told: Told) -> Verdict:
    def read() -> str:
        segment = call("shmget", told["shm_key"], 0, 0)
        address = call("shmat", segment, 0, READ_ONLY)
        return secret_in(ctypes.string_at(address, told["shm_length"]))

    return first_that_works({"shmat": read})
