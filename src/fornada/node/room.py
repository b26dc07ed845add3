"""Who holds memory on this node and who waits for it: carries out what core.policy.placement decides.

The plan is made anew after every change and is cheap: it looks at a few dozen instances. Instances tell it that they come, go
or change; it tells them that their place is granted, that they must go, or that there will never be one.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from fornada.core.names import Instant, ModelName
from fornada.core.policy.forecast import forecast
from fornada.core.policy.memory import CPU, Bounds, DeviceRoom, Holding, Need, Phase
from fornada.core.policy.placement import Plan, plan
from fornada.core.policy.prefetch import prefetch
from fornada.core.policy.record import moment
from fornada.core.ports import Clock
from fornada.core.resources import format_size
from fornada.node.devices import Devices
from fornada.node.ledger import ASLEEP, Charged, Charges, Estimates, Ledger
from fornada.node.recorder import Recorder
from fornada.node.worth import Asked, Worth
from fornada.telemetry.log import Log

SOON_S = 0.005
FORECAST_HOLDS_S = 0.25
"""Requests to one model that come together are foretold the same: a forecast costs as much as several plans."""
PLAN_RESTS = 1.0
"""Times what the last plan took, until the next one, where that is more than SOON_S: hundreds who come together are planned for together."""
FORECAST_RESTS = 19.0
"""Times what the last forecast took, until the next one: where hundreds wait a twentieth of the time goes into foretelling, not all of it."""


class Resident(Charged, Protocol):
    """What the room sees of an instance."""

    key: str
    device_wish: str
    worth: Worth

    @property
    def kept(self) -> bool:
        """Never a victim."""

    @property
    def extra(self) -> bool:
        """One more of a model that has another instance: it takes what nobody wants, and is the first to go."""

    @property
    def foreseen(self) -> bool:
        """It is brought up before anybody asks, and nobody has asked yet: the same holds for it."""

    @property
    def phase(self) -> Phase: ...

    @property
    def last_used(self) -> Instant: ...

    @property
    def served_any(self) -> bool: ...

    @property
    def oldest_waiting(self) -> Instant | None: ...

    def rate(self, now: Instant, wall: float) -> float:
        """Requests a second that are expected of it; `wall` in seconds since 1970."""

    def granted(self, device: str) -> None: ...

    def no_room(self) -> None:
        """It is `extra` or `foreseen`, and there is nothing left over for it now."""

    def never_fits(self, reason: str) -> None: ...

    def evicted(self, reason: str) -> None: ...

    def put_to_sleep(self, reason: str) -> None: ...


Holders = dict[str, list[tuple[Resident, Charges]]]
"""By device."""


@dataclass(slots=True)
class _Held:
    resident: Resident
    device: str
    promised: Estimates


@dataclass(slots=True)
class _Waiting:
    resident: Resident
    since: Instant


@dataclass(frozen=True, slots=True)
class _Foretold:
    """A wait, and when it was looked at."""

    at: Instant
    waits_s: float


class _Look(NamedTuple):
    """What a choice is made from."""

    now: Instant
    holdings: list[Holding]
    rooms: list[DeviceRoom]


class Room:
    """The one writer of reservations."""

    def __init__(
        self,
        devices: Devices,
        ledger: Ledger,
        *,
        bounds: Bounds,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        log: Log,
        recorder: Recorder | None = None,
        known_to: Callable[[ModelName], str] = lambda model: "",
    ) -> None:
        """`known_to`: the account that alone may know of a model; empty: everybody."""
        self._devices = devices
        self._ledger = ledger
        self._bounds = bounds
        self._now, self._wall = clock.now, clock.wall
        self._loop = loop
        self._log = log
        self._recorder = recorder
        self._known_to = known_to
        self._held: dict[str, _Held] = {}
        self._waiting: dict[str, _Waiting] = {}
        self._due = False
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        """For what time alone changes: bytes that come back by themselves, and wishes that have waited long enough."""
        self._soon: asyncio.TimerHandle | None = None
        self._foretold: dict[str, _Foretold] = {}
        self._turn_s = 0.0
        """What the last plan took."""
        self._foretells_at = Instant(float("-inf"))
        """Not before."""
        self.reasons: dict[str, str] = {}
        """Why who waits is still waiting, by key; as of the last plan."""
        self._logged: dict[str, bool] = {}
        """Who waits, by key, and whether bytes were on their way back when the log was told of it last."""
        self._sakes: dict[str, str] = {}
        """Who has to go, and whose need it is that they make room for; as of the last plan."""

    def worth_of(self, model: ModelName, now: Instant) -> Worth:
        """For a new instance."""
        return self._recorder.worth(model, now) if self._recorder is not None else Worth(now)

    def asked_of(self, model: ModelName, now: Instant) -> Asked:
        """For a new version's first instance."""
        return self._recorder.asked(model, now) if self._recorder is not None else Asked(now)

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
        self._held[resident.key] = _Held(resident, device, self._ledger.estimates(resident))
        self.replan()

    def slept(self, resident: Resident) -> None:
        """It has given back what it doesn't need asleep, and is promised no more of it until it is granted anew, whatever becomes of it."""
        if resident.key in self._held:
            self._held[resident.key].promised = ASLEEP
        self.replan()

    def release(self, resident: Resident) -> None:
        """Its process is proven gone."""
        if self._held.pop(resident.key, None) is not None:
            resident.worth.released(self._now(), answered_at=resident.last_used)
        self.replan()

    def true_up(self, there: Mapping[str, tuple[Resident, str]]) -> list[str]:
        """`there` are all that have or begin a process, and the device of each. Who isn't there has no place, who is has one. Returns the
        keys of those for whom that wasn't so: a bug of ours, which is not to cost anybody memory for ever."""
        gone = [key for key in self._held if key not in there]
        for key in gone:
            del self._held[key]
        missed = [key for key in there if key not in self._held]
        for key in missed:
            self.claim(*there[key])
        if gone:
            self.replan()
        return gone + missed

    def replan(self) -> None:
        """Something has changed. The plan is made once for all changes of this turn of the loop."""
        if self._due:
            return
        self._due = True
        if self._turn_s < SOON_S:
            self._loop.call_soon(self._turn)
        else:
            self._loop.call_later(PLAN_RESTS * self._turn_s, self._turn)

    def replan_soon(self) -> None:
        """Requests have come or gone: of interest to who waits, but not worth a plan each."""
        if self._waiting and self._soon is None:
            self._soon = self._loop.call_later(SOON_S, self._replan_now)

    # ---- what others ask

    @property
    def anybody_waits(self) -> bool:
        return bool(self._waiting)

    @property
    def wanted_of_host(self) -> int:
        """The most that one of those who wait needs of the host, wherever it computes."""
        return max((need.memory_bytes for need in self._needs()), default=0)

    def waits_s(self, resident: Resident) -> float:
        """How long it would wait for room at least, were it wanted now; 0 where nobody else waits, or where that can't be told."""
        if (resident.key in self._held and resident.phase is not Phase.ASLEEP) or not (self._waiting.keys() - {resident.key}):
            return 0.0
        known = self._foretold.get(resident.key)
        fresh = known is not None and self._now() - known.at <= FORECAST_HOLDS_S
        if not fresh and self._now() >= self._foretells_at:
            now, holdings, rooms = self._look()
            needs = list(self._needs())
            if resident.key not in self._waiting:
                needs.append(self._need(resident, now))
            ready_s = forecast(needs, holdings, rooms, bounds=self._bounds, now=now)
            self._foretold = {need.key: _Foretold(now, max(0.0, ready_s.get(need.key, 0.0) - need.in_s)) for need in needs}
            known = self._foretold[resident.key]
            done = self._now()
            self._foretells_at = Instant(done + FORECAST_RESTS * (done - now))
        # Who can't be told yet is let in: at the bound he is told at the latest.
        return known.waits_s if known is not None else 0.0

    def left_over(self, resident: Resident) -> bool:
        """There is room for one more that nobody else wants."""
        now, holdings, rooms = self._look()
        made = plan([*self._needs(), self._need(resident, now)], holdings, rooms, bounds=self._bounds, now=now)
        return any(grant.key == resident.key for grant in made.grants)

    def line(self) -> list[tuple[Resident, Instant]]:
        """Who waits for a place, and since when; the oldest wish first."""
        return [(waiting.resident, waiting.since) for waiting in sorted(self._waiting.values(), key=lambda waiting: waiting.since)]

    def sake(self, key: str) -> str:
        """For which model it has to go; empty where the last plan chose it for none."""
        waiting = self._waiting.get(self._sakes.get(key, ""))
        return waiting.resident.model if waiting is not None else ""

    def may_come_unasked(self, wishes: Sequence[tuple[Resident, float]]) -> str:
        """The key of the one that is most worth bringing up into what is free (core.policy.prefetch); empty: none. With the rate of
        requests that is expected of each."""
        now, holdings, rooms = self._look()
        needs = [(self._need(resident, now), rate) for resident, rate in wishes]
        best = prefetch(needs, list(self._needs()), holdings, rooms, bounds=self._bounds, now=now)
        return best.key if best is not None else ""

    def device_of(self, resident: Resident) -> str:
        held = self._held.get(resident.key)
        return held.device if held else ""

    def holders(self) -> Holders:
        """Who has a place, and what that is charged."""
        holders: Holders = {}
        for held in self._held.values():
            holders.setdefault(held.device, []).append((held.resident, self._of(held)))
        return holders

    def charged(self) -> dict[str, dict[str, int]]:
        """Accelerator -> process -> bytes."""
        return self._charged(self.holders())

    def charges(self, resident: Resident) -> Charges | None:
        """None: it has no place."""
        held = self._held.get(resident.key)
        return self._of(held) if held is not None else None

    def charged_bytes(self, resident: Resident) -> int:
        """Of its device, or of the host where that is it; 0 without a place."""
        charges = self.charges(resident)
        if charges is None:
            return 0
        return charges.memory.bytes if self.device_of(resident) == CPU else charges.device.bytes

    def may_grow(self, resident: Resident, device: str, count: int) -> str:
        """It is about to take so many bytes more of its device. Beyond its own charge it may have what nobody else was promised. Empty:
        it may; else why not."""
        process = resident.process
        held = self._devices.held(process.id, device) if process is not None else 0
        charges = self.charges(resident)
        own = max(0, charges.device.bytes - held) if charges is not None else 0
        if count <= own or device not in self._devices.accelerators:
            return ""
        free = max(0, own + self.spare_bytes(device))
        if count <= free:
            return ""
        total = format_size(self._devices.total_bytes(device))
        return f"{device} has {format_size(free)} free of {total}, {format_size(count)} were asked for"

    def houses(self, resident: Resident, host_bytes: int) -> bool:
        """The host has room for so much of one that has a place, beyond what it is charged there already."""
        own = self.charges(resident)
        more = host_bytes - own.memory.bytes if own is not None else host_bytes
        return more <= 0 or more <= self.spare_bytes(CPU)

    def _of(self, held: _Held) -> Charges:
        held.promised = self._ledger.standing(held.resident, held.promised)
        return self._ledger.charges(held.resident, held.device, held.promised)

    def spare_bytes(self, device: str) -> int:
        """That nobody was promised; of the host whoever has a place takes some."""
        holders = self.holders()
        rooms = self._devices.rooms(charged=self._charged(holders), now=self._now())
        room = next(room for room in rooms if room.id == device)
        if device == CPU:
            taken = sum(charges.memory.bytes for on in holders.values() for _, charges in on)
        else:
            taken = sum(charges.device.bytes for _, charges in holders.get(device, ()))
        return room.total_bytes - room.foreign_bytes - room.lingering_bytes - taken

    def on(self, device: str) -> list[Resident]:
        """Who has a place there."""
        return [held.resident for held in self._held.values() if held.device == device]

    def residents(self) -> list[Resident]:
        return [held.resident for held in self._held.values()]

    def close(self) -> None:
        """Nobody gets a place or has to go any more."""
        self._closed = True
        self._disarm()
        if self._recorder is not None:
            self._recorder.close()
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
            self.reasons, self._logged = {}, {}
            return
        now, holdings, rooms = self._look()
        needs = list(self._needs())
        made = plan(needs, holdings, rooms, bounds=self._bounds, now=now)
        if self._recorder is not None:
            self._recorder.note(moment(needs, holdings, rooms, bounds=self._bounds, now=now, made=made))
        self._carry_out(made)
        self._note_waits(rooms)
        self._arm(made.again_at, now)
        self._turn_s = self._now() - now

    def _carry_out(self, made: Plan) -> None:
        self.reasons = made.waits
        for key, reason in made.never.items():
            self._waiting.pop(key).resident.never_fits(reason)
        for key in made.declined:
            self._waiting.pop(key).resident.no_room()
        for grant in made.grants:
            resident = self._waiting.pop(grant.key).resident
            self._held[grant.key] = _Held(resident, grant.device, self._ledger.estimates(resident))
            resident.worth.granted(self._now())
            resident.granted(grant.device)
        self._sakes = made.sakes
        for key in made.evict:
            if key in self._held:
                self._held[key].resident.evicted("room")
        for key in made.sleep:
            if key in self._held:
                self._held[key].resident.put_to_sleep("room")

    def _note_waits(self, rooms: Sequence[DeviceRoom]) -> None:
        """When somebody begins to wait, and whenever it changes whether that is for bytes of processes that are gone: not with every plan."""
        lingering = {room.id: room.lingering_bytes for room in rooms if room.lingering_bytes}
        for key, reason in self.reasons.items():
            if key in self._waiting and self._logged.get(key) != bool(lingering):
                self._log.info("room.waits", model=self._waiting[key].resident.model, reason=reason, lingering_bytes=lingering)
        self._logged = dict.fromkeys(self.reasons, bool(lingering))

    def _arm(self, again_at: Instant, now: Instant) -> None:
        """What time alone changes is nobody's event."""
        self._disarm()
        at = min(again_at, self._devices.next_release(now=now))
        if self._waiting and at != float("inf"):
            self._timer = self._loop.call_later(max(0.0, at - now), self.replan)

    def _look(self) -> _Look:
        now, holders = self._now(), self.holders()
        return _Look(now, list(self._holdings(holders)), list(self._devices.rooms(charged=self._charged(holders), now=now)))

    def _needs(self) -> Iterable[Need]:
        for waiting in self._waiting.values():
            resident = waiting.resident
            oldest = resident.oldest_waiting
            since = waiting.since if oldest is None else min(oldest, waiting.since)
            yield self._need(resident, since)

    def _need(self, resident: Resident, since: Instant) -> Need:
        device, memory = self._ledger.needs(resident, self._devices.accelerators)
        worth = resident.worth
        wish = resident.device_wish
        spare = resident.foreseen or (resident.extra and not resident.kept)
        return Need(
            key=resident.key,
            model=resident.model,
            device=wish,
            device_bytes=device,
            memory_bytes=memory,
            since=since,
            in_s=worth.start_s,
            ladder=worth.ladder,
            spare=spare,
            known_to=self._known_to(resident.model),
        )

    def _holdings(self, holders: Holders) -> Iterable[Holding]:
        now, wall = self._now(), self._wall()
        for device, on in holders.items():
            for resident, charges in on:
                phase, ladder = resident.phase, resident.worth.ladder
                # A lease from the moment on at which it was chosen: it can't wait for room half asleep.
                lease = ladder.asleep_host_bytes if phase is Phase.FALLING else 0
                yield Holding(
                    key=resident.key,
                    model=resident.model,
                    device=device,
                    charge_bytes=charges.device.bytes,
                    phase=phase,
                    last_used=resident.last_used,
                    oldest_waiting=resident.oldest_waiting,
                    served=resident.served_any,
                    kept=resident.kept,
                    memory_bytes=max(charges.memory.bytes, lease),
                    rate=resident.rate(now, wall),
                    ladder=ladder,
                    known_to=self._known_to(resident.model),
                )

    def _charged(self, holders: Holders) -> dict[str, dict[str, int]]:
        """Device -> process -> bytes."""
        return {
            device: {process.id: charges.device.bytes for resident, charges in on if (process := resident.process) is not None}
            for device, on in holders.items()
        }
