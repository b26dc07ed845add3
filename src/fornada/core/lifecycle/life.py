"""What a life is at one moment: the data that core.lifecycle.model changes."""

from dataclasses import dataclass

from fornada.core.lifecycle.events import Event, FailureKind
from fornada.core.lifecycle.states import Stage, State, Wish
from fornada.core.names import Instant

BEGINNING = Instant(0.0)


@dataclass(frozen=True, slots=True)
class Terms:
    """What the operator and the spec set."""

    load_timeout_s: float
    kill_s: float
    backoff_s: float


@dataclass(frozen=True, slots=True)
class Failure:
    """The last thing that went wrong. `kind` says whether there is one."""

    kind: FailureKind = FailureKind.NONE
    reason: str = ""
    at: Instant = BEGINNING
    retry_at: Instant = BEGINNING
    """NEVER: for good, that is until a reset or another version."""


@dataclass(frozen=True, slots=True)
class ModelLife:
    """One version's life. Changed by `step` alone."""

    terms: Terms
    state: State = State.REGISTERED
    wish: Wish = Wish.NOTHING
    stage: Stage = Stage.NONE
    failure: Failure = Failure()
    """The last one; what counts is `state`."""
    ending: Failure = Failure()
    """On the way to an end: what it will count as; kind NONE is an end that was wanted."""
    failures: int = 0
    """Loads that failed in a row."""
    crashes: int = 0
    """Ends in a row of a ready process that had answered nothing."""
    second_try: bool = True
    """A load that runs out of memory is tried once more, by what the first has taught; not where somebody wants it gone meanwhile."""
    served: bool = False
    patience_s: float = 0.0
    """While it comes up: how long it may say nothing."""
    patient_until: Instant = BEGINNING
    """While it drains, or was asked to stop: when SIGTERM comes."""
    story: tuple[str, ...] = ()


class IllegalTransition(Exception):
    """The event can't happen in this state: a bug of whoever carries commands out. Tells the story so far."""

    def __init__(self, life: ModelLife, event: Event) -> None:
        story = "; ".join(life.story) or "nothing happened before"
        super().__init__(f"{type(event).__name__} while {life.state.value} ({story})")
