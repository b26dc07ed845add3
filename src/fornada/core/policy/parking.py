"""When a ready instance without work is parked: its processes are stopped until the next request."""

from typing import NamedTuple

from fornada.core.names import Instant


class Rest(NamedTuple):
    """How an instance rests."""

    calls: int
    """Requests that it works on or that wait for it: those whose callers have left, and a predecessor's, among them."""
    last_used: Instant
    """The last byte of the last answer, or when it became ready."""
    allowed: bool
    """Its author lets it be stopped, and nobody else has a part in its process: another model, or another control plane."""


def parks_in_s(rest: Rest, *, park_after_s: float, now: Instant) -> float:
    """Seconds until the instance is to be parked: 0 or less when it is due; infinite while it is at work, or where it never is
    (`park_after_s` is 0). That somebody keeps it running is no reason against it: it stays ready."""
    if not rest.allowed or rest.calls or park_after_s <= 0:
        return float("inf")
    return rest.last_used + park_after_s - now
