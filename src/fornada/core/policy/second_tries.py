"""Whether an item of a job is tried again after a refusal, and when.

A job was accepted to be done: want of capacity, and of an account's allowance, is waited out as long as the job may live. What may have been
the item's own doing, such as a runner that died under it, is tried a few times: it may as well have been killed by somebody. What the caller or
the model's author has to mend is told at once.
"""

from typing import NamedTuple

from fornada.core.errors import (
    Busy,
    DeadlinePassed,
    FornadaError,
    InternalFault,
    LoadFailed,
    ModelRaised,
    NeverFits,
    NoCapacity,
    OutOfDeviceMemory,
    QuotaUsedUp,
    RateLimited,
    RunnerDied,
)

MOST_ATTEMPTS = 5
SHORTEST_S, LONGEST_S = 0.05, 60.0
DIED_S = 0.5


class Again(NamedTuple):
    """Another try."""

    wait_s: float
    """For the item's whole model: the others would fare no better."""
    counts: bool
    """Whether it is one of MOST_ATTEMPTS."""


def after(error: FornadaError, *, attempts: int) -> Again | None:
    """`attempts`: those that counted, this one not among them. None: the refusal is the item's answer."""
    match error:
        case NeverFits() | ModelRaised():
            return None
        case DeadlinePassed():
            # The model's own bound for a request: another try would take as long.
            return None if error.begun else Again(SHORTEST_S, counts=False)
        case LoadFailed():
            return None if error.retry_after_s is None else Again(_bounded(error.retry_after_s), counts=False)
        case Busy():
            return Again(_bounded(error.retry_after_s or 0.0), counts=False)
        case NoCapacity():
            return Again(_bounded(error.retry_after_s or 1.0), counts=False)
        case RateLimited() | QuotaUsedUp():
            return Again(LONGEST_S, counts=False)
        case RunnerDied() | OutOfDeviceMemory() | InternalFault():
            return Again(_bounded(error.retry_after_s or DIED_S), counts=True) if attempts + 1 < MOST_ATTEMPTS else None
        case _:
            return None


def _bounded(wait_s: float) -> float:
    return min(LONGEST_S, max(SHORTEST_S, wait_s))
