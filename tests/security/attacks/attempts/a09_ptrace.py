"""Stops another process as a debugger does, and reads its memory."""

import ctypes
import os

from fornada_sdk import Context
from tests.security.attacks.kernel import call
from tests.security.attacks.verdict import Told, Verdict, first_that_works, secret_in

WALL = "EPERM (filter), ESRCH (own pids)"

PEEKTEXT, ATTACH, DETACH = 1, 16, 17
EVERY_KIND = 0x40000000


def attempt(context: Context, told: Told) -> Verdict:
    def attach(pid: int) -> None:
        call("ptrace", ATTACH, pid, 0, 0)
        os.waitpid(pid, EVERY_KIND)

    def parent() -> None:
        attach(os.getppid())
        call("ptrace", DETACH, os.getppid(), 0, 0)

    def read() -> str:
        pid = told["neighbour_pid"]
        attach(pid)
        data, word = b"", ctypes.create_string_buffer(8)
        for offset in range(0, told["neighbour_length"], 8):
            call("ptrace", PEEKTEXT, pid, told["neighbour_address"] + offset, word)
            data += word.raw
        call("ptrace", DETACH, pid, 0, 0)
        return secret_in(data)

    return first_that_works({"neighbour": read, "parent": parent})
