"""Takes an open descriptor out of another process."""

import os

from fornada_sdk import Context
from tests.security.attacks.kernel import call
from tests.security.attacks.verdict import Told, Verdict, first_that_works, secret_in

WALL = "ESRCH (own pids), EPERM (filter)"


def attempt(context: Context, told: Told) -> Verdict:
    def steal() -> str:
        process = call("pidfd_open", told["neighbour_pid"], 0)
        stolen = call("pidfd_getfd", process, told["neighbour_descriptor"], 0)
        return secret_in(os.pread(stolen, 4096, 0))

    return first_that_works({"pidfd_getfd": steal})
