"""Makes the memory that it shares with the node shorter, so that the node faults where it reads."""

import os
from functools import partial

from fornada_sdk import Context
from tests.security.attacks.arenas import arenas
from tests.security.attacks.verdict import Told, Verdict, first_that_works, nothing_there

WALL = "EPERM: the memory is sealed"


def attempt(context: Context, told: Told) -> Verdict:
    found = arenas()
    if not found:
        return nothing_there("no arena")
    return first_that_works({f"shrink {number}": partial(os.ftruncate, number, 0) for number in found})
