"""A device that isn't there: a counter of bytes that behaves like a card's.

It is complete enough to build and test everything above it without hardware: models book on it, what they booked comes back
only some time after their process is gone, somebody else may hold a part of it, and it can break. `PATCH /api/v1/devices/{id}`
turns its faults on and off.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fornada.core.errors import BadRequest
from fornada.core.names import Instant
from fornada.core.policy.memory import DeviceRoom
from fornada.core.resources import format_size, parse_size
from fornada.node.devices.cuda import FOREVER, RETURN_S
from fornada.node.devices.faults import describe, is_the_programs

LONGEST_DELAY_MS = 86_400_000
"""A day."""
PATCHES = "foreign, frozen, release_delay_ms, xid, clear, unfence"
DELAYS_MOST = 64
"""Different release delays that one instance may ask for: each is a record of its own."""


@dataclass(slots=True)
class Booking:
    """Bytes of one instance. `free_at` is FOREVER while its process lives, or while the device is frozen."""

    instance: str
    count: int
    release_delay_s: float
    free_at: Instant = FOREVER
    ended: bool = False
    returning: bool = False
    """Its instance lives and has given it back; the device still counts it as that one's."""
    believed_until: Instant = FOREVER
    """After its end: it is expected to come back until then, and counts as somebody else's afterwards."""


