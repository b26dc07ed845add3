"""Overwrites the program that it runs, through /proc."""

import os

from fornada_sdk import Context
from tests.security.attacks.verdict import Told, Verdict, first_that_works

WALL = "ETXTBSY, EACCES, EROFS"
PROVES_NOTHING = "the kernel lets nobody write to a program that runs"


def attempt(context: Context, told: Told) -> Verdict:
    return first_that_works({"/proc/self/exe": lambda: os.close(os.open("/proc/self/exe", os.O_WRONLY))})
