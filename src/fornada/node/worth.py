"""What an instance's absence would cost, measured where it happened before: how often it is asked, how long it takes to come and to go."""

from dataclasses import replace

from fornada.core.names import Instant
from fornada.core.policy.demand import Demand, hour_of, rate, seen, usual
from fornada.core.policy.ladder import UNKNOWN, Ladder

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
        return rate(self._as_of(wall), now=now, hour=hour_of(wall))

    def usual(self, wall: float) -> float:
        """Requests a second at this hour of day, mean over the days."""
        return usual(self._as_of(wall), hour=hour_of(wall))

    def _as_of(self, wall: float) -> Demand:
        self._demand = seen(self._demand, self.count - self._counted, last=self.at, hour=hour_of(wall))
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
        self._sleep: Ladder | None = None
        """What is known of its sleep and its wake; None: it doesn't sleep here."""
        self._slept = False
        """That was measured, not guessed."""
        self._woke = False
        self._tried = False
        """It has slept, or failed to."""
        self._asleep = False

    def granted(self, now: Instant) -> None:
        self._begun_at = now

    def opened(self, now: Instant) -> None:
        """It is ready."""
        asleep, self._asleep = self._asleep, False
        if asleep and self._begun_at is not None and self._sleep is not None:
            took_s, self._begun_at = now - self._begun_at, None
            self._sleep = replace(self._sleep, wake_s=_newer(self._sleep.wake_s, took_s, known=self._woke))
            self._woke = True
        elif self._begun_at is not None:
            took_s = now - self._begun_at
            self._start_s = self._start_s + NEWEST * (took_s - self._start_s) if self._measured else took_s
            self._measured, self._begun_at = True, None

    def closed(self, now: Instant) -> None:
        """No further request goes to it."""
        self._closed_at = now

    def offers_sleep(self, now: Instant, *, step_s: float, host_bytes: int) -> None:
        """Its process says that it can; `step_s` and `host_bytes` are guesses, which hold until it has slept."""
        if not self._tried:
            self._sleep = Ladder(sleeps=True, sleep_s=step_s, wake_s=step_s, asleep_host_bytes=host_bytes)

    def slept(self, now: Instant, *, answered_at: Instant, device_bytes: int, host_bytes: int) -> None:
        """It has given its memory back, but for so many bytes."""
        took_s = max(0.0, now - max(self._closed_at, answered_at))
        known = self._sleep or Ladder(wake_s=took_s)
        sleep_s = _newer(known.sleep_s, took_s, known=self._slept)
        self._sleep = replace(known, sleeps=True, sleep_s=sleep_s, asleep_bytes=device_bytes, asleep_host_bytes=host_bytes)
        self._slept = self._tried = self._asleep = True

    def sleeps_badly(self) -> None:
        """A sleep or a wake has failed: it is stopped instead from here on."""
        self._sleep, self._tried, self._asleep = None, True, False

    def released(self, now: Instant, *, answered_at: Instant) -> None:
        """Its process is proven gone. What it still answered after it was closed isn't part of the step."""
        self._begun_at, self._asleep = None, False
        took_s = max(0.0, now - max(self._closed_at, answered_at))
        self._stop_s += NEWEST * (took_s - self._stop_s)

    def take_after(self, other: "Worth") -> None:
        """Another instance of the same version has been measured already."""
        self._start_s, self._stop_s, self._measured = other._start_s, other._stop_s, other._measured

    @property
    def ladder(self) -> Ladder:
        base = Ladder(start_s=self._start_s, stop_s=self._stop_s) if self._measured else UNKNOWN
        return base if self._sleep is None else replace(self._sleep, start_s=base.start_s, stop_s=base.stop_s)

    @property
    def start_s(self) -> float:
        """From its grant until it is ready; 0 while it isn't known: then nobody is made to wait for it."""
        if self._asleep and self._sleep is not None:
            return self._sleep.wake_s
        return self._start_s if self._measured else 0.0


def _newer(known_s: float, took_s: float, *, known: bool) -> float:
    return known_s + NEWEST * (took_s - known_s) if known else took_s
