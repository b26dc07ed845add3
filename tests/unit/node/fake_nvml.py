"""pynvml as its documentation says that it behaves, over cards that are told what to say.

What isn't documented, or needs a driver, can't be shown with it: which pid namespace a driver answers in, and how long calls take.
"""

from collections import deque
from types import SimpleNamespace
from typing import Any


class NVMLError(Exception):
    pass


class NVMLError_LibraryNotFound(NVMLError):  # noqa: N801 - pynvml's own names, here and below
    pass


class NVMLError_NotSupported(NVMLError):  # noqa: N801
    pass


class NVMLError_NoPermission(NVMLError):  # noqa: N801
    pass


class NVMLError_FunctionNotFound(NVMLError):  # noqa: N801
    pass


class NVMLError_NotFound(NVMLError):  # noqa: N801
    pass


class NVMLError_Timeout(NVMLError):  # noqa: N801
    pass


class NVMLError_GpuIsLost(NVMLError):  # noqa: N801
    pass


class FakeCard:
    """What the driver knows of one card, or of a part of one."""

    def __init__(self, uuid: str, *, total: int, name: str | bytes = "NVIDIA H200", parts: "tuple[FakeCard | None, ...]" = ()) -> None:
        self.uuid = uuid
        self.name = name
        self.total = total
        self.used = 0
        self.processes: dict[int, int | None] = {}
        self.mps: dict[int, int | None] = {}
        self.xids: deque[int] = deque()
        self.energy_mj: int | None = None
        self.lost = False
        self.tells_processes = True
        self.tells_events = True
        self.parts = parts
        """By number; None: there is none of that number."""


class FakeNvml:
    """The module."""

    NVMLError = NVMLError
    NVMLError_NotSupported = NVMLError_NotSupported
    NVMLError_NoPermission = NVMLError_NoPermission
    NVMLError_FunctionNotFound = NVMLError_FunctionNotFound
    NVMLError_NotFound = NVMLError_NotFound
    NVMLError_Timeout = NVMLError_Timeout
    nvmlEventTypeXidCriticalError = 8  # noqa: N815

    def __init__(self, *cards: FakeCard, library: bool = True) -> None:
        self.cards = cards
        self.library = library
        self.sets_left = 0

    def nvmlInit(self) -> None:  # noqa: N802
        if not self.library:
            raise NVMLError_LibraryNotFound("NVML Shared Library Not Found")

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, number: int) -> FakeCard:  # noqa: N802
        return self._there(self.cards[number])

    def nvmlDeviceGetName(self, card: FakeCard) -> str | bytes:  # noqa: N802
        return card.name

    def nvmlDeviceGetUUID(self, card: FakeCard) -> str:  # noqa: N802
        return card.uuid

    def nvmlDeviceGetMemoryInfo(self, card: FakeCard) -> Any:  # noqa: N802
        self._there(card)
        return SimpleNamespace(total=card.total, used=card.used, free=card.total - card.used)

    def nvmlDeviceGetComputeRunningProcesses(self, card: FakeCard) -> list[Any]:  # noqa: N802
        return self._listed(card, card.processes)

    def nvmlDeviceGetMPSComputeRunningProcesses(self, card: FakeCard) -> list[Any]:  # noqa: N802
        return self._listed(card, card.mps)

    def nvmlDeviceGetTotalEnergyConsumption(self, card: FakeCard) -> int:  # noqa: N802
        self._there(card)
        if card.energy_mj is None:
            raise NVMLError_NotSupported("Not Supported")
        return card.energy_mj

    def nvmlDeviceGetMigMode(self, card: FakeCard) -> list[int]:  # noqa: N802
        if not card.parts:
            raise NVMLError_NotSupported("Not Supported")
        return [1, 1]

    def nvmlDeviceGetMaxMigDeviceCount(self, card: FakeCard) -> int:  # noqa: N802
        return len(card.parts)

    def nvmlDeviceGetMigDeviceHandleByIndex(self, card: FakeCard, number: int) -> FakeCard:  # noqa: N802
        part = card.parts[number]
        if part is None:
            raise NVMLError_NotFound("Not Found")
        return part

    def nvmlEventSetCreate(self) -> dict[str, FakeCard]:  # noqa: N802
        self.sets_left += 1
        return {}

    def nvmlEventSetFree(self, events: dict[str, FakeCard]) -> None:  # noqa: N802
        self.sets_left -= 1

    def nvmlDeviceRegisterEvents(self, card: FakeCard, kinds: int, events: dict[str, FakeCard]) -> None:  # noqa: N802
        if not card.tells_events:
            raise NVMLError_NotSupported("Not Supported")
        events["card"] = card

    def nvmlEventSetWait_v2(self, events: dict[str, FakeCard], timeout_ms: int) -> Any:  # noqa: N802
        xids = events["card"].xids
        if not xids:
            raise NVMLError_Timeout("Timeout")
        return SimpleNamespace(device=events["card"], eventType=8, eventData=xids.popleft())

    def _listed(self, card: FakeCard, processes: dict[int, int | None]) -> list[Any]:
        self._there(card)
        if not card.tells_processes:
            raise NVMLError_NoPermission("Insufficient Permissions")
        return [SimpleNamespace(pid=pid, usedGpuMemory=count) for pid, count in processes.items()]

    def _there(self, card: FakeCard) -> FakeCard:
        if card.lost:
            raise NVMLError_GpuIsLost("GPU is lost")
        return card
