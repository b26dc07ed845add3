"""Whether and when the next control plane starts. Pure: an event and the time in, a choice out.

STARTING --served--> SERVING --died--> WAITING --due--> STARTING ...
    |                                     ^
    +--------------- died ----------------+

any --too often, too long, or it said that trying again can't help--> GIVEN_UP
"""

import dataclasses
import enum

FAILURES_MOST = 5
"""Deaths in a row before SERVING that end the node."""
UNUSABLE = 78
"""A control plane's exit code (EX_CONFIG) where another start can't help; it has said why."""
STEADY_S = 10.0
"""Having lived this long, a control plane's death counts as the first again."""
BACKOFF_FIRST_S = 0.1
BACKOFF_MOST_S = 2.0


class State(enum.Enum):
    STARTING = enum.auto()
    SERVING = enum.auto()
    WAITING = enum.auto()
    GIVEN_UP = enum.auto()


@dataclasses.dataclass(frozen=True, slots=True)
class Supervision:
    """What is remembered of the control planes so far."""

    grace_s: float
    state: State = State.WAITING
    epoch: int = 0
    started: float = 0.0
    """When the present one was started."""
    failures: int = 0
    """Deaths in a row before SERVING."""
    quick: int = 0
    """Deaths in a row before STEADY_S."""
    has_served: bool = False
    """Some control plane has."""
    unserved: float = 0.0
    """Since when nobody serves; counts once `has_served`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Start:
    """Start the next one after `delay_s`."""

    delay_s: float


@dataclasses.dataclass(frozen=True, slots=True)
class GiveUp:
    """End everything. An empty reason: the control plane has said why."""

    reason: str


def started(past: Supervision, now: float) -> Supervision:
    """The next control plane runs; its epoch is the result's."""
    return dataclasses.replace(past, state=State.STARTING, epoch=past.epoch + 1, started=now)


def succeeded(past: Supervision, now: float) -> Supervision:
    """One that was started beside the one that serves takes its place, under the next epoch. Its death counts like that one's."""
    return dataclasses.replace(past, epoch=past.epoch + 1, started=now)


def served(past: Supervision) -> Supervision:
    """It has told that it accepts requests."""
    return dataclasses.replace(past, state=State.SERVING, failures=0, has_served=True)


def died(past: Supervision, now: float, code: int | None, how: str) -> tuple[Supervision, Start | GiveUp]:
    """It ended, or couldn't be started; `how` completes "the control plane ..."."""
    if code == UNUSABLE:
        return _given_up(past, "")
    quick = past.quick if now - past.started < STEADY_S else 0
    failures = past.failures
    unserved = past.unserved
    if past.state is State.SERVING:
        unserved = now
    else:
        failures += 1
    if failures >= FAILURES_MOST:
        return _given_up(
            past, f"the control plane ended {failures} times in a row before it served (at last it {how}); see its lines above"
        )
    if past.state is not State.SERVING and past.has_served and now - unserved >= past.grace_s:
        return _given_up(past, _overdue(past, how))
    delay_s = min(BACKOFF_MOST_S, BACKOFF_FIRST_S * 2 ** (quick - 1)) if quick else 0.0
    waiting = dataclasses.replace(past, state=State.WAITING, failures=failures, quick=quick + 1, unserved=unserved)
    return waiting, Start(delay_s)


def patience_s(present: Supervision, now: float) -> float | None:
    """Seconds until `overdue` is to be asked; None: as long as it takes, since no request has been served yet."""
    return max(0.0, present.unserved + present.grace_s - now) if present.has_served else None


def overdue(present: Supervision, now: float) -> GiveUp | None:
    """A successor that doesn't serve within the grace time is no control plane."""
    if present.state in (State.SERVING, State.GIVEN_UP) or not present.has_served or now - present.unserved < present.grace_s:
        return None
    return GiveUp(_overdue(present, "does not serve yet"))


def _overdue(past: Supervision, how: str) -> str:
    return f"no control plane has served for {past.grace_s:g} s ([node] grace_s; the last one {how}): everything ends; start the node again"


def _given_up(past: Supervision, reason: str) -> tuple[Supervision, GiveUp]:
    return dataclasses.replace(past, state=State.GIVEN_UP), GiveUp(reason)
