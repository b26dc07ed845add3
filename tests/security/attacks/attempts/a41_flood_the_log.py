"""Prints without end, to both streams, past Python and in one line: to fill a disk, or memory of whoever reads it."""

import os
import time

from fornada_sdk import Context
from tests.security.attacks.verdict import Told, Verdict, refused

WALL = "a bounded pipe that is read slowly, and logs of bounded size"
SEEN_OUTSIDE = True
PARTS = ("lines", "short lines", "one line", "print")

FOR_S, MOST, BLOCK = 2.0, 64 * 1024 * 1024, 60_000


def attempt(context: Context, told: Told) -> Verdict:
    line = {"lines": b"x" * 99 + b"\n", "short lines": b"x\n", "one line": b"x" * 100, "print": b"x"}[told["part"]]
    block = line * (BLOCK // len(line))
    written, end = 0, time.monotonic() + FOR_S
    while written < MOST and time.monotonic() < end:
        if told["part"] == "print":
            print("x" * 10_000)
            written += 10_000
        else:
            written += os.write(1 + written % 2, block)
    return refused(f"{written // 2**20} MiB in {FOR_S:g} s")
