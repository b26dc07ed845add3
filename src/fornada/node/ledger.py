"""What each instance is charged for memory, on its device and of the host, and why: the node's one book.

Who has a place is said by node.room, what a charge comes to by core.policy.charges; here is what was measured. Live use is read every
few seconds and when a model has become ready; peaks are kept in the store, for the next placement and the next start of the node.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from fornada.core.errors import FornadaError
from fornada.core.names import ModelName
from fornada.core.policy.charges import NOTHING, Charge, Estimate, charge, learned_from, learned_from_shortage, missing_in, standing
from fornada.core.policy.memory import CPU
from fornada.core.ports import Peak, PeakKey, StorePort, Version
from fornada.core.resources import format_size
from fornada.node.devices import Devices
from fornada.node.memory_use import NOTHING as UNHELD
from fornada.node.memory_use import Held, held_by
from fornada.telemetry.log import Log

NOTICED = 1024**2
"""A peak that moves by less isn't written again."""
UNKNOWN = Peak(0, 0)


class Charged(Protocol):
    """What the ledger sees of an instance."""

    version: Version
    model: ModelName
    device_bytes: int
    memory_bytes: int
    """Both as declared."""

    @property
    def process(self) -> "Process | None":
        """None: it has none, or none any more."""


class Process(NamedTuple):
    """The process of an instance."""

    id: str
    pid: int
    device: str
    host: str
    """Name of the process that it shares; empty: it is its own."""
    grown_bytes: int
    """What a shared one grew by for it."""
    loaded: bool
    """It has been ready: what it took by then is what it takes."""
    still: bool
    """It is stopped: what it holds doesn't change."""


class Estimates(NamedTuple):
    """Of one instance."""

    device: Estimate
    memory: Estimate


class Charges(NamedTuple):
    """Of one instance."""

    device: Charge
    """NOTHING on the cpu."""
    memory: Charge


ASLEEP = Estimates(Estimate(), Estimate())
"""Of who has given back what it doesn't need there: nothing beyond what it holds."""


@dataclass(slots=True)
class _Seen:
    """The most that one process has held so far, and what it holds of the host now."""

    device_bytes: int = 0
    memory_bytes: int = 0
    held: Held = UNHELD
    refused_bytes: int = 0
    """What it asked of a device last and didn't get."""
    ran_short: bool = False
    """It would have taken more: that it took less than is planned says nothing."""
    forgets: bool = False
    """What was learned before it goes as soon as it has shown what it takes, or is gone."""


