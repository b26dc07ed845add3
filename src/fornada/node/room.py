"""Who holds memory on this node and who waits for it: carries out what core.policy.placement decides.

The plan is made anew after every change and is cheap: it looks at a few dozen instances. Instances tell it that they come, go
or change; it tells them that their place is granted, that they must go, or that there will never be one.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from fornada.core.names import Instant, ModelName
from fornada.core.policy.placement import CPU, Holding, Need, Phase, Plan, plan
from fornada.node.devices import Devices

SOON_S = 0.005


class Resident(Protocol):
    """What the room sees of an instance."""

    key: str
    model: ModelName
    device_wish: str
    device_bytes: int
    memory_bytes: int

    @property
    def kept(self) -> bool:
        """Never a victim."""

    @property
    def runner_id(self) -> str:
        """Under which its process books device memory."""

    @property
    def phase(self) -> Phase: ...

    @property
    def last_used(self) -> Instant: ...

    @property
    def served_any(self) -> bool: ...

    @property
    def oldest_waiting(self) -> Instant | None: ...

    def granted(self, device: str) -> None: ...

    def never_fits(self, reason: str) -> None: ...

    def evicted(self, reason: str) -> None: ...


@dataclass(slots=True)
class _Held:
    resident: Resident
    device: str


@dataclass(slots=True)
class _Waiting:
    resident: Resident
    since: Instant


class Room:
    """The one writer of reservations."""

    def __init__(self, devices: Devices, *, max_resident: int, now: Callable[[], Instant], loop: asyncio.AbstractEventLoop) -> None:
        self._devices = devices
        self._max_resident = max_resident
        self._now = now
        self._loop = loop
        self._held: dict[str, _Held] = {}
        self._waiting: dict[str, _Waiting] = {}
        self._due = False
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        """For bytes that come back by themselves."""
        self._soon: asyncio.TimerHandle | None = None
        self.reasons: dict[str, str] = {}
        """Why who waits is still waiting, by key; as of the last plan."""

    # ---- what instances tell

    def join(self, resident: Resident) -> None:
        """It waits for a place; `granted` or `never_fits` will come."""
        self._waiting[resident.key] = _Waiting(resident, self._now())
        self.replan()

    def leave(self, resident: Resident) -> None:
        """It doesn't wait any more."""
        self._waiting.pop(resident.key, None)
        self.reasons.pop(resident.key, None)
        self.replan()

    def claim(self, resident: Resident, device: str) -> None:
        """It is there already: adopted from a predecessor."""
        self._held[resident.key] = _Held(resident, device)
        self.replan()

    def release(self, resident: Resident) -> None:
        """Its process is proven gone."""
        self._held.pop(resident.key, None)
        self.replan()

    def replan(self) -> None:
        """Something has changed. The plan is made once for all changes of this turn of the loop."""
        if not self._due:
            self._due = True
            self._loop.call_soon(self._turn)

    def replan_soon(self) -> None:
        """Requests have come or gone: of interest to who waits, but not worth a plan each."""
        if self._waiting and self._soon is None:
            self._soon = self._loop.call_later(SOON_S, self._replan_now)

    # ---- what others ask

    @property
    def anybody_waits(self) -> bool:
        return bool(self._waiting)

    def device_of(self, resident: Resident) -> str:
        held = self._held.get(resident.key)
        return held.device if held else ""

    def reserved(self) -> dict[str, int]:
        """Bytes given away, by device."""
        reserved: dict[str, int] = {}
        for held in self._held.values():
            count = held.resident.memory_bytes if held.device == CPU else self._charge(held)
            reserved[held.device] = reserved.get(held.device, 0) + count
        return reserved

    def residents(self) -> list[Resident]:
        return [held.resident for held in self._held.values()]

    def close(self) -> None:
        """Nobody gets a place or has to go any more."""
        self._closed = True
        self._disarm()
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None

    # ---- the turn

    def _replan_now(self) -> None:
        self._soon = None
        self.replan()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _turn(self) -> None:
        self._due = False
        if self._closed:
            return
        if not self._waiting:
            self.reasons = {}
            return
        now = self._now()
        made = plan(list(self._needs()), list(self._holdings()), self._devices.rooms(now=now), max_resident=self._max_resident)
        self._carry_out(made)
        self._arm(now)

    def _carry_out(self, made: Plan) -> None:
        self.reasons = made.waits
        for key, reason in made.never.items():
            self._waiting.pop(key).resident.never_fits(reason)
        for grant in made.grants:
            resident = self._waiting.pop(grant.key).resident
            self._held[grant.key] = _Held(resident, grant.device)
            resident.granted(grant.device)
        for key in made.evict:
            if key in self._held:
                self._held[key].resident.evicted("room")

    def _arm(self, now: Instant) -> None:
        """Bytes that come back by themselves are nobody's event."""
        self._disarm()
        at = self._devices.next_release(now=now)
        if self._waiting and at != float("inf"):
            self._timer = self._loop.call_later(max(0.0, at - now), self.replan)

    def _needs(self) -> Iterable[Need]:
        for waiting in self._waiting.values():
            resident = waiting.resident
            oldest = resident.oldest_waiting
            since = waiting.since if oldest is None else min(oldest, waiting.since)
            yield Need(resident.key, resident.model, resident.device_wish, resident.device_bytes, resident.memory_bytes, since)

    def _holdings(self) -> Iterable[Holding]:
        for key, held in self._held.items():
            resident = held.resident
            yield Holding(
                key=key,
                model=resident.model,
                device=held.device,
                charge_bytes=self._charge(held),
                phase=resident.phase,
                last_used=resident.last_used,
                oldest_waiting=resident.oldest_waiting,
                served=resident.served_any,
                kept=resident.kept,
            )

    def _charge(self, held: _Held) -> int:
        if held.device == CPU:
            return 0
        return max(held.resident.device_bytes, self._devices.booked(held.resident.runner_id, held.device))
