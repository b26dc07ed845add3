"""When an instance that nobody uses goes."""

from typing import NamedTuple

from fornada.core.names import Instant


class Use(NamedTuple):
    """How an instance is used."""

    calls: int
    """Requests that it works on or that wait for it."""
    last_used: Instant
    """The last byte of the last answer, or when it became ready."""
    kept: bool
    """Pinned, or wanted by min_instances."""


def ends_in_s(use: Use, *, idle_timeout_s: float, now: Instant) -> float:
    """Seconds until the instance is to go: 0 or less when it is due; infinite while it is kept or at work."""
    if use.kept or use.calls:
        return float("inf")
    return use.last_used + idle_timeout_s - now
