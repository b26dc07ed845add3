"""Bounds of the tests, in one place: how long a thing may take, and how often it is tried.

A slow or loaded machine sets FORNADA_TEST_TIMEOUT_SCALE (a factor, 1 unless set). It stretches the bounds of waits; it never
stretches a promise: a test of a number in SPECIFICATION.md compares with that number itself.
"""

import os

SCALE = float(os.environ.get("FORNADA_TEST_TIMEOUT_SCALE", "1"))
LONG = os.environ.get("FORNADA_TEST_LONG", "") not in ("", "0")


def bound(seconds: float) -> float:
    """Seconds that a wait may take on this machine."""
    return seconds * SCALE


def count(usual: int, *, long: int) -> int:
    """How often to repeat: `usual` in `make test`, `long` in `make test-long`."""
    return long if LONG else usual
