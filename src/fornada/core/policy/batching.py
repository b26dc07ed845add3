"""How many requests one instance holds at a time."""

from collections.abc import Sequence
from typing import NamedTuple

MOST_AHEAD = 64
AHEAD_S = 0.25
"""About how long what is sent ahead may take: it can't be given to another runner, and a drain has to wait for it."""
AHEAD_UNKNOWN = 4
"""Sent ahead while nothing is known about how long a request takes."""


class Slots(NamedTuple):
    """Requests that are worked on together, and requests that may be at the runner at all."""

    working: int
    sent: int


def slots(*, concurrency: int, max_batch: int, granted_ahead: int, service_s: Sequence[float]) -> Slots:
    """`granted_ahead` is what the runner takes in advance, `service_s` the last times from sending to answer.

    A full pipe keeps a fast model busy while the answer before is on its way; a slow one gains nothing by it. What is sent
    ahead counts as queued wherever people or bounds look at it.
    """
    working = concurrency * max_batch
    most = min(granted_ahead, MOST_AHEAD)
    if not service_s:
        return Slots(working, working + min(most, AHEAD_UNKNOWN))
    slowest = max(service_s)
    return Slots(working, working + (most if slowest * most <= AHEAD_S else int(AHEAD_S / slowest)))
