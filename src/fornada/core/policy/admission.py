"""Whether a request is taken at all, and what it is told if not."""

from collections.abc import Sequence
from typing import NamedTuple

from fornada.core.errors import Busy
from fornada.core.names import ModelName

SAMPLES = 8
"""Service times that a prediction looks at. It takes the fastest of them: a wrong refusal costs more than a long wait."""
SHORTEST_RETRY_S = 1.0
LONGEST_RETRY_S = 60.0


class Standing(NamedTuple):
    """What stands before a new request of one model."""

    model: ModelName
    working: int
    """Requests that are worked on together, over all instances; 0 while none is ready."""
    ahead: int
    """Requests that are worked on or wait."""
    queue: int
    """serving.queue: how many may wait."""
    service_s: Sequence[float]
    """The last service times, SAMPLES at most."""
    before: int | None = None
    """Those of `ahead` that are worked on or have their turn before the request; None: all of them."""


def admit(standing: Standing, *, reject_if_busy: bool, max_wait_s: float, room_s: float = 0.0) -> Busy | None:
    """The refusal, or None for a request that is taken.

    `room_s` is how long the request will wait because the model has to come first: until it is ready (`forecast`), and until those before
    it have been begun with. 0 where it is ready, or where nobody knows: a model that is ready never waits for another one's load.
    """
    waiting = standing.ahead - standing.working
    if waiting < 0:
        return None
    predicted_s = predicted_wait_s(standing)
    if reject_if_busy and not standing.working:
        return Busy(f"{standing.model} has to be loaded first and the request asked not to wait", retry_after_s=SHORTEST_RETRY_S)
    if reject_if_busy:
        return Busy(f"{standing.model} is busy and the request asked not to wait", retry_after_s=_retry_s(predicted_s))
    if waiting >= standing.queue:
        return Busy(f"{standing.model} has {waiting} requests waiting, as many as its queue holds", retry_after_s=_retry_s(predicted_s))
    if room_s > max_wait_s:
        text = f"{standing.model} isn't ready, and would be in about {room_s:.0f} s, after older wishes for memory; the bound is {max_wait_s:g} s"
        return Busy(text, retry_after_s=_retry_s(room_s - max_wait_s))
    if predicted_s is not None and predicted_s > max_wait_s:
        text = f"a request to {standing.model} would wait about {predicted_s:.0f} s, the bound is {max_wait_s:g} s"
        return Busy(text, retry_after_s=_retry_s(predicted_s - max_wait_s))
    return None


def predicted_wait_s(standing: Standing) -> float | None:
    """The least that a new request will wait, or None while nothing is known."""
    if standing.working == 0 or len(standing.service_s) < SAMPLES:
        return None
    before = standing.ahead if standing.before is None else standing.before
    rounds = max(0, before - standing.working + 1) / standing.working
    return rounds * min(standing.service_s)


def _retry_s(predicted_s: float | None) -> float:
    return min(LONGEST_RETRY_S, max(SHORTEST_RETRY_S, predicted_s or 0.0))
