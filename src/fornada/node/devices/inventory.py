"""All devices of this server behind one name each: `cpu`, then `cuda:0`, `cuda:1` and so on, real before fake."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from fornada.core.errors import BadRequest
from fornada.core.names import Instant
from fornada.core.policy.memory import CPU, DeviceRoom
from fornada.core.resources import parse_size
from fornada.core.settings import DevicesSettings
from fornada.node.devices import nvml
from fornada.node.devices.cpu import Host
from fornada.node.devices.cuda import FOREVER, CudaDevice
from fornada.node.devices.fake import FakeDevice

Charged = Mapping[str, Mapping[str, int]]
"""Device -> instance -> bytes that the ledger has given it there."""


class Devices:
    """What the scheduler, the runners and the API ask of the devices. `now` is an argument."""

    def __init__(
        self, host: Host, fakes: Sequence[FakeDevice], *, cards: Sequence[CudaDevice] = (), slack: Mapping[str, int] | None = None
    ) -> None:
        """`slack`: kind of device -> bytes that are added to each charge on it."""
        self._host = host
        self._cards = {device.id: device for device in cards}
        self._fakes = {device.id: device for device in fakes}
        self._all: dict[str, CudaDevice | FakeDevice] = {**self._cards, **self._fakes}
        self._slack = dict(slack or {})

    @property
    def host_bytes(self) -> int:
        """Host memory for models."""
        return self._host.total_bytes

    @property
    def host_left_bytes(self) -> int:
        """Of that, what other programs leave."""
        return self._host.left_bytes

    @property
    def free_of_models_bytes(self) -> int:
        """Of that, what neither other programs nor the node's own processes hold."""
        return self._host.free_of_models_bytes

    def total_bytes(self, device: str) -> int:
        """What it has for models."""
        return self._all[device].total_bytes if device in self._all else self._host.total_bytes

    @property
    def accelerators(self) -> list[str]:
        """All but the cpu."""
        return list(self._all)

    def slack_bytes(self, device: str) -> int:
        return self._slack.get(self.kind(device), 0)

    def rooms(self, *, charged: Charged, now: Instant) -> list[DeviceRoom]:
        """For core.policy.placement."""
        others = [device.room(charged=charged.get(id, {}), now=now) for id, device in self._all.items()]
        return [self._host.room(now=now), *others]

    def kind(self, device: str) -> str:
        """cpu | fake | cuda"""
        return self._all[device].kind if device in self._all else self._host.kind

    def visible(self, device: str) -> str:
        """What CUDA is to see of the machine's cards in a process that is placed on `device`: that one, by its own name. A card's number
        means one thing to the driver and, ordered by speed, another to CUDA; on the cpu and on fake devices there is none to see."""
        return self._cards[device].uuid if device in self._cards else ""

    def make(self, device: str) -> str:
        """What a peak that was measured on it holds for: a kind of card, or cpu."""
        return self._all[device].make if device in self._all else CPU

    # ---- who is on them

    def started(self, instance: str, device: str, pid: int) -> None:
        """The instance has a process."""
        if device in self._all:
            self._all[device].started(instance, pid)

    def ended(self, instance: str, *, now: Instant) -> None:
        """The instance's process has been reaped."""
        for device in self._all.values():
            device.ended(instance, now=now)

    def book(self, instance: str, device: str, count: int, *, release_delay_s: float, now: Instant) -> str:
        """An instance asks for bytes. Empty if they are its own now, else why not."""
        if device not in self._fakes:
            return f"there is nothing to book on '{device}'"
        if count < 0:
            return f"{count} bytes can't be booked"
        return self._fakes[device].book(instance, count, release_delay_s=release_delay_s, now=now)

    def gave_back(self, instance: str, *, now: Instant) -> None:
        """The instance says that it has fallen asleep. Real devices count for themselves."""
        for device in self._fakes.values():
            device.gave_back(instance, now=now)

    def copy_s(self, device: str, count: int) -> float:
        """Seconds that so many bytes take from the device to the host or back, where that is known: on fake ones."""
        return self._fakes[device].copy_s(count) if device in self._fakes else 0.0

    def take_over(self, instance: str, booked: Mapping[str, int]) -> None:
        """What an adopted process says that it holds."""
        for device, count in booked.items():
            if device in self._fakes and count > 0:
                self._fakes[device].take_over(instance, count)

    def true_up(self, living: Collection[str], *, now: Instant) -> list[str]:
        """Ends what is booked for instances that don't live; who they were."""
        strange = [instance for device in self._fakes.values() for instance in device.bookers() if instance not in living]
        for instance in strange:
            self.ended(instance, now=now)
        return strange

    def held(self, instance: str, device: str) -> int:
        """Device memory that it holds: booked, or as the driver counts; 0 on the cpu."""
        return self._all[device].held(instance) if device in self._all else 0

    def measured(self, *, held_bytes: int, overhead_bytes: int) -> None:
        """What instances hold of the host, and what processes that they share hold beside that."""
        self._host.measured(held_bytes=held_bytes, overhead_bytes=overhead_bytes)

    # ---- what happens to them

    async def look(self, *, now: Instant) -> None:
        """Reads what drivers count and tell. Nothing is read where there is no card."""
        for card in self._cards.values():
            card.take(await asyncio.to_thread(card.look), now=now)
        for fake in self._fakes.values():
            fake.look(now=now)

    def faults(self) -> dict[str, list[int]]:
        """Device -> XIDs since the last call."""
        return {id: told for id, device in self._all.items() if (told := device.faults())}

    def fences(self) -> dict[str, str]:
        """Device -> why nothing is placed on it."""
        return {id: device.fence for id, device in self._all.items() if device.fence}

    def fence(self, device: str, reason: str) -> None:
        """As a predecessor left it."""
        if device in self._all:
            self._all[device].fence = reason

    def next_release(self, *, now: Instant) -> Instant:
        """When bytes of ended processes come back next, or aren't believed to any more; infinite if none are on their way."""
        return min((device.next_release(now=now) for device in self._all.values()), default=FOREVER)

    # ---- for people

    def views(self, *, charged: Charged, now: Instant) -> list[dict[str, Any]]:
        """For the API, but for what the ledger has given away."""
        return [self._host.view(now=now), *(device.view(charged=charged.get(id, {}), now=now) for id, device in self._all.items())]

    def patch(self, device: str, change: Mapping[str, Any], *, now: Instant) -> None:
        """Raises BadRequest for an unknown device or key, or one that a real device doesn't take."""
        if device in self._all:
            self._all[device].patch(change, now=now)
        elif device == CPU:
            raise BadRequest("the cpu takes no changes")
        else:
            known = ", ".join([CPU, *self._all])
            raise BadRequest(f"there is no device '{device}'; this node has: {known}")


