"""What a choice about memory looks at: who holds some, who waits for some, and what there is."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from fornada.core.names import Instant, ModelName
from fornada.core.policy.ladder import UNKNOWN, Ladder

CPU = "cpu"


class Phase(enum.Enum):
    """What a holder of memory is doing, as far as a choice needs to know."""

    COMING = "coming"
    """It takes its memory right now, by a start or by waking up, and can't be stopped for another's sake."""
    IDLE = "idle"
    BUSY = "busy"
    FALLING = "falling"
    """On its way to sleep: what it won't need there comes back soon."""
    ASLEEP = "asleep"
    """Its weights lie in host memory. To serve it has to wake up, and waits for room as one that has to start."""
    CLOSING = "closing"
    """On its way out: all that it holds comes back soon."""


READY = frozenset({Phase.IDLE, Phase.BUSY})


@dataclass(frozen=True, slots=True)
class Holding:
    """One instance that holds a reservation."""

    key: str
    model: ModelName
    device: str
    charge_bytes: int
    """Of its device, where that isn't the cpu."""
    phase: Phase
    last_used: Instant
    oldest_waiting: Instant | None
    """When its own oldest waiting request came; None if none waits."""
    served: bool
    """It has answered a request since it was ready."""
    kept: bool
    """Pinned, or wanted by min_instances: never a victim."""
    memory_bytes: int = 0
    """Charged of the host's memory, wherever it runs. While it falls asleep: what it will need there, if that is more."""
    rate: float = 0.0
    """Requests a second that are expected of it (core.policy.demand)."""
    ladder: Ladder = UNKNOWN
    work_left_s: float = 0.0
    """Until it has answered what it works on, or until it has arrived where it is going: the least that it may be."""
    queue_s: float = 0.0
    """How much longer it would work on what waits for it besides, if it were left alone."""
    known_to: str = ""
    """The account that alone may know of its model; empty: everybody."""


@dataclass(frozen=True, slots=True)
class Need:
    """One instance that waits for room: to start, or to wake up where a holding of the same key is asleep."""

    key: str
    model: ModelName
    device: str
    """auto | cpu | cuda | cuda:N, as the spec says."""
    device_bytes: int
    """Of the device, where that isn't the cpu."""
    memory_bytes: int
    """Of the host's memory, wherever it runs."""
    since: Instant
    in_s: float = 0.0
    """From its grant until it is ready: a start's time, or a wake-up's."""
    ladder: Ladder = UNKNOWN
    """As a holder it will have this one."""
    work_s: float = 0.0
    """What waits for it is answered this long after it is ready: the least that it may be."""
    spare: bool = False
    """It is to have what is left over, now or not at all: nobody goes for it, and it claims nothing."""
    known_to: str = ""
    """The account that alone may know of its model, and is told why it waits; empty: everybody."""


@dataclass(frozen=True, slots=True)
class DeviceRoom:
    """A device and what of it models may have."""

    id: str
    total_bytes: int
    """Less its reserve."""
    foreign_bytes: int = 0
    """Held by somebody else."""
    lingering_bytes: int = 0
    """Of processes that are gone, not yet given back by the device."""
    fenced: bool = False


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the operator sets."""

    max_resident: int = 0
    """Models (not instances) that hold a reservation and aren't asleep; 0: no bound by count."""
    max_wait_s: float = 60.0
    """The longest wait behind a swap."""


def host_of(devices: Sequence[DeviceRoom]) -> DeviceRoom | None:
    """The machine's own memory."""
    return next((device for device in devices if device.id == CPU), None)
