"""Starts processes until it can't; twice what its model.toml declares, and 100, are enough to say that nothing stops it."""

import errno
import os
import signal
import time

from fornada_sdk import Context
from tests.security.attacks.verdict import Told, Verdict, refused, worked

WALL = "EAGAIN at the limit"
BOMB = True
MAY_DIE = True


def attempt(context: Context, told: Told) -> Verdict:
    children: list[int] = []
    enough = 2 * told["pids"] + 100
    wall = ""
    try:
        while len(children) < enough and not wall:
            try:
                pid = os.fork()
            except OSError as error:
                wall = errno.errorcode.get(error.errno or 0, str(error))
                break
            if pid == 0:
                signal.alarm(30)
                signal.pause()
                os._exit(0)
            children.append(pid)
        time.sleep(0.5 if wall else 2)  # time for a watchdog, where that is what stops it
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        for pid in children:
            os.waitpid(pid, 0)
    count = len(children)
    if wall and count <= told["pids"]:
        return refused(f"{wall} after {count}", count=count)
    return worked(f"{count} processes, {told['pids']} declared", count=count)
