"""A real card as the ledger sees it: what it has, what others hold, what each instance holds. The driver counts, nobody books.

`read` is called in a thread, everything else on the loop. A process that has ended is believed to hold its bytes until the
card's own counter says that they are back; when that takes longer than RETURN_S, they are called lingering and the wait is over.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from fornada.core.errors import BadRequest
from fornada.core.names import Instant
from fornada.core.policy.memory import DeviceRoom
from fornada.node.devices.faults import describe, is_the_programs
from fornada.node.devices.nvml import Reading
from fornada.node.memory_use import family

RETURN_S = 5.0
"""How long bytes of a process that is gone may take to come back before they count as somebody else's."""
LOOK_AGAIN_S = 0.05
"""Until the next look while bytes are on their way back."""
FOREVER = Instant(float("inf"))


class Driver(Protocol):
    """node.devices.nvml's Card."""

    name: str
    uuid: str

    def read(self) -> Reading: ...


@dataclass(slots=True)
class Leaving:
    """Bytes of a process that is gone."""

    count: int
    until: Instant


class CudaDevice:
    """One card."""

    kind = "cuda"

    def __init__(self, id: str, driver: Driver, *, reserve_share: float, reserve_bytes: int) -> None:
        self.id = id
        self.make = driver.name
        self.uuid = driver.uuid
        self.fence = ""
        self._driver = driver
        self._latest = driver.read()
        self._reserve = int(self._latest.total_bytes * reserve_share) + reserve_bytes
        self._pids: dict[str, int] = {}
        """First process of each instance on it, as /proc calls it."""
        self._held: dict[str, int] = {}
        self._leaving: dict[str, Leaving] = {}
        self._faults: list[int] = []
        if self._latest.lost:
            self.fence = self._latest.lost

    # ---- who is on it

    def started(self, instance: str, pid: int) -> None:
        self._pids[instance] = pid

    def ended(self, instance: str, *, now: Instant) -> None:
        """Its process has been reaped."""
        self._pids.pop(instance, None)
        if held := self._held.pop(instance, 0):
            self._leaving[instance] = Leaving(held, Instant(now + RETURN_S))

    def held(self, instance: str) -> int:
        """As of the last reading; 0 where the driver doesn't tell."""
        return self._held.get(instance, 0)

    # ---- readings

    def look(self) -> tuple[Reading, dict[str, set[int]]]:
        """(what the driver says, the pids of each instance). In a thread."""
        return self._driver.read(), {instance: known_as(pid) for instance, pid in list(self._pids.items())}

    def take(self, looked: tuple[Reading, dict[str, set[int]]], *, now: Instant) -> None:
        reading, pids = looked
        self._faults += reading.xids
        if reading.lost:
            self.fence = self.fence or reading.lost
            return
        freed = self._latest.used_bytes - reading.used_bytes
        self._latest = reading
        for instance, own in pids.items():
            if instance in self._pids:
                self._held[instance] = sum(count for pid, count in reading.processes.items() if pid in own)
        self._come_back(freed, now)

    def _come_back(self, freed: int, now: Instant) -> None:
        """What the counter went down by has come back from who went first."""
        for instance, leaving in list(self._leaving.items()):
            back = min(max(freed, 0), leaving.count)
            freed -= back
            leaving.count -= back
            if not leaving.count or now >= leaving.until:
                del self._leaving[instance]

    def faults(self) -> list[int]:
        """XIDs since the last call."""
        told, self._faults = self._faults, []
        for xid in told:
            if not is_the_programs(xid):
                self.fence = self.fence or describe(xid)
        return told

    # ---- for plans and people

    @property
    def total_bytes(self) -> int:
        """What it has for models."""
        return max(0, self._latest.total_bytes - self._reserve)

    def room(self, *, charged: Mapping[str, int], now: Instant) -> DeviceRoom:
        """`charged`: bytes that the ledger has given to each instance on it."""
        return DeviceRoom(self.id, self.total_bytes, self._foreign(charged), self._lingering(), bool(self.fence))

    def next_release(self, *, now: Instant) -> Instant:
        return Instant(now + LOOK_AGAIN_S) if self._leaving else FOREVER

    def view(self, *, charged: Mapping[str, int], now: Instant) -> dict[str, Any]:
        return {
            "id": self.id,
            "total_bytes": self._latest.total_bytes,
            "used_bytes": self._latest.used_bytes,
            "foreign_bytes": self._foreign(charged),
            "lingering_bytes": self._lingering(),
            "state": "fenced" if self.fence else "ok",
            "fence": self.fence,
            "kind": self.kind,
            "name": self.make,
            "uuid": self.uuid,
            "energy_j": self._latest.energy_j,
        }

    def patch(self, change: Mapping[str, Any], *, now: Instant) -> None:
        """Raises BadRequest for all but {"unfence": true}."""
        for key, value in change.items():
            if key != "unfence" or value is not True:
                raise BadRequest(f'{self.id} is a real card; it takes {{"unfence": true}} alone')
        if change:
            self.fence = ""

    def _lingering(self) -> int:
        return sum(leaving.count for leaving in self._leaving.values())

    def _foreign(self, charged: Mapping[str, int]) -> int:
        """What is in use and nobody's here. Where the driver doesn't tell which process holds how much (another pid namespace, a MIG
        part, a driver for desktops), what is in use counts as its holder's up to his charge."""
        ours = sum(self._held.get(instance, 0) or charged.get(instance, 0) for instance in self._pids)
        return max(0, self._latest.used_bytes - self._lingering() - ours)


def known_as(pid: int) -> set[int]:
    """The pids by which a driver may call the instance's processes: as this /proc shows them, and as this namespace calls them."""
    own = len(_namespaced("self")) - 1
    found: set[int] = set()
    for member in family(pid):
        found.add(member)
        names = _namespaced(member)
        if 0 < own < len(names):
            found.add(names[own])
    return found


def _namespaced(process: int | str) -> list[int]:
    """NSpid: its pid in each namespace that it is in, the outermost that this /proc shows first."""
    try:
        with open(f"/proc/{process}/status", encoding="ascii", errors="replace") as file:
            return next(([int(word) for word in line.split()[1:]] for line in file if line.startswith("NSpid:")), [])
    except (OSError, ValueError):
        return []
