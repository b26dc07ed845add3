"""What is held now, and what will be once everything under way has happened: the sums that a plan works on."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fornada.core.names import ModelName
from fornada.core.policy.ladder import Rung, down_s, loss, loss_of_sleep
from fornada.core.policy.memory import CPU, DeviceRoom, Holding, Need, Phase, host_of
from fornada.core.policy.naming import named
from fornada.core.resources import format_size


class Move(NamedTuple):
    """One holder steps down."""

    holding: Holding
    to: Rung

    @property
    def loss(self) -> float:
        """Seconds of swapping a second."""
        ladder, rate = self.holding.ladder, self.holding.rate
        return loss_of_sleep(ladder, rate=rate) if self.holding.phase is Phase.ASLEEP else loss(ladder, self.to, rate=rate)

    @property
    def takes_s(self) -> float:
        """Until what it gives up is back: its work, then the step."""
        ladder = self.holding.ladder
        return self.holding.work_left_s + (ladder.stop_s if self.holding.phase is Phase.ASLEEP else down_s(ladder, self.to))

    @property
    def busy(self) -> bool:
        return self.holding.phase is Phase.BUSY


class _Bytes(NamedTuple):
    """Of a device and of the host."""

    device: int
    host: int


NOTHING = _Bytes(0, 0)


class Case:
    """One need on one device, once everything under way has happened. Cheap to ask again and again with other moves."""

    def __init__(
        self,
        need: Need,
        device: DeviceRoom,
        *,
        wanted: _Bytes,
        free: _Bytes,
        resident: Counter[ModelName],
        promised: set[ModelName],
        most: int,
    ) -> None:
        self.need = need
        self._device = device
        self._missing = _Bytes(wanted.device - free.device if wanted.device else 0, wanted.host - free.host if wanted.host else 0)
        self._wanted = wanted
        self._host_free = free.host
        self._resident = resident
        self._promised = promised
        """Models that hold no place yet and will."""
        self._most = most

    def fits(self, moves: Sequence[Move]) -> bool:
        """After these moves, not counting what of the host those who fall asleep take beyond what they hold: see `houses`."""
        if self._missing.device > 0 and self._missing.device > sum(self._gives(move).device for move in moves):
            return False
        if self._missing.host > 0 and self._missing.host > sum(self._gives(move).host for move in moves):
            return False
        return self._over(moves) <= 0

    def houses(self, moves: Sequence[Move]) -> bool:
        """The host has room for the need and for all who fall asleep."""
        more = [_at(move.to, move.holding).host - move.holding.memory_bytes for move in moves]
        if self._wanted.host == 0 and not any(count > 0 for count in more):
            return True
        return self._wanted.host + sum(more) <= self._host_free

    def relief(self, move: Move) -> float:
        """The part of what is missing that one move gives, of what it gives most of: 0 to 1."""
        gives, parts = self._gives(move), [0.0]
        if self._missing.device > 0:
            parts.append(gives.device / self._missing.device)
        if self._missing.host > 0:
            parts.append(gives.host / self._missing.host)
        over = self._over(())
        if over > 0 and move.holding.phase is not Phase.ASLEEP:
            parts.append(1 / over)
        return min(1.0, max(parts))

    def _gives(self, move: Move) -> _Bytes:
        after = _at(move.to, move.holding)
        there = move.holding.device == self._device.id
        return _Bytes(_of_device(move.holding) - after.device if there else 0, max(0, move.holding.memory_bytes - after.host))

    def _over(self, moves: Sequence[Move]) -> int:
        """Models that are one too many, were the need granted then."""
        if not self._most:
            return 0
        leaving = Counter(move.holding.model for move in moves if move.holding.phase is not Phase.ASLEEP)
        models = {model for model, count in self._resident.items() if count > leaving[model]} | self._promised
        return 0 if self.need.model in models else len(models) + 1 - self._most


class Picture:
    """What a plan works on.

    Host memory is a second measure beside the device's own: who falls asleep takes some of it from the moment at which it is chosen (a
    lease that isn't there can't be waited for half asleep), and who computes on the cpu holds nothing else.
    """

    def __init__(self, holdings: Sequence[Holding], devices: Sequence[DeviceRoom], *, max_resident: int) -> None:
        self._held = {holding.key: holding for holding in holdings}
        self._max = max_resident
        self._host = host_of(devices)
        self._now: Counter[str] = Counter()
        """Bytes that are held now, by device; of the host under CPU, those included that were leased in this plan."""
        self._then: Counter[str] = Counter()
        """The same, once everything under way has happened."""
        self._promised: Counter[str] = Counter()
        """Granted in this plan, or claimed by an older need."""
        self._present = {holding.model for holding in holdings if holding.phase is not Phase.ASLEEP}
        self._resident = Counter(holding.model for holding in holdings if holding.phase is not Phase.ASLEEP)
        """Instances that will be ready then."""
        self._granted: set[ModelName] = set()
        self._claimed: set[ModelName] = set()
        """By older needs that wait on."""
        self._going: dict[str, Rung] = {}
        for holding in holdings:
            amount = _at(Rung.READY, holding)
            for sums in (self._now, self._then):
                sums[holding.device] += amount.device
                sums[CPU] += amount.host
            if holding.phase in (Phase.CLOSING, Phase.FALLING):
                self._goes(holding, Rung.STOPPED if holding.phase is Phase.CLOSING else Rung.ASLEEP)

    @property
    def staying(self) -> list[Holding]:
        return [holding for key, holding in self._held.items() if key not in self._going]

    def case(self, need: Need, device: DeviceRoom) -> Case:
        free = device.total_bytes - device.foreign_bytes - self._then[device.id] - self._promised[device.id]
        host_free = 0
        if self._host is not None:
            host_free = self._host.total_bytes - self._host.foreign_bytes - self._then[CPU] - self._promised[CPU]
        return Case(
            need,
            device,
            wanted=self._wanted(need, device),
            free=_Bytes(free, host_free),
            resident=self._resident,
            promised=self._granted | self._claimed,
            most=self._max,
        )

    def fits_now(self, need: Need, device: DeviceRoom) -> bool:
        wanted, free = self._wanted(need, device), self._free_now(device)
        enough = (not wanted.device or wanted.device <= free.device) and (not wanted.host or wanted.host <= free.host)
        return enough and self._slot_now(need.model)

    def free_now(self, device: DeviceRoom) -> int:
        """Bytes of it that nobody holds or was promised."""
        free = self._free_now(device)
        return free.host if device.id == CPU else free.device

    def sleeper(self, need: Need) -> Holding | None:
        """The need's own holding, where it only has to wake up."""
        own = self._held.get(need.key)
        return own if own is not None and own.phase is Phase.ASLEEP else None

    def is_going(self, key: str) -> bool:
        return key in self._going

    def grant(self, need: Need, device: DeviceRoom) -> None:
        self._granted.add(need.model)
        self._promise(need, device)

    def claim(self, need: Need, device: DeviceRoom) -> None:
        self._claimed.add(need.model)
        self._promise(need, device)

    def carry_out(self, moves: Iterable[Move]) -> None:
        """They have been decided, and begin now or later."""
        for move in moves:
            self._goes(move.holding, move.to)

    def lease(self, move: Move) -> bool:
        """Takes of the host what it needs now to begin with the move, if that is free: it isn't while somebody else is still leaving."""
        more = max(0, _at(move.to, move.holding).host - move.holding.memory_bytes)
        if self._host is not None and more and more > self._host_free_now():
            return False
        self._now[CPU] += more
        return True

    def obstacles(self, need: Need, device: DeviceRoom) -> str:
        """What keeps it out even if everybody went who may: whoever is kept, and what others hold. Empty: nothing, it is a matter of time."""
        kept = [holding for holding in self.staying if holding.kept and holding.key != need.key]
        wanted = self._wanted(need, device)
        there: list[Holding] = []
        others = False
        for where, bytes_wanted in ((device, wanted.device), (self._host, wanted.host)):
            if where is None or not bytes_wanted:
                continue
            holding_it = [(holding, count) for holding in kept if (count := _of(where, holding))]
            if where.total_bytes - where.foreign_bytes - sum(count for _, count in holding_it) < bytes_wanted:
                there += [holding for holding, _ in holding_it]
                others = others or where.foreign_bytes > 0
        awake = [holding for holding in kept if holding.phase is not Phase.ASLEEP]
        models = {holding.model for holding in awake}
        if self._max and need.model not in models and len(models) >= self._max:
            there += awake
        parts = [f"{named(need, there)} {'is' if len({one.model for one in there}) == 1 else 'are'} kept loaded"] if there else []
        return "; ".join([*parts, "other programs hold too much"] if others else parts)

    def explain(self, need: Need, device: DeviceRoom) -> str:
        ending = [self._held[key] for key, rung in self._going.items() if rung is Rung.STOPPED]
        falling = [self._held[key] for key, rung in self._going.items() if rung is Rung.ASLEEP]
        parts = []
        if not self._slot_now(need.model):
            parts.append(f"{self._max} of {self._max} resident models (max_resident)")
        wanted, free = self._wanted(need, device), self._free_now(device)
        if wanted.device > max(0, free.device):
            parts.append(_short(device.id, free.device, wanted.device))
        if self._host is not None and wanted.host > max(0, free.host):
            parts.append(_short(CPU, free.host, wanted.host))
        if device.lingering_bytes:
            parts.append(f"{format_size(device.lingering_bytes)} of ended processes are on their way back")
        if ending:
            parts.append(f"waits for the end of {named(need, ending)}")
        if falling:
            parts.append(f"waits for {named(need, falling)} to fall asleep")
        return "; ".join(parts) or "waits for older wishes"

    # ---- within

    def _wanted(self, need: Need, device: DeviceRoom) -> _Bytes:
        """What it takes beyond what it holds already. Who wakes up gives host memory back afterwards, not before."""
        own = self.sleeper(need)
        held = _Bytes(own.charge_bytes, own.memory_bytes) if own is not None and own.device == device.id else NOTHING
        of_device = 0 if device.id == CPU else need.device_bytes
        return _Bytes(max(0, of_device - held.device), max(0, need.memory_bytes - held.host) if self._host is not None else 0)

    def _free_now(self, device: DeviceRoom) -> _Bytes:
        free = device.total_bytes - device.foreign_bytes - device.lingering_bytes - self._now[device.id] - self._promised[device.id]
        return _Bytes(free, self._host_free_now())

    def _host_free_now(self) -> int:
        host = self._host
        if host is None:
            return 0
        return host.total_bytes - host.foreign_bytes - host.lingering_bytes - self._now[CPU] - self._promised[CPU]

    def _promise(self, need: Need, device: DeviceRoom) -> None:
        wanted = self._wanted(need, device)
        self._promised[device.id] += wanted.device
        self._promised[CPU] += wanted.host

    def _goes(self, holding: Holding, to: Rung) -> None:
        before, after = _at(self._going.get(holding.key, Rung.READY), holding), _at(to, holding)
        self._then[holding.device] += after.device - before.device
        self._then[CPU] += after.host - before.host
        if holding.key not in self._going and holding.phase is not Phase.ASLEEP:
            self._resident[holding.model] -= 1
        self._going[holding.key] = to

    def _slot_now(self, model: ModelName) -> bool:
        present = self._present | self._granted
        if model in present or not self._max:
            return True
        # An older need of the same model that waits for the place comes first.
        return model not in self._claimed and len(present | self._claimed) < self._max


def _at(rung: Rung, holding: Holding) -> _Bytes:
    """What it holds once it is there."""
    match rung:
        case Rung.READY:
            return _Bytes(_of_device(holding), holding.memory_bytes)
        case Rung.ASLEEP:
            return _Bytes(min(holding.ladder.asleep_bytes, _of_device(holding)), holding.ladder.asleep_host_bytes)
        case Rung.STOPPED:
            return NOTHING


def _of(where: DeviceRoom, holding: Holding) -> int:
    """What it holds there."""
    if where.id == CPU:
        return holding.memory_bytes
    return holding.charge_bytes if holding.device == where.id else 0


def _of_device(holding: Holding) -> int:
    return 0 if holding.device == CPU else holding.charge_bytes


def _short(where: str, free: int, wanted: int) -> str:
    free = max(0, free)
    return f"{where} has {format_size(free)} free of {format_size(wanted)} needed, {format_size(wanted - free)} are missing"
