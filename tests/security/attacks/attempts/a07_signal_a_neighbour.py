"""Sends a signal to another process of the same user."""

import os
import signal

from fornada_sdk import Context
from tests.security.attacks.verdict import Told, Verdict, first_that_works

WALL = "ESRCH (own pids) or EPERM (Landlock's scope, the strict filter)"
SEEN_OUTSIDE = True


def attempt(context: Context, told: Told) -> Verdict:
    return first_that_works({"kill": lambda: os.kill(told["neighbour_pid"], signal.SIGUSR1)})
