"""How often a model will be asked, by what was asked of it lately, just now, and at this hour of the days before.

    rate = (requests of late + PRIOR_S * rate at this hour of day) / (LATELY_S + PRIOR_S) + BURST_WEIGHT * requests just now / BURST_S

The first part is the mean of a Poisson rate with a gamma prior: what happened of late outweighs what usually happens, and where nothing
happened of late what usually does still tells two idle models apart. The second knows bursts: who was asked a moment ago is likely to be asked
in a moment. Its inverse is the gap that is expected between two requests.
"""

import math
from dataclasses import dataclass, replace

from fornada.core.names import Instant

LATELY_S = 120.0
BURST_S, BURST_WEIGHT = 2.0, 0.2
"""Requests fade with these time constants. In the simulation without the second part bursts of three cost 2 % of p95 against the least recently
used, with it nothing; 60 to 240 s and 1 to 5 s differ by less than their seeds do (docs/decisions/0015)."""
PRIOR_S = 30.0
DAYS_S = 3.0
"""Days after which an hour's mean has mostly forgotten what used to be."""
HOUR_S = 3600.0
HOURS = 24
BEGINNING = Instant(0.0)


@dataclass(frozen=True, slots=True)
class Demand:
    """Of one model. Changed by `seen` alone."""

    lately: float = 0.0
    """Requests, those that are long ago counting less."""
    just_now: float = 0.0
    """The same, forgotten sooner."""
    at: Instant = BEGINNING
    """As of when."""
    by_hour: tuple[float, ...] = (0.0,) * HOURS
    """Requests a second at each hour of day, mean over the days."""
    hour: int = 0
    """The hour that is being counted: whole hours of local time since whenever."""
    in_hour: int = 0
    """Requests in it so far."""


def seen(demand: Demand, count: int, *, last: Instant, hour: int) -> Demand:
    """`count` more requests came since the last time: one of them at `last`, the others before it, evenly as far as one knows. `hour`
    counts whole hours of local time. With a count of 0 only time passes.

    Cheap enough to be called whenever somebody looks, and needs no timer: time in which nobody looked is made up for.
    """
    passed_s = max(0.0, last - demand.at)
    lately = demand.lately * _faded(passed_s, LATELY_S) + _left(count, passed_s, LATELY_S)
    just_now = demand.just_now * _faded(passed_s, BURST_S) + _left(count, passed_s, BURST_S)
    at = Instant(max(last, demand.at))
    if hour <= demand.hour:
        return replace(demand, lately=lately, just_now=just_now, at=at, in_hour=demand.in_hour + count)
    return Demand(lately, just_now, at, _turned(demand, hour), hour, count)


def rate(demand: Demand, *, now: Instant, hour: int) -> float:
    """Requests a second that are expected in the next minutes."""
    passed_s = max(0.0, now - demand.at)
    usual = (demand.lately * _faded(passed_s, LATELY_S) + PRIOR_S * demand.by_hour[hour % HOURS]) / (LATELY_S + PRIOR_S)
    return usual + BURST_WEIGHT * demand.just_now * _faded(passed_s, BURST_S) / BURST_S


def usual(demand: Demand, *, hour: int) -> float:
    """Requests a second at this hour of day, mean over the days: what is expected whatever came of late."""
    return demand.by_hour[hour % HOURS]


def hour_of(wall: float) -> int:
    """The `hour` of a moment, in seconds since 1970."""
    return int(wall // HOUR_S)


def likely(expected_rate: float, *, within_s: float) -> float:
    """How likely at least one request is within so many seconds."""
    return 1.0 - math.exp(-expected_rate * within_s)


def _faded(passed_s: float, constant_s: float) -> float:
    return math.exp(-passed_s / constant_s)


def _left(count: int, passed_s: float, constant_s: float) -> float:
    """What is left of so many requests: the last is whole, of one that came at any moment of the interval its mean is."""
    part = passed_s / constant_s
    each = (1.0 - math.exp(-part)) / part if part > 1e-6 else 1.0
    return min(count, 1) + max(0, count - 1) * each


def _turned(demand: Demand, hour: int) -> tuple[float, ...]:
    """The means after the open hour was closed; hours in which nobody looked were without requests. The very first hour counts from
    nothing, so that one day suffices to expect about a third of it on the next."""
    by_hour = list(demand.by_hour)
    kept = math.exp(-1.0 / DAYS_S)
    counts = {demand.hour: demand.in_hour} if demand.hour else {}
    missed = range(demand.hour + 1, hour) if demand.hour else range(0)
    for one in [*counts, *missed[-HOURS * 30 :]]:
        mean = counts.get(one, 0) / HOUR_S
        by_hour[one % HOURS] = by_hour[one % HOURS] * kept + mean * (1.0 - kept)
    return tuple(by_hour)
