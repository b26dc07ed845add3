"""Reads the kernel's log, which holds addresses."""

import ctypes
import os

from fornada_sdk import Context
from tests.security.attacks.kernel import call
from tests.security.attacks.verdict import Told, Verdict, first_that_works

WALL = "EPERM, ENOENT"
PROVES_NOTHING = "most systems close it to an ordinary user (kernel.dmesg_restrict)"

READ_ALL = 3


def attempt(context: Context, told: Told) -> Verdict:
    def read() -> None:
        call("syslog", READ_ALL, ctypes.create_string_buffer(4096), 4096)

    return first_that_works({"syslog": read, "/dev/kmsg": lambda: os.close(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK))})
