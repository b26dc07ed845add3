"""When a process counts as hung: it goes on and on with a request that nobody waits for any more."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fornada.core.names import NEVER, Instant

LOOKS = 4
"""How often within cancel_s one looks again: what waited inside the process may have had its turn meanwhile."""
LEAST_S = 0.05
"""Between two looks, however short cancel_s is."""


@dataclass(frozen=True, slots=True)
class Held:
    """One request that a process has not ended."""

    request: int
    sent_at: Instant
    waited_for: bool
    """By its caller, who has neither left nor been answered."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """lanes: requests that are surely under way, where so many are there; most: those that may be, in batches.

    timeout_s: what the model's author lets a request take; cancel_s: what it may take beyond its caller's leave.
    """

    lanes: int
    most: int
    timeout_s: float
    cancel_s: float


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen. `since`: request -> when it was first seen under way without a caller; `again_at`: NEVER without such a request."""

    since: Mapping[int, Instant]
    hung: tuple[int, ...] = ()
    others: bool = False
    """Somebody waits for what may be under way beside them."""
    again_at: Instant = NEVER


def look(held: Sequence[Held], since: Mapping[int, Instant], bounds: Bounds, *, now: Instant) -> Look:
    """`held` in the order of sending, which is that of beginning: one behind more than `lanes` others may not have begun, and can't hang.

    Never hung is what a caller waits for, nor what hasn't taken as long yet as the author allows: who leaves early must not be able to end
    a process that would have answered in time.
    """
    begun = [one for one in held[: bounds.lanes] if not one.waited_for]
    seen = {one.request: since.get(one.request, now) for one in begun}
    due = {one.request: max(seen[one.request] + bounds.cancel_s, one.sent_at + bounds.timeout_s) for one in begun}
    hung = tuple(request for request, at in due.items() if at <= now)
    others = any(one.waited_for for one in held[: bounds.most])
    if all(one.waited_for for one in held):
        return Look(seen)
    step = Instant(now + max(bounds.cancel_s / LOOKS, LEAST_S))
    return Look(seen, hung, others, Instant(min([step, *(at for at in due.values() if at > now)])))