class Ledger:
    """Told by instances and by the heartbeat; asked by the room and by people."""

    def __init__(self, devices: Devices, store: StorePort, *, log: Log, measure: Callable[[int], Held] = held_by) -> None:
        """`measure` reads what the process of a pid holds, in a thread."""
        self._devices = devices
        self._store = store
        self._log = log
        self._measure = measure
        self._peaks: dict[ModelName, dict[PeakKey, Peak]] = {}
        self._seen: dict[str, _Seen] = {}
        self._unwritten: set[PeakKey] = set()
        """What the store couldn't take."""

    # ---- charges

    def estimates(self, of: Charged) -> Estimates:
        """Before it has a place: the most that it took anywhere."""
        known = [peak for key, peak in self._known(of.model).items() if key.digest == of.version.digest]
        device = max((peak.device_bytes for peak in known), default=0)
        memory = max((peak.memory_bytes for peak in known), default=0)
        # A bound that is enforced says what a model may take, not what it does: engines that reserve much have one of 2 GiB. What others hold
        # isn't there for anybody, and whoever waited for that would wait for ever.
        return Estimates(Estimate(of.device_bytes, device), Estimate(of.memory_bytes, memory, most_bytes=self._devices.host_left_bytes))

    def needs(self, of: Charged, devices: Iterable[str]) -> tuple[int, int]:
        """(bytes of its device, bytes of the host) that it waits for. `devices` are the accelerators of the node."""
        device, memory = self.estimates(of)
        roomiest = max(devices, key=self._devices.total_bytes, default=CPU)
        slack = self._devices.slack_bytes(roomiest)
        needed = charge(device, live_bytes=0, slack_bytes=slack, total_bytes=self._devices.total_bytes(roomiest))
        return needed.bytes, self._of_host(memory, UNHELD, shared=False).bytes

    def standing(self, of: Charged, promised: Estimates) -> Estimates:
        """What is expected by now of an instance that has a place, and is `promised` to it from here on."""
        process = of.process
        if process is None or not process.loaded:
            return promised
        now, seen = self.estimates(of), self._of(process)
        return Estimates(
            standing(promised.device, now.device, peak_bytes=seen.device_bytes),
            standing(promised.memory, now.memory, peak_bytes=seen.memory_bytes),
        )

    def charges(self, of: Charged, device: str, promised: Estimates) -> Charges:
        """Of an instance that has a place on `device`."""
        process = of.process
        on_device, memory = promised
        live, held, shared = 0, UNHELD, False
        if process is not None:
            live, shared = self._devices.held(process.id, process.device), bool(process.host)
            held = Held(process.grown_bytes, 0) if shared else self._of(process).held
        charged = NOTHING
        if device != CPU:
            slack, total = self._devices.slack_bytes(device), self._devices.total_bytes(device)
            charged = charge(on_device, live_bytes=live, slack_bytes=slack, total_bytes=total)
        return Charges(charged, self._of_host(memory, held, shared=shared))

    def _of_host(self, estimate: Estimate, held: Held, *, shared: bool) -> Charge:
        # What a shared process holds beside its members, and may hold for a moment, is counted once for all of them: see `sum_up`.
        slack = 0 if shared else self._devices.slack_bytes(CPU)
        return charge(estimate, live_bytes=held.bytes, slack_bytes=slack, total_bytes=self._devices.host_left_bytes)

    # ---- what is measured

    async def weigh(self, residents: Iterable[Charged]) -> None:
        """Reads what they hold, and learns from it."""
        processes = {process.id: (of, process) for of in residents if (process := of.process) is not None}
        moving = [process for _, process in processes.values() if not process.still or process.id not in self._seen]
        read = await asyncio.to_thread(lambda: {process.pid: self._measure(process.pid) for process in moving})
        for of, process in processes.values():
            now = of.process
            if now is None or now.id != process.id:
                continue  # it has ended meanwhile
            if (held := read.get(process.pid)) is not None:
                self._of(process).held = held
            self._note(of, now, over=False)

    def held_of_host(self, of: Charged) -> int:
        """What it holds of the host by the last reading."""
        process = of.process
        return 0 if process is None else self._of(process).held.bytes

    def asleep_host_bytes(self, of: Charged) -> int:
        """What it holds of the host by the last reading, with slack: what it is charged while it sleeps."""
        return 0 if of.process is None else self._of_host(Estimate(), Held(self.held_of_host(of), 0), shared=False).bytes

    def sum_up(self, residents: Iterable[Charged], *, helpers_bytes: int = 0) -> None:
        """Tells the host what of its memory is held by all of them, and by processes that are nobody's."""
        processes = [process for of in residents if (process := of.process) is not None]
        alone = sum(self._of(process).held.bytes for process in processes if not process.host)
        shared = {process.pid: self._of(process).held.bytes for process in processes if process.host}
        members = sum(process.grown_bytes for process in processes if process.host)
        self._devices.measured(held_bytes=alone + members, overhead_bytes=helpers_bytes + max(0, sum(shared.values()) - members))

    def loaded(self, of: Charged) -> None:
        """It is ready: what it booked is known at once, whatever else has to be read."""
        if (process := of.process) is not None:
            self._note(of, process, over=False)

    def ended(self, of: Charged, process: Process) -> None:
        """Its process has been reaped."""
        self._note(of, process, over=True)
        if self._seen.pop(process.id).forgets:
            self._drop(of)

    def _note(self, of: Charged, process: Process, *, over: bool) -> None:
        seen = self._of(process)
        seen.device_bytes = max(seen.device_bytes, self._devices.held(process.id, process.device))
        own = process.grown_bytes if process.host else seen.held.peak_bytes
        seen.memory_bytes = max(seen.memory_bytes, own)
        if not process.loaded:
            return  # half a model says nothing about the whole
        if seen.forgets:
            seen.forgets = False
            self._drop(of)
        key = self._key(of, process)
        known = self._known(of.model).get(key, UNKNOWN)
        self._keep(
            key,
            Peak(
                learned_from(known.device_bytes, seen.device_bytes, over=over and not seen.ran_short),
                learned_from(known.memory_bytes, seen.memory_bytes, over=over),
            ),
        )

    def refused(self, process_id: str, count: int) -> None:
        """It asked its device for so many bytes and didn't get them."""
        self._seen.setdefault(process_id, _Seen()).refused_bytes = count

    def ran_short(self, of: Charged, reason: str) -> str:
        """Its memory ran out while it loaded, for the `reason` that it gave. Learns how much it needs, and says it in words."""
        needed, said = self.shortage(of, reason)
        if needed:
            self.expect(of, needed)
        elif (process := of.process) is not None:
            key = self._key(of, process)
            known = self._known(of.model).get(key, UNKNOWN)
            self._keep(key, Peak(known.device_bytes, max(known.memory_bytes, of.memory_bytes)))
        return said

    def shortage(self, of: Charged, reason: str) -> tuple[int, str]:
        """(device memory that it needs, that and what there is in words); 0: it was the host's memory that ran out."""
        process = of.process
        if process is None:
            return 0, ""
        seen = self._of(process)
        missing = seen.refused_bytes or missing_in(reason)
        seen.refused_bytes = 0
        if process.device == CPU or not (missing or "cuda" in reason.lower()):
            return 0, f"{format_size(min(of.memory_bytes, self._devices.host_bytes))} is what it may take of the host's memory"
        on_device, _ = self.estimates(of)
        live = max(seen.device_bytes, self._devices.held(process.id, process.device))
        needed = learned_from_shortage(on_device, live_bytes=live, missing_bytes=missing)
        planned = format_size(on_device.expected_bytes)
        total = format_size(self._devices.total_bytes(process.device))
        return (
            needed,
            f"{planned} were planned for it on {process.device}, {format_size(needed)} are needed, {total} is what it has for models",
        )

    def expect(self, of: Charged, device_bytes: int) -> None:
        """So much of its device will be planned for it."""
        if (process := of.process) is not None:
            self._of(process).ran_short = True
            key = self._key(of, process)
            self._keep(key, Peak(device_bytes, self._known(of.model).get(key, UNKNOWN).memory_bytes))

    def forget(self, of: Charged) -> None:
        """An operator says that what was learned is wrong. Where there is a process it has its place by that, though, and a successor is to
        know it: until what it takes is known itself."""
        process = of.process
        if process is None:
            self._drop(of)
        else:
            self._of(process).forgets = True
            self._note(of, process, over=False)

    def forget_model(self, model: ModelName) -> None:
        """It has left the catalogue, and the store has forgotten it."""
        self._peaks.pop(model, None)
        self._unwritten = {key for key in self._unwritten if key.model != model}

    def write_again(self) -> None:
        """What the store couldn't take when it was learned: a disk that was full for a moment isn't to cost it at the next restart."""
        for key in list(self._unwritten):
            self._write(key)
            if key in self._unwritten:
                return

    def learned(self, of: Charged) -> Peak:
        """The most that was measured of the version."""
        device, memory = self.estimates(of)
        return Peak(device.learned_bytes, memory.learned_bytes)

    # ---- within

    def _of(self, process: Process) -> _Seen:
        return self._seen.setdefault(process.id, _Seen())

    def _drop(self, of: Charged) -> None:
        for key in [key for key in self._known(of.model) if key.digest == of.version.digest]:
            self._keep(key, None)

    def _known(self, model: ModelName) -> dict[PeakKey, Peak]:
        known = self._peaks.get(model)
        if known is None:
            known = self._peaks[model] = dict(self._store.peaks(model))
        return known

    def _key(self, of: Charged, process: Process) -> PeakKey:
        serving, resources = of.version.spec.serving, of.version.spec.resources
        parameters = f"concurrency={serving.concurrency} max_batch={serving.max_batch} threads={resources.threads}"
        how = " shared" if process.host else ""
        return PeakKey(of.model, of.version.digest, self._devices.make(process.device), parameters + how)

    def _keep(self, key: PeakKey, peak: Peak | None) -> None:
        known = self._known(key.model)
        before = known.get(key, UNKNOWN)
        if peak is None:
            del known[key]
        else:
            if peak == before:
                return
            known[key] = peak
            moved = max(abs(peak.device_bytes - before.device_bytes), abs(peak.memory_bytes - before.memory_bytes))
            if moved < NOTICED and before != UNKNOWN:
                known[key] = before
                return
        self._write(key)

    def _write(self, key: PeakKey) -> None:
        try:
            self._store.set_peak(key, self._known(key.model).get(key))
        except FornadaError as error:
            if key not in self._unwritten:
                self._log.warning("ledger.peak_lost", model=key.model, reason=error.message)
            self._unwritten.add(key)
        else:
            self._unwritten.discard(key)


def words(charged: Charge) -> dict[str, Any]:
    """For people and programs."""
    return {
        "bytes": charged.bytes,
        "because": charged.because.value,
        "declared_bytes": charged.declared_bytes,
        "learned_bytes": charged.learned_bytes,
        "live_bytes": charged.live_bytes,
        "slack_bytes": charged.slack_bytes,
    }
