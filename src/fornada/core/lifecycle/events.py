"""What can happen to a model version on a node, and what its life may ask for. Two closed sets."""

import enum
from dataclasses import dataclass

from fornada.core.names import Instant


class FailureKind(enum.Enum):
    """What went wrong last."""

    NONE = "none"
    PROVISION = "provision"
    """The environment could not be built or an artifact not be fetched."""
    NEVER_FITS = "never_fits"
    SPAWN = "spawn"
    LOAD = "load"
    """Model code failed, or exited, before it was ready."""
    MEMORY = "memory"
    """Device memory ran out while it loaded."""
    STALLED = "stalled"
    """No progress for load_timeout_s."""
    CRASH = "crash"
    """The process ended although it was ready."""
    FAULT = "fault"
    """The runner broke the wire's rules, or took more than it may, and was killed for it."""
    HUNG = "hung"
    """The process went on with what nobody waited for any more, and didn't heed that."""
    INTERNAL = "internal"
    """A bug of ours."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """It is to be ready: a request came, an operator or min_instances asks for it."""

    now: Instant


@dataclass(frozen=True, slots=True)
class Prepare:
    """It is to be built and fetched, but not loaded: it was deployed."""


@dataclass(frozen=True, slots=True)
class Unwanted:
    """It is to end: unloaded, evicted, idle, superseded or removed. Work in progress gets `grace_s`."""

    now: Instant
    grace_s: float


@dataclass(frozen=True, slots=True)
class Reset:
    """An operator says that the cause of earlier failures is gone."""


@dataclass(frozen=True, slots=True)
class Built:
    """The environment is there."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """The artifacts are there."""


@dataclass(frozen=True, slots=True)
class ProvisionFailed:
    """The environment or an artifact can't be had."""

    now: Instant
    reason: str


@dataclass(frozen=True, slots=True)
class ProvisionCancelled:
    """CancelProvision has taken effect."""


@dataclass(frozen=True, slots=True)
class Granted:
    """Memory and a place among the resident models are reserved for it."""


@dataclass(frozen=True, slots=True)
class NeverFits:
    """This node can't ever hold it."""

    now: Instant
    reason: str


@dataclass(frozen=True, slots=True)
class Spawned:
    """The process runs."""


@dataclass(frozen=True, slots=True)
class SpawnFailed:
    """No process was started."""

    now: Instant
    reason: str


@dataclass(frozen=True, slots=True)
class Adopted:
    """A process that an earlier control plane started is there; what it is doing, its HELLO will say."""


@dataclass(frozen=True, slots=True)
class Progressed:
    """The runner says that its load goes on."""

    warming: bool


@dataclass(frozen=True, slots=True)
class Loaded:
    """The runner has answered its warm-up inference."""


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """The runner says that it can't become ready; it is about to exit."""

    reason: str
    kind: FailureKind = FailureKind.LOAD


@dataclass(frozen=True, slots=True)
class Served:
    """The first request since the process became ready was answered."""


@dataclass(frozen=True, slots=True)
class Emptied:
    """After CloseToWork: no caller waits for the process any more. `stuck`: it still works, for callers who have left."""

    now: Instant
    stuck: bool


@dataclass(frozen=True, slots=True)
class SleepWanted:
    """It is to give its device memory back and keep its process. Work in progress gets `grace_s`."""

    grace_s: float


@dataclass(frozen=True, slots=True)
class Slept:
    """It has given its device memory back and keeps its process: the device's own counter says so."""


@dataclass(frozen=True, slots=True)
class Woken:
    """It has its device memory again."""


@dataclass(frozen=True, slots=True)
class SleepFailed:
    """Falling asleep or waking up failed, or what it says of it isn't true: it is neither half asleep nor trusted."""

    reason: str


@dataclass(frozen=True, slots=True)
class FoundHalfway:
    """The first word of an adopted process: it is falling asleep or waking up."""

    waking: bool


@dataclass(frozen=True, slots=True)
class Faulted:
    """The runner broke the wire's rules or closed its end."""

    reason: str


@dataclass(frozen=True, slots=True)
class Hung:
    """The process doesn't give back the place of a request that was given up. `grace_s`: what the others have whom it may still answer;
    0: there are none."""

    now: Instant
    reason: str
    grace_s: float


