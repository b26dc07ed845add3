"""How many instances of one model there should be, by what waits for it.

Up: the queue, at the speed that was measured, would take longer than a further instance takes to come. By as many as work it off within that
time, since a hot model is mostly hot in earnest. Down: for a while fewer would have been enough at every look. What is beyond the
first takes room that nobody else wants, and goes first when somebody does (`placement`, `victims`): a wrong guess costs a start.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from fornada.core.names import Instant

SOON_S = 0.5
"""A queue that is worked off within this time needs nobody's help, however quick a start is."""
UNKNOWN_SERVICE_S = 1.0
"""What a request is taken to last before one was answered."""


class Load(NamedTuple):
    """What a model has to do. Requests; seconds."""

    working: int
    """That one instance works on together."""
    in_flight: int
    """At instances, worked on or sent ahead."""
    waiting: int
    """In the line."""
    service_s: float | None
    """Mean of the last; None: nobody was answered yet."""
    start_s: float
    """What the next instance takes to come; 0: not known."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the spec sets."""

    least: int
    most: int
    idle_timeout_s: float


@dataclass(frozen=True, slots=True)
class Needed:
    """When how many were needed last: the n-th entry is for n + 1 instances. Changed by `seen` alone."""

    at: tuple[Instant, ...] = ()


def seen(needed: Needed, load: Load, *, bounds: Bounds, now: Instant) -> Needed:
    """After a look at `now`."""
    busy = min(bounds.most, needed_now(load))
    kept = needed.at[: bounds.most]
    later = tuple(kept[index] if index < len(kept) else now for index in range(busy, len(kept)))
    return Needed((now,) * busy + later)


def needed_now(load: Load) -> int:
    """Instances that what is there would keep at work."""
    return ceil((load.in_flight + load.waiting) / load.working)


def wanted(load: Load, needed: Needed, *, present: int, bounds: Bounds, now: Instant) -> int:
    """How many there should be; `present` are ready or on their way. At least `least`, at most `most`, and never from none to one:
    that is what requests themselves do."""
    up = min(bounds.most, present + _missing(load, present)) if present else 0
    if up > present:
        return max(bounds.least, up)
    return min(bounds.most, max(bounds.least, min(present, lately(needed.at, idle_timeout_s=bounds.idle_timeout_s, now=now))))


def lately(at: Sequence[Instant], *, idle_timeout_s: float, now: Instant) -> int:
    """How many were needed within the last `idle_timeout_s`, and one at least: the last one's end is idleness's business."""
    return max((index + 1 for index, when in enumerate(at) if now - when < idle_timeout_s), default=1) if at else 1


def _missing(load: Load, present: int) -> int:
    queued = load.waiting + max(0, load.in_flight - load.working * present)
    service_s = UNKNOWN_SERVICE_S if load.service_s is None else load.service_s
    patience_s = max(SOON_S, load.start_s)
    if queued * service_s <= patience_s * load.working * present:
        return 0
    # More than one for each request that waits would find nothing to do.
    return min(ceil(queued / load.working), max(1, ceil(queued * service_s / (patience_s * load.working)) - present))
