"""Makes the memory that it shares with the node shorter, so that the node faults where it reads."""

import fcntl
import os
from collections.abc import Callable
from functools import partial

from fornada_sdk import Context
from tests.security.attacks.arenas import arenas
from tests.security.attacks.verdict import Told, Verdict, first_that_works, nothing_there

WALL = "EPERM: the memory is sealed"
SHARES = True


def attempt(context: Context, told: Told) -> Verdict:
    found = arenas()
    if not found:
        return nothing_there("no arena")
    tries: dict[str, Callable[[], object]] = {}
    for number, name in found.items():
        size = os.fstat(number).st_size
        tries |= {
            f"shrink {name}": partial(os.ftruncate, number, 0),
            f"grow {name}": partial(os.ftruncate, number, size + 1),
            f"shrink {name} opened anew": partial(_shrink_anew, number),
            f"seal {name} against its writer": partial(fcntl.fcntl, number, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE),
        }
    return first_that_works(tries)


def _shrink_anew(number: int) -> None:
    again = os.open(f"/proc/self/fd/{number}", os.O_RDWR)
    try:
        os.ftruncate(again, 0)
    finally:
        os.close(again)
