"""Sends a signal to another process: the neighbour, its own parent, or whoever has a low number. SIGCONT, so that nothing dies."""

import os
import signal
from functools import partial

from fornada_sdk import Context
from tests.security.attacks.kernel import call, own_sockets, peer_of
from tests.security.attacks.verdict import Told, Verdict, first_that_works

WALL = "ESRCH, EINVAL (own pids) or EPERM (Landlock's scope, the strict filter)"

NUMBERS = range(1, 200)


def attempt(context: Context, told: Told) -> Verdict:
    others = [told["neighbour_pid"], os.getppid(), *NUMBERS]
    pids = [pid for pid in dict.fromkeys(others) if pid > 0 and not _own_thread(pid)]
    ways = {f"kill({pid})": partial(os.kill, pid, signal.SIGCONT) for pid in pids}
    verdict = first_that_works({**ways, **{f"peer({number})": partial(_signal_peer, number) for number in own_sockets()}})
    if not verdict["worked"]:
        verdict["how"] = ", ".join(sorted({wall.split(" ")[1] for wall in verdict["how"].split(", ")}))
    return verdict


def _signal_peer(number: int) -> None:
    descriptor = peer_of(number)
    try:
        signal.pidfd_send_signal(descriptor, signal.SIGCONT)
    finally:
        os.close(descriptor)


def _own_thread(pid: int) -> bool:
    """kill takes the number of a thread too, and gives the signal to its process."""
    try:
        call("tgkill", os.getpid(), pid, 0)
    except OSError:
        return pid == os.getpid()
    return True
