"""Types into the operator's terminal."""

import fcntl
import os
from functools import partial

from fornada_sdk import Context
from tests.security.attacks.verdict import Told, Verdict, first_that_works

WALL = "ENOENT, ENXIO (no terminal), EPERM (filter)"
PROVES_NOTHING = "a process in a session of its own has no terminal in any case"

TIOCSTI = 0x5412


def attempt(context: Context, told: Told) -> Verdict:
    def type_into(path: str) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_NOCTTY)
        try:
            fcntl.ioctl(descriptor, TIOCSTI, b"\n")
        finally:
            os.close(descriptor)

    return first_that_works({path: partial(type_into, path) for path in ("/dev/tty", "/dev/console", "/dev/tty0", "/dev/pts/0")})
