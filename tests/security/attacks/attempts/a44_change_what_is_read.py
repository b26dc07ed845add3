"""Changes what it shares with the node while the node reads it, so that what was checked isn't what is used."""

import mmap
import os
import threading
import time

from fornada_sdk import Context
from tests.security.attacks.arenas import arenas
from tests.security.attacks.verdict import Told, Verdict, nothing_there, refused

WALL = "the node copies first, then checks the copy"
SEEN_OUTSIDE = True
MAY_DIE = True

FOR_S = 2.0


def attempt(context: Context, told: Told) -> Verdict:
    found = arenas()
    if not found:
        return nothing_there("no arena")
    for number in found:
        area = mmap.mmap(number, 0)
        threading.Thread(target=_scribble, args=(area,), daemon=True).start()
    return refused("it scribbles while this is read", filling="x" * 500_000)


def _scribble(area: mmap.mmap) -> None:
    end = time.monotonic() + FOR_S
    while time.monotonic() < end:
        area[:] = os.urandom(4096) * (len(area) // 4096)
