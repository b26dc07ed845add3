"""Ignores every signal and every wish to end."""

import atexit
import os
import signal
import threading
import time

from fornada_sdk import Context
from tests.security.attacks.verdict import Told, Verdict, refused

WALL = "SIGKILL after kill_s"
SEEN_OUTSIDE = True

ENDLESS_S = 600


def attempt(context: Context, told: Told) -> Verdict:
    every = {number for number in signal.valid_signals() if number not in (signal.SIGKILL, signal.SIGSTOP)}
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, every)
    atexit.register(time.sleep, ENDLESS_S)
    threading.Thread(target=time.sleep, args=(ENDLESS_S,)).start()
    os.register_at_fork(before=lambda: time.sleep(ENDLESS_S))
    return refused("it goes on")
