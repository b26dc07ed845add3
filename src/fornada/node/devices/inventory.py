"""All devices of this server behind one name each: `cpu`, then `cuda:0`, `cuda:1` and so on, real before fake."""

from collections.abc import Mapping, Sequence
from typing import Any

from fornada.core.errors import BadRequest
from fornada.core.names import Instant
from fornada.core.policy.placement import CPU, DeviceRoom
from fornada.core.resources import parse_size
from fornada.core.settings import DevicesSettings
from fornada.node.devices.cpu import Host
from fornada.node.devices.fake import FOREVER, FakeDevice


class Devices:
    """What the scheduler, the runners and the API ask of the devices. `now` is an argument."""

    def __init__(self, host: Host, fakes: Sequence[FakeDevice]) -> None:
        self._host = host
        self._fakes = {device.id: device for device in fakes}

    def rooms(self, *, now: Instant) -> list[DeviceRoom]:
        """For core.policy.placement."""
        return [self._host.room(), *(device.room(now=now) for device in self._fakes.values())]

    def kind(self, device: str) -> str:
        """cpu | fake | cuda"""
        return self._fakes[device].kind if device in self._fakes else self._host.kind

    def book(self, instance: str, device: str, count: int, *, release_delay_s: float, now: Instant) -> str:
        """An instance asks for bytes. Empty if they are its own now, else why not."""
        if device not in self._fakes:
            return f"there is nothing to book on '{device}'"
        if count < 0:
            return f"{count} bytes can't be booked"
        return self._fakes[device].book(instance, count, release_delay_s=release_delay_s, now=now)

    def take_over(self, instance: str, booked: Mapping[str, int]) -> None:
        """What an adopted process says that it holds."""
        for device, count in booked.items():
            if device in self._fakes and count > 0:
                self._fakes[device].take_over(instance, count)

    def booked(self, instance: str, device: str) -> int:
        return self._fakes[device].booked(instance) if device in self._fakes else 0

    def ended(self, instance: str, *, now: Instant) -> None:
        """The instance's process has been reaped."""
        for device in self._fakes.values():
            device.ended(instance, now=now)

    def next_release(self, *, now: Instant) -> Instant:
        """When bytes of ended processes come back next; infinite if none do."""
        return min((device.next_release(now=now) for device in self._fakes.values()), default=FOREVER)

    def views(self, *, reserved: Mapping[str, int], resident_bytes: int, now: Instant) -> list[dict[str, Any]]:
        """For the API. `reserved` is what the scheduler has given away of each device, `resident_bytes` what runners hold of the host."""
        host = self._host.view(reserved_bytes=reserved.get(CPU, 0), resident_bytes=resident_bytes)
        return [host, *(device.view(reserved_bytes=reserved.get(id, 0), now=now) for id, device in self._fakes.items())]

    def patch(self, device: str, change: Mapping[str, Any], *, now: Instant) -> None:
        """Raises BadRequest for an unknown device or key, or one that a real device doesn't take."""
        if device in self._fakes:
            self._fakes[device].patch(change, now=now)
        elif device == CPU:
            raise BadRequest("the cpu takes no changes")
        else:
            known = ", ".join([CPU, *self._fakes])
            raise BadRequest(f"there is no device '{device}'; this node has: {known}")


def inventory(settings: DevicesSettings) -> Devices:
    """The devices that [devices] and the machine come to. Raises ValueError for a size that is none."""
    share, count = _reserve(settings.reserve)
    budget = parse_size(settings.cpu.budget) if settings.cpu.budget else 0
    host = Host(budget_bytes=budget, reserve_share=share, reserve_bytes=count)
    # On fake devices there is no reserve unless the operator sets one: tests count in whole devices.
    share, count = (0.0, 0) if settings.reserve == DevicesSettings().reserve else (share, count)
    fakes = []
    for number, fake in enumerate(settings.fake):
        total = parse_size(fake.total)
        device = FakeDevice(
            f"cuda:{number}",
            total_bytes=total,
            foreign_bytes=parse_size(fake.foreign),
            release_delay_s=fake.release_delay_ms / 1000,
            reserve_bytes=int(total * share) + count,
        )
        fakes.append(device)
    return Devices(host, fakes)


def _reserve(text: str) -> tuple[float, int]:
    """(share, bytes) of `3%` or `512MiB`."""
    if text.strip().endswith("%"):
        share = float(text.strip().removesuffix("%")) / 100
        if not 0 <= share < 1:
            raise ValueError(f"{text!r} is no share between 0% and 100%")
        return share, 0
    return 0.0, parse_size(text)
