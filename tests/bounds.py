"""Bounds of the tests, in one place: how long a thing may take, and how often it is tried.

Bounds of waits stretch on a machine that others use at the same time: by its load as it is now, or by FORNADA_TEST_TIMEOUT_SCALE (a
factor) where that is more, for a slow one. A promise is never stretched: a test of a number in SPECIFICATION.md compares with that
number itself.
"""

import os

SCALE = float(os.environ.get("FORNADA_TEST_TIMEOUT_SCALE", "1"))
LONG = os.environ.get("FORNADA_TEST_LONG", "") not in ("", "0")
USUAL_LOAD = 2.0
"""Programs for each processor that want it at the same moment, while nothing but the tests runs: bounds are made for that."""
STRETCHED_MOST = 4.0


def bound(seconds: float) -> float:
    """Seconds that a wait may take on this machine now."""
    return seconds * max(SCALE, stretched(os.getloadavg()[0] / (os.cpu_count() or 1)))


def stretched(load: float) -> float:
    """By how much longer all takes where `load` programs share a processor."""
    return min(max(load / USUAL_LOAD, 1.0), STRETCHED_MOST)


def count(usual: int, *, long: int) -> int:
    """How often to repeat: `usual` in `make test`, `long` in `make test-long`."""
    return long if LONG else usual
