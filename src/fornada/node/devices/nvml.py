"""The driver's own counters of each NVIDIA card, through NVML: what there is, who holds it, what has gone wrong.

Every call may take its time, and seconds with a card that is about to be lost: all but `find` are made in a thread. What a driver
doesn't tell (NOT_SUPPORTED: energy on many cards, MIG on most) is left out; what it refuses altogether is a lost card.
"""

import importlib
import os
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

PRESENT = ("/dev/nvidiactl", "/dev/dxg")
"""Without any of these there is no card, and the library isn't even looked for: importing it takes as long as a model's start."""
XIDS_MOST = 64
"""Events taken in at one reading."""


class Reading(NamedTuple):
    """A card at one moment."""

    total_bytes: int
    used_bytes: int
    """By whomever, the driver too."""
    processes: dict[int, int]
    """Pid -> bytes, where the driver tells; 0: it only tells that the process is there. Pids are those of the namespace in which the
    driver answers: outside of a container that doesn't share the host's they mean nothing."""
    xids: tuple[int, ...] = ()
    """Faults since the last reading."""
    energy_j: float | None = None
    """Taken since the driver was loaded."""
    lost: str = ""
    """Why the card can't be used, in the driver's words; nothing else holds then."""


class Card:
    """One card, or one part of a card that is split (MIG)."""

    def __init__(self, nvml: Any, handle: Any, *, whole: Any, events: bool) -> None:
        """`whole` is the card that `handle` is a part of, or itself. `events`: it is the one that hears of the card's faults."""
        self._nvml = nvml
        self._handle = handle
        self._whole = whole
        self.name = _text(nvml.nvmlDeviceGetName(whole))
        self.uuid = _text(nvml.nvmlDeviceGetUUID(handle))
        self._events = self._register() if events else None

    def read(self) -> Reading:
        """Never raises what the driver does."""
        nvml = self._nvml
        try:
            memory = nvml.nvmlDeviceGetMemoryInfo(self._handle)
            processes = self._processes()
            return Reading(int(memory.total), int(memory.used), processes, tuple(self._faults()), self._energy_j())
        except nvml.NVMLError as error:
            return Reading(0, 0, {}, lost=str(error))

    def _processes(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for ask in (self._nvml.nvmlDeviceGetComputeRunningProcesses, self._nvml.nvmlDeviceGetMPSComputeRunningProcesses):
            for process in self._told(lambda ask=ask: ask(self._handle)) or []:  # type: ignore[misc]
                found[int(process.pid)] = max(found.get(int(process.pid), 0), int(process.usedGpuMemory or 0))
        return found

    def _energy_j(self) -> float | None:
        millijoules = self._told(lambda: self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._whole))
        return None if millijoules is None else millijoules / 1000

    def _register(self) -> Any:
        """None where the driver tells of no faults."""
        nvml = self._nvml
        events = self._told(nvml.nvmlEventSetCreate)
        if events is None:
            return None
        try:
            nvml.nvmlDeviceRegisterEvents(self._whole, nvml.nvmlEventTypeXidCriticalError, events)
        except nvml.NVMLError:
            nvml.nvmlEventSetFree(events)
            return None
        return events

    def _faults(self) -> Iterable[int]:
        if self._events is None:
            return
        for _ in range(XIDS_MOST):
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._events, 0)
            except self._nvml.NVMLError_Timeout:
                return
            if int(event.eventType) == self._nvml.nvmlEventTypeXidCriticalError:
                yield int(event.eventData)

    def _told(self, ask: Callable[[], Any]) -> Any:
        """None where the driver doesn't tell, or not to us."""
        nvml = self._nvml
        try:
            return ask()
        except (nvml.NVMLError_NotSupported, nvml.NVMLError_NoPermission, nvml.NVMLError_FunctionNotFound):
            return None


def find(*, load: Callable[[], Any] | None = None, present: Iterable[str] = PRESENT) -> list[Card]:
    """The cards of this machine in the order of their numbers; none where there is no driver. `load` imports pynvml."""
    if not any(map(os.path.exists, present)):
        return []
    try:
        nvml = load() if load is not None else importlib.import_module("pynvml")
    except (ImportError, OSError):
        return []
    try:
        nvml.nvmlInit()
        count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError:
        return []
    found: list[Card] = []
    for number in range(count):
        try:
            whole = nvml.nvmlDeviceGetHandleByIndex(number)
            parts = _parts(nvml, whole)
            # Each fault is told once to each who asks: the parts of a card hear of all that befalls it.
            found += [Card(nvml, part, whole=whole, events=True) for part in parts or [whole]]
        except nvml.NVMLError:
            continue  # it was lost before anybody looked
    return found


def _parts(nvml: Any, whole: Any) -> list[Any]:
    """Handles of what a card is split into; empty: it is one."""
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(whole)
        if not current:
            return []
        most = nvml.nvmlDeviceGetMaxMigDeviceCount(whole)
    except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):
        return []
    parts = []
    for number in range(most):
        try:
            parts.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(whole, number))
        except nvml.NVMLError_NotFound:
            continue
    return parts


def _text(value: Any) -> str:
    """Older releases of pynvml say bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
