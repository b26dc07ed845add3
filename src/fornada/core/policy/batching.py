"""How many requests one instance holds at a time."""

from typing import NamedTuple

MOST_AHEAD = 64


class Slots(NamedTuple):
    """Requests that are worked on together, and requests that may be at the runner at all."""

    working: int
    sent: int


def slots(*, concurrency: int, max_batch: int, granted_ahead: int) -> Slots:
    """`granted_ahead` is what the runner says it takes in advance, 0 for nothing.

    A full pipe keeps a fast model busy while the answer before is on its way. What is sent ahead counts as queued wherever
    people or bounds look at it.
    """
    working = concurrency * max_batch
    return Slots(working, max(working, min(granted_ahead, MOST_AHEAD)))
