"""Sends a signal to another process: the neighbour, its own parent, or whoever has a low number. SIGCONT, so that nothing dies."""

import os
import signal
from functools import partial

from fornada_sdk import Context
from tests.security.attacks.kernel import call
from tests.security.attacks.verdict import Told, Verdict, first_that_works

WALL = "ESRCH (own pids) or EPERM (Landlock's scope, the strict filter)"

NUMBERS = range(1, 200)


def attempt(context: Context, told: Told) -> Verdict:
    others = [told["neighbour_pid"], os.getppid(), *NUMBERS]
    pids = [pid for pid in dict.fromkeys(others) if pid > 0 and not _own_thread(pid)]
    verdict = first_that_works({f"kill({pid})": partial(os.kill, pid, signal.SIGCONT) for pid in pids})
    if not verdict["worked"]:
        verdict["how"] = ", ".join(sorted({wall.split(" ")[1] for wall in verdict["how"].split(", ")}))
    return verdict


def _own_thread(pid: int) -> bool:
    """kill takes the number of a thread too, and gives the signal to its process."""
    try:
        call("tgkill", os.getpid(), pid, 0)
    except OSError:
        return pid == os.getpid()
    return True