@dataclass(frozen=True, slots=True)
class TimeUp:
    """The timer that SetTimer started has run out."""


@dataclass(frozen=True, slots=True)
class Exited:
    """The keeper has reaped the process: proof that what it held is free."""

    now: Instant
    reason: str
    blameless: bool = False
    """Its process was shared, and ended while the instance did nothing."""
    over_memory: bool = False
    """It was ended because it held more memory than it may."""


class Left(enum.Enum):
    """What is really there of an instance."""

    NOTHING = "nothing"
    WORK = "work"
    """A build, a fetch or a spawn, which will tell its end."""
    PROCESS = "process"


@dataclass(frozen=True, slots=True)
class Broke:
    """A bug of ours: something that an event asked for wasn't done. What the state says may be wrong, what is `left` isn't."""

    now: Instant
    reason: str
    left: Left


Event = (
    Wanted
    | Prepare
    | Unwanted
    | Reset
    | Built
    | Fetched
    | ProvisionFailed
    | ProvisionCancelled
    | Granted
    | NeverFits
    | Spawned
    | SpawnFailed
    | Adopted
    | Progressed
    | Loaded
    | LoadFailed
    | Served
    | Emptied
    | SleepWanted
    | Slept
    | Woken
    | SleepFailed
    | FoundHalfway
    | Faulted
    | Hung
    | TimeUp
    | Exited
    | Broke
)


class Outcome(enum.Enum):
    """What waiters are told."""

    READY = "ready"
    ASLEEP = "asleep"
    STOPPED = "stopped"
    FAILED = "failed"
    CRASHED = "crashed"


@dataclass(frozen=True, slots=True)
class BuildEnvironment:
    """Answered by Built, ProvisionFailed or ProvisionCancelled."""


@dataclass(frozen=True, slots=True)
class FetchArtifacts:
    """Answered by Fetched, ProvisionFailed or ProvisionCancelled."""


@dataclass(frozen=True, slots=True)
class CancelProvision:
    """Ends what BuildEnvironment or FetchArtifacts began."""


@dataclass(frozen=True, slots=True)
class Reserve:
    """Get in line for memory. Answered by Granted or NeverFits, some time."""


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Out of the line again; no answer comes any more."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Reserve without asking what an adopted process holds anyway."""


@dataclass(frozen=True, slots=True)
class Release:
    """Give the reservation back."""


@dataclass(frozen=True, slots=True)
class Spawn:
    """Answered by Spawned or SpawnFailed."""


@dataclass(frozen=True, slots=True)
class OpenToWork:
    """Requests may go to the process from now on."""


@dataclass(frozen=True, slots=True)
class CloseToWork:
    """No further request may go to it. Answered by Emptied, unless the process ends first."""


class Cut(enum.Enum):
    """Why callers lose their request."""

    STOPPED = "stopped"
    """Their grace is over."""
    DIED = "died"
    """The process ended, or was killed for a fault."""


@dataclass(frozen=True, slots=True)
class CutOff:
    """Refuse the callers whom it still serves."""

    cause: Cut


@dataclass(frozen=True, slots=True)
class Ask:
    """Tell the process to end by itself."""

    grace_s: float


@dataclass(frozen=True, slots=True)
class Terminate:
    """SIGTERM to its session."""


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL to its session."""


@dataclass(frozen=True, slots=True)
class Sleep:
    """Let it give its device memory back; nothing is under way in it. Answered by Slept or SleepFailed."""


@dataclass(frozen=True, slots=True)
class Wake:
    """Let it take its device memory again. Answered by Woken or SleepFailed."""


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Answered by TimeUp; replaces the timer that is running."""

    seconds: float


@dataclass(frozen=True, slots=True)
class ClearTimer:
    """No TimeUp comes any more."""


@dataclass(frozen=True, slots=True)
class Announce:
    """Tell everybody who waits for this life."""

    outcome: Outcome


Command = (
    BuildEnvironment
    | FetchArtifacts
    | CancelProvision
    | Reserve
    | Withdraw
    | Claim
    | Release
    | Spawn
    | OpenToWork
    | CloseToWork
    | CutOff
    | Ask
    | Terminate
    | Kill
    | Sleep
    | Wake
    | SetTimer
    | ClearTimer
    | Announce
)
