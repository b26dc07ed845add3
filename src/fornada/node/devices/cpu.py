"""Host memory: what the machine has, within what the node's own cgroup and those above it allow."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fornada.core.names import Instant
from fornada.core.policy.memory import CPU, DeviceRoom

UNLIMITED = 1 << 60
"""What cgroup v1 says for "no limit" is near 2^63."""
FRESH_S = 0.25
"""How long a reading holds."""
BEFORE = Instant(float("-inf"))


class Host:
    """The device `cpu`."""

    id = CPU
    kind = "cpu"

    def __init__(self, *, budget_bytes: int, reserve_share: float, reserve_bytes: int, root: Path = Path("/")) -> None:
        """`budget_bytes` 0: what the cgroup allows, less the reserve (a share of it, or a number of bytes)."""
        self._root = root
        machine = memory_info(root)["MemTotal"]
        allowed = min([machine, *(limit for limit, _ in cgroup_memory(root))])
        self._reserve = 0 if budget_bytes else int(allowed * reserve_share) + reserve_bytes
        self.total_bytes = budget_bytes or max(0, allowed - self._reserve)
        self._held = 0
        self._overhead = 0
        self._foreign = 0
        self._read_at = BEFORE

    def measured(self, *, held_bytes: int, overhead_bytes: int) -> None:
        """What instances hold, and what the node's own processes for them do: of processes that instances share, say."""
        self._held, self._overhead = held_bytes, overhead_bytes
        self._read_at = BEFORE

    @property
    def left_bytes(self) -> int:
        """What models could have if none held any, as of the last look: all but what other programs hold. Half of all at least: where they hold
        more, it is for them to give back. The node's own processes give way."""
        return max(self.total_bytes - max(0, self._foreign - self._overhead), self.total_bytes // 2)

    @property
    def free_of_models_bytes(self) -> int:
        """What a model would find if no other held any: what is measured of others as of the last look, of the node's own processes now."""
        return self.total_bytes - max(self._foreign, self._overhead)

    def room(self, *, now: Instant) -> DeviceRoom:
        self._look(now)
        return DeviceRoom(CPU, self.total_bytes, self._foreign)

    def view(self, *, now: Instant) -> dict[str, Any]:
        """`used_bytes` is what instances hold. What others hold counts as far as it takes from what is there for models."""
        self._look(now)
        return {
            "id": CPU,
            "total_bytes": self.total_bytes,
            "used_bytes": self._held,
            "foreign_bytes": self._foreign,
            "lingering_bytes": 0,
            "state": "ok",
            "kind": self.kind,
        }

    def _look(self, now: Instant) -> None:
        if now < self._read_at + FRESH_S:
            return
        self._read_at = now
        growth = max(0, available_bytes(self._root) - self._reserve)
        self._foreign = max(self._overhead, self.total_bytes - (self._held + growth), 0)


def available_bytes(root: Path) -> int:
    """By how much processes here may grow before the kernel has to end one: of the machine, and of every cgroup on the way up."""
    info = memory_info(root)
    machine = info.get("MemAvailable", info["MemTotal"])
    return min([machine, *(max(0, limit - used) for limit, used in cgroup_memory(root))])


def memory_info(root: Path) -> dict[str, int]:
    """/proc/meminfo in bytes."""
    info = {}
    for line in (root / "proc/meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        value, _, unit = rest.strip().partition(" ")
        if value.isdigit():
            info[name] = int(value) * (1024 if unit == "kB" else 1)
    return info


def cgroup_memory(root: Path) -> list[tuple[int, int]]:
    """(limit, bytes in use) of the own memory cgroup and of those above it that set a limit, the innermost first. In use is what the
    kernel can't take back: files that it has read count in a cgroup, and go when somebody needs their memory."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found: list[tuple[int, int]] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            for place in _upwards(root / "sys/fs/cgroup", path):
                found += _bound(place, "memory.max", "memory.current", ("inactive_file", "active_file"))
        elif "memory" in controllers.split(","):
            for place in _upwards(root / "sys/fs/cgroup/memory", path):
                cache = ("total_inactive_file", "total_active_file")
                found += _bound(place, "memory.limit_in_bytes", "memory.usage_in_bytes", cache)
    return found


def _upwards(mount: Path, path: str) -> Iterator[Path]:
    # In a container the path may be the host's, which isn't mounted here: then the mount itself is the own cgroup.
    folder = mount / path.strip("/")
    for place in [folder, *folder.parents]:
        yield place
        if place == mount:
            return


def _bound(place: Path, limit_name: str, used_name: str, cache: tuple[str, ...]) -> list[tuple[int, int]]:
    limit = _number(place / limit_name)
    if limit is None or limit >= UNLIMITED:
        return []
    used = _number(place / used_name) or 0
    return [(limit, max(0, used - sum(_statistics(place / "memory.stat").get(name, 0) for name in cache)))]


def _statistics(path: Path) -> dict[str, int]:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    pairs = [line.split() for line in lines]
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