class FakeDevice:
    """One fake device. `now` is an argument wherever time matters."""

    kind = "fake"
    make = "fake"
    """Peaks that were measured on one fake device hold for all."""

    def __init__(
        self, id: str, *, total_bytes: int, foreign_bytes: int, release_delay_s: float, reserve_bytes: int = 0, bandwidth: int = 0
    ) -> None:
        """`bandwidth` in bytes a second; 0: copies take no time."""
        self.id = id
        self._bandwidth = bandwidth
        self._total = total_bytes
        self._reserve = reserve_bytes
        self._configured = (foreign_bytes, release_delay_s)
        self._foreign = foreign_bytes
        self._release_delay_s = release_delay_s
        self._frozen = False
        self.fence = ""
        """Why nothing may be placed on it; empty: it may."""
        self._faults: list[int] = []
        self._bookings: list[Booking] = []

    def book(self, instance: str, count: int, *, release_delay_s: float, now: Instant) -> str:
        """Empty if the bytes are the instance's now, else why not, with both numbers."""
        if self.fence:
            return f"{self.id} is fenced after {self.fence}"
        free = self._total - self._foreign - self._counted(now)
        if count > free:
            return f"{self.id} has {format_size(max(0, free))} free of {format_size(self._total)}, {format_size(count)} were asked for"
        own = [booking for booking in self._bookings if booking.instance == instance and not (booking.ended or booking.returning)]
        same = next((booking for booking in own if booking.release_delay_s == release_delay_s), None)
        if same is not None:
            same.count += count
        elif len(own) >= DELAYS_MOST:
            return f"{instance} has asked for {DELAYS_MOST} different release delays already"
        elif count:
            self._bookings.append(Booking(instance, count, release_delay_s))
        return ""

    def take_over(self, instance: str, count: int) -> None:
        """What an adopted process holds already."""
        self._bookings.append(Booking(instance, count, 0.0))

    def ended(self, instance: str, *, now: Instant) -> None:
        """Its process is gone: what it booked counts until the delay is over."""
        for booking in self._bookings:
            if booking.instance == instance and not booking.ended:
                booking.ended, booking.returning = True, False
                booking.believed_until = Instant(now + RETURN_S)
                booking.free_at = FOREVER if self._frozen else self._back_at(booking, now)

    def gave_back(self, instance: str, *, now: Instant) -> None:
        """It has fallen asleep: what it booked is its own until it is copied and the delay is over."""
        for booking in self._bookings:
            if booking.instance == instance and not booking.ended and not booking.returning:
                booking.returning = True
                booking.free_at = FOREVER if self._frozen else self._back_at(booking, now)

    def copy_s(self, count: int) -> float:
        """Seconds that so many bytes take to the host or back."""
        return count / self._bandwidth if self._bandwidth else 0.0

    def look(self, *, now: Instant) -> None:
        """Drops what has come back."""
        self._counted(now)

    def started(self, instance: str, pid: int) -> None:
        """Nothing to know: it books."""

    def held(self, instance: str) -> int:
        """Bytes that the living instance holds."""
        return sum(booking.count for booking in self._bookings if booking.instance == instance and not booking.ended)

    def bookers(self) -> set[str]:
        """Instances for which bytes are booked that haven't ended."""
        return {booking.instance for booking in self._bookings if not booking.ended}

    def faults(self) -> list[int]:
        """XIDs since the last call."""
        told, self._faults = self._faults, []
        return told

    @property
    def total_bytes(self) -> int:
        """What it has for models."""
        return self._total - self._reserve

    def room(self, *, charged: Mapping[str, int], now: Instant) -> DeviceRoom:
        self._counted(now)
        lingering = self._lingering()
        stuck = sum(booking.count for booking in self._bookings if booking.ended and booking.believed_until <= now)
        return DeviceRoom(self.id, self.total_bytes, self._foreign + stuck, lingering - stuck, bool(self.fence))

    def _lingering(self) -> int:
        return sum(booking.count for booking in self._bookings if booking.ended)

    def next_release(self, *, now: Instant) -> Instant:
        """When bytes come back next, or aren't believed to any more; FOREVER if none are on their way."""
        self._counted(now)
        ended = [booking for booking in self._bookings if booking.ended]
        return min((at for booking in ended for at in (booking.free_at, booking.believed_until) if at > now), default=FOREVER)

    def view(self, *, charged: Mapping[str, int], now: Instant) -> dict[str, Any]:
        return {
            "id": self.id,
            "total_bytes": self._total,
            "used_bytes": self._counted(now),
            "foreign_bytes": self._foreign,
            "lingering_bytes": self._lingering(),
            "state": "fenced" if self.fence else "ok",
            "fence": self.fence,
            "kind": self.kind,
            "frozen": self._frozen,
            "release_delay_ms": self._release_delay_s * 1000,
        }

    def patch(self, change: Mapping[str, Any], *, now: Instant) -> None:
        """All or nothing. Raises BadRequest for an unknown key or a value that it can't take."""
        for key, value in change.items():
            self._check(key, value)
        if change.get("clear"):
            self._foreign, self._release_delay_s = self._configured
            self._freeze(False, now)
            self.fence = ""
        if "foreign" in change:
            self._foreign = parse_size(change["foreign"])
        if "release_delay_ms" in change:
            self._release_delay_s = change["release_delay_ms"] / 1000
        if "frozen" in change:
            self._freeze(change["frozen"], now)
        if "xid" in change:
            xid = change["xid"]
            self._faults.append(xid)
            if not is_the_programs(xid):
                self.fence = self.fence or describe(xid)
        if change.get("unfence"):
            self.fence = ""

    def _check(self, key: str, value: Any) -> None:
        match key:
            case "foreign":
                try:
                    fits = parse_size(value) <= self._total
                except ValueError as error:
                    raise BadRequest(f"foreign: {error}") from None
                if not fits:
                    raise BadRequest(f"foreign: {self.id} has {format_size(self._total)} in all")
            case "frozen" | "clear" | "unfence":
                if not isinstance(value, bool):
                    raise BadRequest(f"{key} must be true or false")
            case "release_delay_ms":
                if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LONGEST_DELAY_MS:
                    raise BadRequest(f"release_delay_ms must be a number from 0 to {LONGEST_DELAY_MS}")
            case "xid":
                if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                    raise BadRequest("xid must be a positive whole number")
            case _:
                raise BadRequest(f"a fake device has no '{key}'; it takes {PATCHES}")

    def _freeze(self, frozen: bool, now: Instant) -> None:
        self._counted(now)
        self._frozen = frozen
        for booking in self._bookings:
            if booking.ended or booking.returning:
                booking.free_at = FOREVER if frozen else self._back_at(booking, now)

    def _back_at(self, booking: Booking, now: Instant) -> Instant:
        copied_s = self.copy_s(booking.count) if booking.returning else 0.0
        return Instant(now + copied_s + max(self._release_delay_s, booking.release_delay_s))

    def _counted(self, now: Instant) -> int:
        """Bytes in use, after dropping what has come back meanwhile."""
        self._bookings = [booking for booking in self._bookings if booking.free_at > now]
        return sum(booking.count for booking in self._bookings)
