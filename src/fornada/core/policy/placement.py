"""Who may take memory next, on which device, and who has to go for it.

Strict order: models that wait are served oldest wish first. A younger one passes an older one only where it takes nothing
that the older one is waiting for, so nobody starves behind a stream of small models. Victims are the least recently used
idle ones; where they don't suffice, busy ones are drained. A model that was just brought in serves before it may go again,
and never goes for a wish that is younger than its own oldest waiting request: two models with steady traffic take turns.

What each of them takes, of its device and of the host, are charges of core.policy.charges. Choosing by value (rate, cost of coming
back) replaces `_order`.
"""

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from fornada.core.names import Instant, ModelName
from fornada.core.resources import format_size

CPU = "cpu"


class Phase(enum.Enum):
    """What a holder of memory is doing, as far as a choice needs to know."""

    COMING = "coming"
    """It takes its memory right now and can't be stopped for another's sake."""
    IDLE = "idle"
    BUSY = "busy"
    CLOSING = "closing"
    """On its way out: what it holds comes back soon."""


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
    """Charged of the host's memory, wherever it runs."""


@dataclass(frozen=True, slots=True)
class Need:
    """One instance that waits for room."""

    key: str
    model: ModelName
    device: str
    """auto | cpu | cuda | cuda:N, as the spec says."""
    device_bytes: int
    """Of the device, where that isn't the cpu."""
    memory_bytes: int
    """Of the host's memory, wherever it runs."""
    since: Instant


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
class Grant:
    """The instance may take its memory now."""

    key: str
    device: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now."""

    grants: tuple[Grant, ...] = ()
    evict: tuple[str, ...] = ()
    """Instances to drain and stop, in the order of choice."""
    waits: dict[str, str] = field(default_factory=dict)
    """Who waits on: what for, in words."""
    never: dict[str, str] = field(default_factory=dict)
    """Who can't ever fit: why, with both numbers."""


def plan(needs: Sequence[Need], holdings: Sequence[Holding], devices: Sequence[DeviceRoom], *, max_resident: int) -> Plan:
    """`max_resident` bounds the models (not instances) that hold a reservation; 0 doesn't."""
    room = _Room(holdings, devices, max_resident)
    grants: list[Grant] = []
    evict: list[str] = []
    waits: dict[str, str] = {}
    never: dict[str, str] = {}
    for need in sorted(needs, key=lambda need: (need.since, need.key)):
        candidates = candidates_of(need, devices)
        if isinstance(candidates, str):
            never[need.key] = candidates
            continue
        usable = [device for device in candidates if not device.fenced]
        if not usable:
            waits[need.key] = f"{', '.join(device.id for device in candidates)}: fenced after a fault"
            continue
        fitting = [device for device in usable if room.fits_now(need, device)]
        if fitting:
            best = max(fitting, key=room.free_now)
            room.grant(need, best.id)
            grants.append(Grant(need.key, best.id))
            continue
        device, victims = _least_damage(room, need, usable)
        room.close(victims)
        evict += [victim.key for victim in victims]
        waits[need.key] = room.explain(need, device)
        room.claim(need, device.id)
    return Plan(tuple(grants), tuple(evict), waits, never)


def candidates_of(need: Need, devices: Sequence[DeviceRoom]) -> list[DeviceRoom] | str:
    """Devices that the need could ever live on, or why there is none."""
    host = next((device for device in devices if device.id == CPU), None)
    if host and need.memory_bytes > host.total_bytes:
        return f"needs {format_size(need.memory_bytes)} of host memory, this node has {format_size(host.total_bytes)} for models"
    accelerators = [device for device in devices if device.id != CPU]
    if need.device == CPU or (need.device == "auto" and (not need.device_bytes or not accelerators)):
        return [device for device in devices if device.id == CPU] or [DeviceRoom(CPU, 0)]
    named = accelerators if need.device in ("auto", "cuda") else [device for device in accelerators if device.id == need.device]
    if not named:
        present = ", ".join(device.id for device in devices) or "none"
        return f"asks for the device '{need.device}'; this node has: {present}"
    large = [device for device in named if need.device_bytes <= device.total_bytes]
    if not large:
        most = max(device.total_bytes for device in named)
        return f"needs {format_size(need.device_bytes)} of device memory, the largest such device has {format_size(most)}"
    return large


