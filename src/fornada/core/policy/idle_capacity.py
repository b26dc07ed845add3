"""How much of a model's capacity jobs may take, so that whoever waits for an answer hardly notices them.

    nobody asks (a lull)                    all places; an item gives way when somebody comes
    requests come, places are left over     those that requests didn't need of late, less one for the next
    requests come, no place is left over    none; but SHARE of the model's time, so that a job comes to its end

A request that comes at any time finds an item in its way as often as items take of the time (arrivals see time averages): with SHARE well
below a hundredth, the 99th percentile of waits stays what it is. A lull is several times as long as the usual pause between two requests.

Places of one batch are no places beside one another: who comes while it is worked on waits for its end. So what is left over is counted in
lanes, of which a model has as many as it works on batches at the same time.
"""

from typing import NamedTuple

from fornada.core.names import Instant

SHARE = 0.005
LULL_GAPS = 5.0
LULL_SHORTEST_S, LULL_LONGEST_S = 1.0, 10.0
FIRST_GAP_S = 0.4
"""The usual pause, while nothing is known of pauses."""
NEWEST = 0.2
"""What the newest pause counts for."""
UNKNOWN_S = 0.1
"""How long a request takes, while nothing is known of it."""
OVERDUE_LONGEST_S = 60.0
UNLOADED_OVERDUE_S = 10.0
"""After so long a model is loaded for a job although others may have to go for it."""
PEAK_HOLDS_S = 10.0


class Traffic(NamedTuple):
    """What has been seen of the requests of one model that somebody waits for."""

    ever: int
    """How many have come."""
    at: Instant
    """When the last one came."""
    gap_s: float
    """Usual pause between two."""
    peak: int
    """The most that were there at a time, of late."""
    peak_at: Instant


def first_seen(count: int, at: Instant, here: int, now: Instant) -> Traffic:
    """The first look. Where nobody has ever asked, nobody is waited for."""
    return Traffic(count, at if count else Instant(float("-inf")), FIRST_GAP_S, here, now)


def seen(before: Traffic, count: int, at: Instant, here: int, now: Instant) -> Traffic:
    """`count` ever, the last one at `at`, `here` of them there now."""
    gap_s = before.gap_s
    new = count - before.ever
    if new > 0:
        pause_s = min(max(0.0, at - before.at) / new, LULL_LONGEST_S)
        for _ in range(min(new, 32)):
            gap_s += NEWEST * (pause_s - gap_s)
    holds = here < before.peak and now - before.peak_at < PEAK_HOLDS_S
    return Traffic(count, at if new > 0 else before.at, gap_s, before.peak if holds else here, before.peak_at if holds else now)


def lull(traffic: Traffic, here: int, now: Instant) -> bool:
    """Nobody asks."""
    wait_s = min(max(LULL_GAPS * traffic.gap_s, LULL_SHORTEST_S), LULL_LONGEST_S)
    return not here and now - traffic.at >= wait_s


class Places(NamedTuple):
    """What jobs may have of a model."""

    most: int
    """Items at the same time."""
    overdue_s: float
    """After so long without one of them, one is begun nonetheless, as somebody's request of low priority."""


def places(traffic: Traffic, *, working: int, lanes: int, here: int, item_s: float | None, now: Instant) -> Places:
    """Of a model that is ready and works on `working` requests together, in so many lanes; `here`: requests that somebody waits for.
    `item_s`: about how long one takes; None: nobody knows."""
    overdue_s = OVERDUE_LONGEST_S if item_s is None else min(item_s / SHARE, OVERDUE_LONGEST_S)
    if lull(traffic, here, now):
        return Places(working, overdue_s)
    return Places(max(0, lanes - max(traffic.peak, here) - 1), overdue_s)


def unloaded(*, nobody_asks: bool, fits: bool) -> Places:
    """Of a model that has to come first. `nobody_asks` for any model; `fits`: there is memory that nobody wants."""
    return Places(1 if nobody_asks or fits else 0, UNLOADED_OVERDUE_S)
