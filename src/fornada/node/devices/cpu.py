"""Host memory: what the machine has, within what the node's own cgroup allows."""

from pathlib import Path

from fornada.core.policy.placement import CPU, DeviceRoom

UNLIMITED = 1 << 60
"""What cgroup v1 says for "no limit" is near 2^63."""


class Host:
    """The device `cpu`."""

    id = CPU
    kind = "cpu"

    def __init__(self, *, budget_bytes: int, reserve_share: float, reserve_bytes: int, root: Path = Path("/")) -> None:
        """`budget_bytes` 0: what the cgroup allows, less the reserve (a share of it, or a number of bytes)."""
        self._root = root
        self._machine = memory_info(root)["MemTotal"]
        allowed = min([self._machine, *(limit for limit, _ in cgroup_memory(root))])
        self.total_bytes = budget_bytes or max(0, allowed - int(allowed * reserve_share) - reserve_bytes)

    def room(self) -> DeviceRoom:
        return DeviceRoom(CPU, self.total_bytes)

    def view(self, *, reserved_bytes: int, resident_bytes: int) -> dict[str, object]:
        """`resident_bytes` is what the runners hold; the rest of what is in use is somebody else's."""
        return {
            "id": CPU,
            "total_bytes": self.total_bytes,
            "reserved_bytes": reserved_bytes,
            "used_bytes": resident_bytes,
            "foreign_bytes": max(0, self._in_use() - resident_bytes),
            "state": "ok",
            "kind": self.kind,
        }

    def _in_use(self) -> int:
        used = [used for limit, used in cgroup_memory(self._root) if limit < self._machine]
        if used:
            return used[0]
        info = memory_info(self._root)
        return info["MemTotal"] - info.get("MemAvailable", info["MemTotal"])


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
    """(limit, bytes in use) of the own memory cgroup and of those above it that set a limit, the innermost first."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            found += _limits(root / "sys/fs/cgroup", path, "memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            found += _limits(root / "sys/fs/cgroup/memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes")
    return found


def _limits(mount: Path, path: str, limit_name: str, used_name: str) -> list[tuple[int, int]]:
    # In a container the path may be the host's, which isn't mounted here: then the mount itself is the own cgroup.
    folder = mount / path.strip("/")
    found = []
    for place in [folder, *folder.parents]:
        limit, used = _number(place / limit_name), _number(place / used_name)
        if limit is not None and limit < UNLIMITED:
            found.append((limit, used or 0))
        if place == mount:
            break
    return found


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
