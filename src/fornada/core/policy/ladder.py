"""What an instance that isn't used may step down to, and what coming back costs.

    ready ── sleep_s ──> asleep ── stop_s ──> stopped
      <──── wake_s ──────┘                      │
      <──────────────── start_s ────────────────┘

Ready holds the device's memory. Asleep holds host memory instead, and of the device only what can't be given back while the process lives.
Stopped holds nothing. Every step's time is measured where it was taken before; how is the caller's business.
"""

import enum
from dataclasses import dataclass


class Rung(enum.IntEnum):
    """Lower is less memory."""

    STOPPED = 0
    ASLEEP = 1
    READY = 2


@dataclass(frozen=True, slots=True)
class Ladder:
    """Of one instance. Times in seconds."""

    start_s: float = 1.0
    """From nothing until it is ready."""
    stop_s: float = 0.0
    """From the last answer until its memory is back."""
    sleeps: bool = False
    """Its engine can give device memory back and take it again with equal answers, and this has been seen to work here."""
    sleep_s: float = 0.0
    wake_s: float = 0.0
    asleep_bytes: int = 0
    """Of its device while asleep: contexts and code that go with the process only."""
    asleep_host_bytes: int = 0
    """Of the host while asleep: the process and its weights."""


UNKNOWN = Ladder()
"""Of who was never started: all of them are worth the same then."""


def swap_s(ladder: Ladder, rung: Rung) -> float:
    """Seconds that stepping down from ready to `rung` and coming back costs."""
    match rung:
        case Rung.READY:
            return 0.0
        case Rung.ASLEEP:
            return ladder.sleep_s + ladder.wake_s
        case Rung.STOPPED:
            return ladder.stop_s + ladder.start_s


def down_s(ladder: Ladder, rung: Rung) -> float:
    """Seconds until what `rung` doesn't need is back."""
    return {Rung.READY: 0.0, Rung.ASLEEP: ladder.sleep_s, Rung.STOPPED: ladder.stop_s}[rung]


def resting_rung(ladder: Ladder) -> Rung:
    """Where an instance goes that has to leave ready, as long as host memory is there: asleep, where it can sleep and the way back and
    forth is shorter than a stop and a start. A start of a few milliseconds from a zygote isn't worth a copy in host memory."""
    return Rung.ASLEEP if ladder.sleeps and swap_s(ladder, Rung.ASLEEP) < swap_s(ladder, Rung.STOPPED) else Rung.STOPPED


def loss(ladder: Ladder, rung: Rung, *, rate: float) -> float:
    """What it costs to have an instance at `rung` and not ready: the seconds of a swap over the gap that is expected until a request has
    to bring it back (`rate` is its inverse)."""
    return rate * swap_s(ladder, rung)


def loss_of_sleep(ladder: Ladder, *, rate: float) -> float:
    """What it costs to stop one that is asleep: the start that takes longer than waking up would, in the unit of `loss`."""
    return rate * max(0.0, ladder.start_s - ladder.wake_s)
