"""Which environments have a zygote, and how many spares each of them parks.

A zygote takes the memory that its imports take, and saves each start of a model the time for them. So one is for environments from
which something runs, or has been started lately: the newest first, if there are more than a node has room for. A spare takes a little
more, and saves the fork: it is for environments in which the next start is likely soon. Both give way to models: where one waits for
host memory that is there only without them, none is wanted.
"""

import enum
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fornada.core.names import Instant

KEEP_S = 600.0
"""After the last start, or the end of the last instance."""
UNBOUNDED = 1 << 62
MOST = 32
"""Zygotes of one node."""
SPARE_BYTES = 4 * 1024**2
"""Of a parked spare, the tables of its pages included, until one of its zygote's was measured: 2.5 to 5 MB were seen."""
RETRY_FIRST_S, RETRY_LONGEST_S = 1.0, 3600.0
"""Between tries: an accident's successor is there for the next start, and one that never works is soon left alone."""
STEADY_S = 60.0
"""One that was ready for as long had nothing wrong with it: its end begins a new row of failures."""


class State(enum.StrEnum):
    """As the keeper tells it."""

    IMPORTING = "importing"
    READY = "ready"
    UNFIT = "unfit"
    ENDED = "ended"


class Use(NamedTuple):
    """How an environment is used, and how its zygotes have fared."""

    key: str
    instances: int
    """That run from it now, forked or not."""
    last_used: Instant
    """The last start, or end of an instance."""
    state: State | None = None
    """Of its zygote; None: there is none."""
    failures: int = 0
    """In a row: zygotes that were unfit, or ended by themselves."""
    failed_at: Instant = Instant(0.0)
    spare_bytes: int = SPARE_BYTES
    """What one of its spares keeps."""
    held_bytes: int = 0
    """What its zygote holds of the host, or one before it did; 0: none was measured yet."""


class Terms(NamedTuple):
    """What the operator allows."""

    zygotes: bool
    spares: int
    """For one environment."""
    spares_bytes: int
    """For all of them."""
    zygotes_bytes: int = UNBOUNDED
    """For all zygotes together."""
    in_the_way: bool = False
    """Somebody waits for host memory that they hold."""


class Plan(NamedTuple):
    """What is to be."""

    wanted: dict[str, int]
    """Key -> spares."""
    retired: tuple[str, ...]
    """Zygotes that are to go."""


def plan(uses: Iterable[Use], terms: Terms, now: Instant) -> Plan:
    """A zygote that failed isn't wanted again before its back-off has passed; one that is there and may stay always is."""
    live = {State.IMPORTING, State.READY}
    known = sorted(uses, key=lambda use: (-use.last_used, use.key))
    allowed = terms.zygotes and not terms.in_the_way
    lasting = [use for use in known if allowed and (use.instances or now - use.last_used < KEEP_S)]
    chosen = _housed([use for use in lasting if use.state in live or now >= retry_at(use)], terms.zygotes_bytes)[:MOST]
    wanted = dict(zip((use.key for use in chosen), _spares(chosen, terms, now), strict=True))
    return Plan(wanted, tuple(use.key for use in known if use.state in live and use.key not in wanted))


def retry_at(use: Use) -> Instant:
    """From when on another one may be tried."""
    if not use.failures:
        return Instant(float("-inf"))
    return Instant(use.failed_at + min(RETRY_FIRST_S * 2.0 ** min(use.failures - 1, 16), RETRY_LONGEST_S))


def failures_after(failures: int, ready_s: float) -> int:
    """In a row, once another has failed that had been ready for so long (0: never)."""
    return 1 if ready_s >= STEADY_S else failures + 1


def _housed(uses: Sequence[Use], room: int) -> list[Use]:
    """Those for whom there is memory, the one used last first."""
    found = []
    for use in uses:
        if use.held_bytes <= room:
            room -= use.held_bytes
            found.append(use)
    return found


def _spares(chosen: Sequence[Use], terms: Terms, now: Instant) -> list[int]:
    """One after the other gets its share of the room, the one used last first."""
    room = max(0, terms.spares_bytes)
    given = []
    for use in chosen:
        count = min(max(0, terms.spares), room // use.spare_bytes) if now - use.last_used < KEEP_S else 0
        room -= count * use.spare_bytes
        given.append(count)
    return given
