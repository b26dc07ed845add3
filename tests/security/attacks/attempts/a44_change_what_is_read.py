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
SHARES = True

FOR_S = 2.0
AREA = 2 * 1024 * 1024
GRAIN = 65536


def attempt(context: Context, told: Told) -> Verdict:
    found = arenas()
    areas = []
    for number in found:
        try:
            areas.append(mmap.mmap(number, min(AREA, os.fstat(number).st_size)))
        except PermissionError:
            continue  # it may only be read
    if not areas:
        return nothing_there("no arena")
    for area in areas:
        threading.Thread(target=_scribble, args=(area,), daemon=True).start()
    time.sleep(0.1)
    return refused("it scribbles while this is read", filling="x" * 1_000_000)


def _scribble(area: mmap.mmap) -> None:
    """Other letters over what looks like the filling: the rest of the answer is for the judge, who wants to read it."""
    end = time.monotonic() + FOR_S
    letters = b"xyz"
    turn = 0
    while time.monotonic() < end:
        turn += 1
        for at in range(0, len(area) - GRAIN, GRAIN):
            if area[at] in letters and area[at + GRAIN] in letters:
                area[at : at + GRAIN] = letters[turn % 3 : turn % 3 + 1] * GRAIN
