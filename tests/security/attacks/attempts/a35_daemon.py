"""Leaves a process behind that outlives the model."""

import os
import sys

from fornada_sdk import Context
from tests.security.attacks.verdict import MARK, Told, Verdict, first_that_works

WALL = "it ends with the pid namespace, or is swept up"
SEEN_OUTSIDE = True
OUTLIVES = True

LIFE_S = 60
CODE = f"import signal, time\nfor number in (1, 2, 15): signal.signal(number, signal.SIG_IGN)\ntime.sleep({LIFE_S})"


def attempt(context: Context, told: Told) -> Verdict:
    def leave() -> None:
        child = os.fork()
        if child == 0:
            try:
                os.setsid()
                if os.fork() == 0:
                    os.setsid()
                    for standard in (0, 1, 2):  # a pipe that stays open would give it away
                        os.dup2(os.open(os.devnull, os.O_RDWR), standard)
                    os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", CODE, f"{MARK}-{told['part']}"])
            finally:
                os._exit(0)
        os.waitpid(child, 0)

    return first_that_works({"daemon": leave})
