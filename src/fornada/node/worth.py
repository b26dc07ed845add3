"""What an instance's absence would cost, measured where it happened before: how often it is asked, how long it takes to come and to go."""

from fornada.core.names import Instant
from fornada.core.policy.demand import Demand, rate, seen, usual
from fornada.core.policy.ladder import UNKNOWN, Ladder

HOUR_S = 3600.0
NEWEST = 0.5
"""What the newest measurement counts for: a machine's starts are quick or slow for a while."""


class Asked:
    """How often one version is asked, by whichever of its instances."""

    def __init__(self, now: Instant) -> None:
        self.count = 0
        """Requests that came, ever. Counted by the intake, on the way of each."""
        self.at = now
        self._demand = Demand(at=now)
        self._counted = 0
        self._foreseen_at = -1

    @property
    def foreseen(self) -> bool:
        """It was brought up before anybody asked, and nobody has asked since."""
        return self._foreseen_at == self.count

    def foresee(self) -> None:
        """It is brought up now, though nobody asks."""
        self._foreseen_at = self.count

    def wanted(self) -> None:
        """Somebody wants it, or it is over: what is said of requests that never came doesn't hold any more."""
        self._foreseen_at = -1

    def rate(self, now: Instant, wall: float) -> float:
        """Requests a second that are expected. `wall` in seconds since 1970: what is usual at an hour of day is learnt by it."""
        return rate(self._as_of(wall), now=now, hour=int(wall // HOUR_S))

    def usual(self, wall: float) -> float:
        """Requests a second at this hour of day, mean over the days."""
        return usual(self._as_of(wall), hour=int(wall // HOUR_S))

    def _as_of(self, wall: float) -> Demand:
        self._demand = seen(self._demand, self.count - self._counted, last=self.at, hour=int(wall // HOUR_S))
        self._counted = self.count
        return self._demand


class Worth:
    """Of one instance. Its intake tells when it opens and closes, the room when it takes and gives back memory."""

    def __init__(self, now: Instant) -> None:
        self._begun_at: Instant | None = None
        """While it comes up after a grant; None for who was there already."""
        self._closed_at = now
        self._start_s = UNKNOWN.start_s
        self._stop_s = UNKNOWN.stop_s
        self._measured = False

    def granted(self, now: Instant) -> None:
        self._begun_at = now

    def opened(self, now: Instant) -> None:
        """It is ready."""
        if self._begun_at is not None:
            took_s = now - self._begun_at
            self._start_s = self._start_s + NEWEST * (took_s - self._start_s) if self._measured else took_s
            self._measured, self._begun_at = True, None

    def closed(self, now: Instant) -> None:
        """No further request goes to it."""
        self._closed_at = now

    def released(self, now: Instant, *, answered_at: Instant) -> None:
        """Its process is proven gone. What it still answered after it was closed isn't part of the step."""
        self._begun_at = None
        took_s = max(0.0, now - max(self._closed_at, answered_at))
        self._stop_s += NEWEST * (took_s - self._stop_s)

    def take_after(self, other: "Worth") -> None:
        """Another instance of the same version has been measured already."""
        self._start_s, self._stop_s, self._measured = other._start_s, other._stop_s, other._measured

    @property
    def ladder(self) -> Ladder:
        return Ladder(start_s=self._start_s, stop_s=self._stop_s) if self._measured else UNKNOWN

    @property
    def start_s(self) -> float:
        """0 while it isn't known: then nobody is made to wait for it."""
        return self._start_s if self._measured else 0.0