class _Room:
    """The picture that a plan works on: what is held now, and what will be once everything under way has happened."""

    def __init__(self, holdings: Sequence[Holding], devices: Iterable[DeviceRoom], max_resident: int) -> None:
        self._held = list(holdings)
        self._going = {holding.key for holding in holdings if holding.phase is Phase.CLOSING}
        self._max = max_resident
        self._devices = {device.id: device for device in devices}
        self._host = self._devices.get(CPU)
        self._granted: set[ModelName] = set()
        self._claimed: set[ModelName] = set()
        """By older needs that wait on."""
        self._taken: list[tuple[str, int]] = []
        """Bytes of a device, granted in this plan or claimed by an older need."""

    def evictable(self, need: Need) -> list[Holding]:
        return [holding for holding in self._held if holding.key not in self._going and _may_go(holding, need)]

    def free_now(self, device: DeviceRoom) -> int:
        return self._free(device, self._held) - device.lingering_bytes

    def fits_now(self, need: Need, device: DeviceRoom) -> bool:
        return self._slot_now(need.model) and not any(missing > 0 for _, missing, _ in self._missing_now(need, device))

    def fits_then(self, need: Need, device: DeviceRoom, without: Iterable[Holding] = ()) -> bool:
        gone = self._going | {holding.key for holding in without}
        staying = [holding for holding in self._held if holding.key not in gone]
        models = {holding.model for holding in staying} | self._granted | self._claimed
        wants = self._wants(need, device)
        return self._slot(models, need.model) and all(count <= self._free(where, staying) for where, count in wants)

    def grant(self, need: Need, device: str) -> None:
        self._granted.add(need.model)
        self._take(need, device)

    def claim(self, need: Need, device: str) -> None:
        self._claimed.add(need.model)
        self._take(need, device)

    def close(self, victims: Iterable[Holding]) -> None:
        self._going |= {victim.key for victim in victims}

    def explain(self, need: Need, device: DeviceRoom) -> str:
        going = sorted({holding.model for holding in self._held if holding.key in self._going})
        parts = []
        if not self._slot_now(need.model):
            parts.append(f"{self._max} of {self._max} resident models (max_resident)")
        for where, missing, needed in self._missing_now(need, device):
            if missing > 0:
                free = format_size(needed - missing)
                parts.append(f"{where} has {free} free of {format_size(needed)} needed, {format_size(missing)} are missing")
        if going:
            parts.append(f"waits for the end of {', '.join(going)}")
        return "; ".join(parts) or "waits for older wishes"

    def _slot_now(self, model: ModelName) -> bool:
        present = {holding.model for holding in self._held} | self._granted
        if model in present or not self._max:
            return True
        # An older need of the same model that waits for the place comes first.
        return model not in self._claimed and len(present | self._claimed) < self._max

    def _slot(self, models: set[ModelName], model: ModelName) -> bool:
        return not self._max or model in models or len(models) < self._max

    def _wants(self, need: Need, device: DeviceRoom) -> list[tuple[DeviceRoom, int]]:
        """Where bytes must be free for the need to live on `device`, and how many."""
        wants = [(self._host, need.memory_bytes)] if self._host is not None and need.memory_bytes else []
        return wants if device.id == CPU or not need.device_bytes else [*wants, (device, need.device_bytes)]

    def _missing_now(self, need: Need, device: DeviceRoom) -> list[tuple[str, int, int]]:
        """(device, bytes missing, bytes needed) of each."""
        return [(where.id, count - max(0, self.free_now(where)), count) for where, count in self._wants(need, device)]

    def _free(self, device: DeviceRoom, held: Iterable[Holding]) -> int:
        """Bytes of a device that these holdings, others and what this plan has given away leave."""
        if device.id == CPU:
            charged = sum(holding.memory_bytes for holding in held)
        else:
            charged = sum(holding.charge_bytes for holding in held if holding.device == device.id)
        taken = sum(count for where, count in self._taken if where == device.id)
        return device.total_bytes - device.foreign_bytes - charged - taken

    def _take(self, need: Need, device: str) -> None:
        self._taken.append((CPU, need.memory_bytes))
        if device != CPU:
            self._taken.append((device, need.device_bytes))


def _may_go(holding: Holding, need: Need) -> bool:
    if holding.kept or holding.phase not in (Phase.IDLE, Phase.BUSY):
        return False
    if holding.oldest_waiting is not None and holding.oldest_waiting < need.since:
        return False
    return holding.served or (holding.phase is Phase.IDLE and holding.oldest_waiting is None)


def _order(holding: Holding, need: Need) -> tuple[bool, bool, Instant, str]:
    """Another version of the same model last, idle before busy, then least recently used."""
    return holding.model == need.model, holding.phase is Phase.BUSY, holding.last_used, holding.key


def _least_damage(room: _Room, need: Need, devices: Sequence[DeviceRoom]) -> tuple[DeviceRoom, list[Holding]]:
    """The device whose victims are the fewest busy, then the fewest at all; no victims where waiting or nothing helps."""
    best: tuple[tuple[int, int, int], DeviceRoom, list[Holding]] | None = None
    for device in devices:
        victims = choose_victims(room, need, device)
        if victims is None:
            continue
        busy = sum(victim.phase is Phase.BUSY for victim in victims)
        score = (busy, len(victims), -room.free_now(device))
        if best is None or score < best[0]:
            best = score, device, victims
    if best is None:
        return max(devices, key=room.free_now), []
    return best[1], best[2]


def choose_victims(room: _Room, need: Need, device: DeviceRoom) -> list[Holding] | None:
    """A set of which none is superfluous, empty if what is already going suffices; None if all of them together don't."""
    if room.fits_then(need, device):
        return []
    chosen: list[Holding] = []
    for holding in sorted(room.evictable(need), key=lambda holding: _order(holding, need)):
        chosen.append(holding)
        if room.fits_then(need, device, chosen):
            break
    else:
        return None
    for holding in list(reversed(chosen)):
        rest = [other for other in chosen if other is not holding]
        if room.fits_then(need, device, rest):
            chosen = rest
    return chosen
