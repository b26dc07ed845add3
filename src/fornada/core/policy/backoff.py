"""How long to leave a model alone that failed."""

LONGEST_S = 60.0
FREE_CRASHES = 5
"""Crashes in a row, without one answer between them, that are followed by a new start at once.

A crash under a request is mostly the request's doing: the next one must not pay for it. A model that never answers is a
crash loop, and that is what the waiting is for.
"""


def after_failures(failures: int, *, first_s: float) -> float:
    """Seconds to wait after so many failed loads in a row: first_s, doubling, LONGEST_S at most."""
    if failures <= 0:
        return 0.0
    return min(first_s * 2.0 ** min(failures - 1, 32), max(first_s, LONGEST_S))


def after_crashes(crashes: int, *, first_s: float) -> float:
    """Seconds to wait after so many crashes in a row of a model that had been ready."""
    return after_failures(crashes - FREE_CRASHES, first_s=first_s)
