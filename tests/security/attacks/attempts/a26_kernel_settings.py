"""Opens the kernel's settings and the magic request key for writing; it writes nothing."""

import os
from functools import partial

from fornada_sdk import Context
from tests.security.attacks.verdict import Told, Verdict, first_that_works

WALL = "ENOENT, EACCES, EROFS"
PROVES_NOTHING = "the kernel's settings are closed to an ordinary user in any case"


def attempt(context: Context, told: Told) -> Verdict:
    def opened(path: str) -> None:
        os.close(os.open(path, os.O_WRONLY))

    paths = ("/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/vm/drop_caches")
    return first_that_works({path: partial(opened, path) for path in paths})
