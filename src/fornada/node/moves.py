"""What goes up and down the ladder on this node, as it happens: how long each step took, for how much of the time a device was swapping, and
who had to go, why and for whom.

Nothing is decided by it. It is read by people and by whoever scrapes the metrics, and keeps a bounded number of entries.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from fornada.core.lifecycle.events import FailureKind
from fornada.core.lifecycle.life import Failure
from fornada.core.lifecycle.states import CLOSING, WITH_RESERVATION, State
from fornada.core.names import Instant, ModelName
from fornada.core.policy.memory import CPU
from fornada.core.ports import Version
from fornada.telemetry.metrics import Metrics
from fornada.telemetry.times import rfc3339

WINDOW_S = 60.0
"""Over which the share of time is told."""
ENTRIES = 64
"""The last evictions that are kept."""
INTERVALS = 4096
"""The last stretches of swapping that are kept of each device."""
_BEGINS = {
    State.SPAWNING: "start",
    State.UNWANTED: "stop",
    State.STOPPING: "stop",
    State.FALLING_ASLEEP: "sleep",
    State.WAKING: "wake",
}
_GOES_ON = frozenset({State.LOADING, State.WARMING})
_ARRIVES = {"start": {State.READY}, "wake": {State.READY}, "sleep": {State.ASLEEP, State.ROUSED}}
"""A step that ends elsewhere has failed, and teaches nothing of how long it takes."""
_UP = frozenset({"start", "wake"})
_WORDS = {
    "room": "room",
    "idle": "idle",
    "unused": "idle",
    "an operator unloaded it": "operator",
    "an operator put it to sleep": "operator",
    "another version took its place": "deploy",
    "a newer version was deployed": "deploy",
    "removed": "removed",
    "its device memory ran out: it comes back with more": "memory",
    "the node stops": "shutdown",
}
"""Reasons as they are given to an instance, by the label that counts them."""
OTHER = "other"
FAULT = "fault"
HUNG = "hung"


class Mover(Protocol):
    """What is known of an instance."""

    key: str
    model: ModelName
    version: Version
    device: str

    @property
    def state(self) -> State: ...


@dataclass(frozen=True, slots=True)
class _Move:
    """One step of one instance, under way."""

    step: str
    device: str
    since: Instant


@dataclass(slots=True)
class _Clock:
    """Of one device: how long it has been swapping, by what at once."""

    at: Instant
    up: int = 0
    down: int = 0
    total_s: dict[str, float] = field(default_factory=lambda: {"in": 0.0, "out": 0.0, "both": 0.0})
    stretches: deque[tuple[Instant, Instant]] = field(default_factory=lambda: deque(maxlen=INTERVALS))

    def turn(self, now: Instant) -> None:
        """Counts up to `now` what has been under way since the last turn."""
        kind = "both" if self.up and self.down else "in" if self.up else "out" if self.down else ""
        if kind and now > self.at:
            self.total_s[kind] += now - self.at
            if self.stretches and self.stretches[-1][1] == self.at:
                self.stretches.append((self.stretches.pop()[0], now))
            else:
                self.stretches.append((self.at, now))
        self.at = now

    def lately_s(self, since: Instant) -> float:
        return sum(until - max(begun, since) for begun, until in self.stretches if until > since)


class Moves:
    """Of one node. Each instance tells it of every change of its state."""

    def __init__(
        self, *, now: Callable[[], Instant], wall: Callable[[], float], metrics: Metrics, sake: Callable[[str], str] = lambda key: ""
    ) -> None:
        """`sake`: key of an instance -> the model for which it has to make room; empty: for none."""
        self._now, self._wall = now, wall
        self._metrics = metrics
        self._began_at = now()
        self._sake = sake
        self._under_way: dict[str, _Move] = {}
        self._clocks: dict[str, _Clock] = {}
        self._left: deque[dict[str, Any]] = deque(maxlen=ENTRIES)
        metrics.swap_seconds.read = self._totals

    def note(self, mover: Mover) -> None:
        """Its state may have changed."""
        state, move = mover.state, self._under_way.get(mover.key)
        step = _BEGINS.get(state, move.step if move is not None and state in _GOES_ON else "")
        if step == (move.step if move is not None else ""):
            return
        now = self._now()
        if move is not None:
            del self._under_way[mover.key]
            self._count(move.device, move.step, -1, now)
            if state in _ARRIVES.get(move.step, {state}):
                self._metrics.step_seconds.at(mover.model, move.step).observe(now - move.since)
        if step:
            self._under_way[mover.key] = _Move(step, mover.device or CPU, now)
            self._count(mover.device or CPU, step, +1, now)

    def told_to_go(self, mover: Mover, reason: str) -> None:
        """It isn't wanted any more. Told before its state changes. Who has no place, or is on its way out already, loses nothing by it."""
        if mover.state in WITH_RESERVATION and mover.state not in CLOSING:
            self._note_left(mover, _WORDS.get(reason, OTHER), reason)

    def fell(self, mover: Mover, failure: Failure) -> None:
        """It was ready, and a fault ended it, or it hung."""
        self._note_left(mover, HUNG if failure.kind is FailureKind.HUNG else FAULT, failure.reason)

    # ---- for people

    def evictions(self) -> list[dict[str, Any]]:
        """The newest first."""
        return list(reversed(self._left))

    def shares(self) -> dict[str, Any]:
        """Of the last minute, or of the time since the beginning if that is less: how much of it each device was swapping."""
        now = self._now()
        window_s = min(WINDOW_S, max(now - self._began_at, 1e-9))
        since = Instant(now - window_s)
        for clock in self._clocks.values():
            clock.turn(now)
        shares = {device: round(min(1.0, clock.lately_s(since) / window_s), 4) for device, clock in self._clocks.items()}
        return {"window_s": round(window_s, 3), "devices": shares}

    # ---- within

    def _note_left(self, mover: Mover, label: str, reason: str) -> None:
        self._metrics.evictions.at(mover.model, label).value += 1
        entry = {
            "time": rfc3339(self._wall()),
            "model": mover.model,
            "version": mover.version.digest,
            "device": mover.device or CPU,
            "state": mover.state.value,
            "reason": label,
            "why": reason,
            "made_room_for": self._sake(mover.key) if label == "room" else "",
        }
        self._left.append(entry)

    def _count(self, device: str, step: str, by: int, now: Instant) -> None:
        clock = self._clocks.setdefault(device, _Clock(now))
        clock.turn(now)
        if step in _UP:
            clock.up += by
        else:
            clock.down += by

    def _totals(self) -> Iterator[tuple[tuple[str, ...], float]]:
        now = self._now()
        for device, clock in self._clocks.items():
            clock.turn(now)
            for direction, total_s in clock.total_s.items():
                yield (device, direction), total_s
