"""Sends a signal to every process that there is. SIGCONT: a wall that holds it back holds SIGKILL back too, and nothing dies."""

import os
import signal

from fornada_sdk import Context
from tests.security.attacks.verdict import Told, Verdict, first_that_works

WALL = "ESRCH: there is nobody else (own pids)"
SEEN_OUTSIDE = True


def attempt(context: Context, told: Told) -> Verdict:
    return first_that_works({"kill(-1)": lambda: os.kill(-1, signal.SIGCONT)})