def inventory(settings: DevicesSettings, *, root: Path = Path("/"), cards: Sequence[nvml.Card] | None = None) -> Devices:
    """The devices that [devices] and the machine come to. Raises ValueError for a size that is none. `root` is where /proc and
    /sys are; `cards` are looked for unless given."""
    defaults = DevicesSettings()
    share, count = _reserve(settings.reserve)
    budget = parse_size(settings.cpu.budget) if settings.cpu.budget else 0
    host = Host(budget_bytes=budget, reserve_share=share, reserve_bytes=count, root=root)
    found = nvml.find() if cards is None else cards
    real = [CudaDevice(f"cuda:{number}", card, reserve_share=share, reserve_bytes=count) for number, card in enumerate(found)]
    slack = parse_size(settings.slack)
    # On fake devices there is neither unless the operator sets it: tests count in whole devices.
    share, count = (0.0, 0) if settings.reserve == defaults.reserve else (share, count)
    fakes = []
    for number, fake in enumerate(settings.fake, start=len(real)):
        total = parse_size(fake.total)
        device = FakeDevice(
            f"cuda:{number}",
            total_bytes=total,
            foreign_bytes=parse_size(fake.foreign),
            release_delay_s=fake.release_delay_ms / 1000,
            reserve_bytes=int(total * share) + count,
            bandwidth=parse_size(fake.bandwidth.removesuffix("/s")),
        )
        fakes.append(device)
    slacks = {"cpu": slack, "cuda": slack, "fake": 0 if settings.slack == defaults.slack else slack}
    return Devices(host, fakes, cards=real, slack=slacks)


def _reserve(text: str) -> tuple[float, int]:
    """(share, bytes) of `3%` or `512MiB`."""
    if text.strip().endswith("%"):
        share = float(text.strip().removesuffix("%")) / 100
        if not 0 <= share < 1:
            raise ValueError(f"{text!r} is no share between 0% and 100%")
        return share, 0
    return 0.0, parse_size(text)
