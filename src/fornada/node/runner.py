"""One process of an instance, seen from the control plane: its wire, its output, its signals, its end.

Translates what comes over the wire into the events of the instance's life, and nothing more: what to do about them is decided
in core.lifecycle.
"""

import asyncio
import signal
from collections import deque
from typing import Any, Protocol

from fornada.core.errors import OutOfDeviceMemory
from fornada.core.lifecycle.events import Event, FailureKind, Faulted, FoundHalfway, Hung, Loaded, LoadFailed, Progressed, Unwanted
from fornada.core.lifecycle.states import State
from fornada.core.names import ModelName
from fornada.core.policy.hanging import Bounds
from fornada.core.ports import ExitStatus, ProcessPort, Step, Version
from fornada.core.specs import ServingSpec
from fornada.node.bookings import BYTES_MOST, Booking, Bookings
from fornada.node.call import Call
from fornada.node.link import Link
from fornada.node.metering import Meter
from fornada.node.outbound import Gate, named_places
from fornada.node.output import OutputReader
from fornada.node.shortage import Short, tried_again
from fornada.node.site import Site
from fornada.node.watchdog import Stuck, Watchdog
from fornada_sdk.wire.framing import ProtocolError
from fornada_sdk.wire.messages import WIRE_VERSION

TEXT_LONGEST = 512
CLOSED_S = 1.0
"""How long a process may live on after it closed its end of the wire."""
LOAD_LONGEST_S = 1e9
REQUEST_LARGEST = (1 << 64) - 1
ORPHANS_TOLD_S = 1.0
"""How often at most the log is told of answers that nobody waits for; the metric counts each."""


class Owner(Short, Protocol):
    """The instance that a runner belongs to."""

    model: ModelName
    version: Version

    def tell(self, event: Event) -> None: ...

    def note_progress(self, step: Step) -> None: ...

    def freed(self) -> None: ...

    def ran_short(self, reason: str) -> str:
        """Its memory ran out. The reason, with what was planned and what is needed."""

    def grow(self, count: int) -> str:
        """It is about to take so many bytes more of its device. Empty: it may; else why not."""

    def slept(self, said: dict[str, Any]) -> None:
        """SLEPT, or a HELLO that says so."""

    def woken(self, said: dict[str, Any]) -> None:
        """WOKEN."""

    def hung_up(self) -> None:
        """The process closed its end of the wire CLOSED_S ago and still lives."""


class Runner:
    """Implements node.ears.Ears."""

    def __init__(
        self, process: ProcessPort, owner: Owner, *, site: Site, serving: ServingSpec, service_s: deque[float], device: str
    ) -> None:
        self.process = process
        self.id = process.instance
        self.pid = process.pid
        self.device = device
        self.load_count = int(process.memo.get("load_count", 0))
        self.facts: dict[str, Any] = {}
        """READY's fields: load_s, warmup_s, streaming, tensors, pipelining."""
        self.granted_ahead = 0
        self.host = str(process.memo.get("host") or "")
        """Name of the process that it shares; empty: it has one of its own."""
        self.grown_bytes = 0
        """What the process grew by while this instance loaded, where it shares one."""
        self.heard = False
        """It has begun: its first word has come."""
        self._coming_up = True
        self.was_ready = False
        self.sleeps = False
        """It says that it can give its device memory back and take it again."""
        self._on_its_way = ""
        """falling | waking: it is to say when it is there."""
        self.over = False
        """The keeper has told its end."""
        self._orphans = 0
        """Answers that nobody waits for, since the log was last told of one."""
        self._orphans_told_at = float("-inf")
        self._hanging: asyncio.TimerHandle | None = None
        self._owner = owner
        self._site = site
        self._serving = serving
        runner_s = site.telemetry.metrics.request_seconds.at(owner.model, "runner")
        self.link = Link(
            process.link,
            ears=self,
            service_s=service_s,
            runner_s=runner_s,
            max_body=serving.max_body,
            now=site.now,
            loop=site.loop,
            meter=Meter(site.usage, owner.model, owner.version.spec.price),
        )
        self._bounds = Bounds(serving.concurrency, serving.concurrency * serving.max_batch, serving.timeout_s, site.settings.cancel_s)
        # Beside a predecessor what isn't begun may wait for one of its requests, of which nothing is known here.
        decides = lambda: not (self.over or site.handover.hands_off or site.handover.predecessor)  # noqa: E731
        self._watchdog = Watchdog(self.link, self._bounds, hung=self._hung, decides=decides, now=site.now, loop=site.loop)
        self.output = self._read_output()
        self._bookings = Bookings(self._book, faulted=self.faulted, loop=site.loop)
        self._gate = self._open_gate()

    # ---- what the instance orders

    def terminate(self) -> None:
        self.process.signal(signal.SIGTERM)

    def kill(self) -> None:
        # To the whole session: a model's own child would keep the memory otherwise.
        self.process.signal(signal.SIGKILL)

    def sleep(self) -> None:
        """Give the device's memory back. Nothing is under way."""
        self._on_its_way = "falling"
        self.link.sleep()

    def wake(self) -> None:
        self._on_its_way = "waking"
        self.link.wake()

    async def ended(self) -> ExitStatus:
        """Waits for the end of the process and takes in what it had still said and printed."""
        status = await self.process.exited()
        self.over = True
        self._watchdog.end()
        if self._hanging is not None:
            self._hanging.cancel()
        for ends in (self._close_gate, self.link.hear_out, self._bookings.close, self.output.close):
            with self._site.faults.contained("last words", model=self._owner.model, instance=self.id):
                ends()
        return status

    def used(self, status: ExitStatus) -> dict[str, Any]:
        """For the log: what it took, and what it was too much of."""
        taken: dict[str, Any] = {"max_rss_bytes": status.max_rss_bytes, "cpu_s": round(status.cpu_s, 3)}
        if status.over_memory:
            taken["over_memory"] = True
        if self.output.dropped:
            taken["lines_dropped"] = self.output.dropped
        return taken

    def close(self) -> None:
        """After `ended`, when no caller waits any more."""
        self._close_gate()
        self.link.forget()
        self.link.close()
        self.process.forget()

    def is_suspect(self) -> bool:
        """Asked after its end: it was at work, or coming up, so that what ended a shared process may have been this instance."""
        return bool(self.link.calls) or (self._coming_up and self.heard)

    def let_go(self) -> None:
        """Reads and writes no more; the process goes on."""
        self._watchdog.end()
        if self._hanging is not None:
            self._hanging.cancel()
        self._close_gate()
        self._bookings.close()
        self.link.close()
        self.output.stop()

    def withdraw(self) -> None:
        """Another control plane may read what it prints and hear what it wishes; its answers to our requests are still ours."""
        self.output.stop()
        if self._gate is not None:
            self._gate.pause()

    def come_back(self) -> None:
        """After `withdraw`."""
        if self.over:
            return
        self.output = self._read_output()
        if self._gate is not None:
            self._gate.resume()

    def _read_output(self) -> OutputReader:
        return OutputReader(
            self.process.output,
            model=self._owner.model,
            instance=self.process.instance,
            outputs=self._site.telemetry.outputs,
            lines_dropped=self._site.telemetry.metrics.lines_dropped.at(self._owner.model),
            crowd=self._site.crowd,
            wall=self._site.clock.wall,
            loop=self._site.loop,
        )

    def _open_gate(self) -> Gate | None:
        if self.process.outbound < 0:
            return None
        network = self._owner.version.spec.resources.network
        return Gate(self.process.outbound, self._site.way_out, model=self._owner.model, instance=self.id, network=named_places(network))

    def _close_gate(self) -> None:
        if self._gate is not None:
            self._gate.close()

    # ---- what the wire tells

    def greeted(self, hello: dict[str, Any]) -> None:
        self.heard = True
        wire, instance, state = hello.get("wire"), hello.get("instance"), hello.get("state")
        if not isinstance(wire, int) or wire > WIRE_VERSION:
            raise ProtocolError(f"it speaks version {wire} of the wire, this release speaks {WIRE_VERSION}")
        if instance != self.id:
            raise ProtocolError("it says that it is another instance")
        self._take_over(hello)
        match state:
            case "loading":
                progress = hello.get("progress")
                self.progressed(progress if isinstance(progress, dict) else {})
            case "ready":
                self.loaded(hello)
            case "falling" | "waking":
                self._loaded(hello)
                self._on_its_way = state
                self._owner.tell(FoundHalfway(waking=state == "waking"))
            case "asleep":
                self._loaded(hello)
                self._owner.slept({})
            case "failed":
                self.failed(hello)
            case "stopping":
                self._coming_up = False
                self._owner.tell(Unwanted(self._site.now(), 0.0))
            case _:
                raise ProtocolError(f"its state is '{state}'")

    def progressed(self, progress: dict[str, Any]) -> None:
        self._expect_coming_up("PROGRESS")
        phase = "warming" if progress.get("phase") == "warming" else "loading"
        fraction = progress.get("fraction")
        known = isinstance(fraction, int | float) and 0 <= fraction <= 1
        text = str(progress.get("text") or "")[:TEXT_LONGEST]
        self._owner.tell(Progressed(warming=phase == "warming"))
        self._owner.note_progress(Step(phase, text, float(fraction) if known and fraction is not None else None))

    def loaded(self, ready: dict[str, Any]) -> None:
        self._loaded(ready)
        self._owner.tell(Loaded())

    def _loaded(self, ready: dict[str, Any]) -> None:
        """READY's fields; a HELLO has them too, from then on."""
        self._expect_coming_up("READY")
        self._coming_up = False
        self.was_ready = True
        self.facts = {key: ready[key] for key in ("streaming", "tensors") if key in ready}
        self._site.signatures.note(self._owner.version.digest, self.facts.get("tensors"))
        self.facts |= {key: ready[key] for key in ("load_s", "warmup_s") if _is_duration(ready.get(key))}
        grown = ready.get("grown_bytes")
        self.grown_bytes = grown if isinstance(grown, int) and 0 <= grown <= BYTES_MOST else 0
        granted = ready.get("pipelining")
        working = self._serving.concurrency * self._serving.max_batch
        self.granted_ahead = max(0, granted - working) if isinstance(granted, int) else 0
        self.sleeps = ready.get("sleeps") is True and not self.host

    def failed(self, failure: dict[str, Any]) -> None:
        self._expect_coming_up("FAILED")
        self._coming_up = False
        reason = str(failure.get("reason") or "it doesn't say why")[:TEXT_LONGEST]
        if failure.get("kind") == "memory":
            self._owner.tell(LoadFailed(self._owner.ran_short(reason), FailureKind.MEMORY))
        else:
            self._owner.tell(LoadFailed(reason))

    def slept(self, said: dict[str, Any]) -> None:
        self._arrive("falling", "SLEPT")
        self._owner.slept(_told(said))

    def woken(self, said: dict[str, Any]) -> None:
        self._arrive("waking", "WOKEN")
        self._owner.woken(_told(said))

    def _arrive(self, way: str, message: str) -> None:
        if self._on_its_way != way:
            raise ProtocolError(f"{message} although it was not asked to")
        self._on_its_way = ""

    def asked(self, number: int, booking: dict[str, Any]) -> None:
        if self._site.handover.replaced:
            return  # the successor was asked, too
        self._bookings.asked(number, booking)

    def _book(self, booking: Booking) -> None:
        if booking.device != self.device:
            refusal = f"the instance runs on {self.device}, not on {booking.device}"
        else:
            refusal = self._owner.grow(booking.bytes) or self._site.devices.book(
                self.id, booking.device, booking.bytes, release_delay_s=booking.release_delay_s, now=self._site.now()
            )
            if refusal:
                self._site.ledger.refused(self.id, booking.bytes)
        copy_s = self._site.devices.copy_s(booking.device, booking.bytes) if self._on_its_way == "waking" and not refusal else 0.0
        if copy_s:
            self._site.loop.call_later(copy_s, self._booked, booking.number, refusal)
        else:
            self._booked(booking.number, refusal)
        self._site.room.replan()

    def _booked(self, number: int, refusal: str) -> None:
        if not self.over and self.link.open:
            self.link.booked(number, refusal=refusal)

    def freed(self) -> None:
        self._owner.freed()

    def abandoned(self) -> None:
        self._watchdog.left()

    def ran_out(self, call: Call, error: OutOfDeviceMemory) -> OutOfDeviceMemory | None:
        return tried_again(self._owner, call, error, site=self._site)

    def orphaned(self, request: int) -> None:
        self._site.telemetry.metrics.orphaned.at().value += 1
        self._orphans += 1
        now = self._site.now()
        if now >= self._orphans_told_at + ORPHANS_TOLD_S:
            self._orphans_told_at = now
            count, self._orphans = self._orphans, 0
            self._site.telemetry.log.info(
                "request.orphaned", model=self._owner.model, instance=self.id, request=request, since_last_told=count
            )

    def faulted(self, reason: str) -> None:
        self._site.telemetry.log.error("instance.fault", model=self._owner.model, instance=self.id, pid=self.pid, reason=reason)
        self._owner.tell(Faulted(reason))

    def _hung(self, stuck: Stuck) -> None:
        about = {"requests": list(stuck.requests), "given_up_s": round(stuck.left_s, 3), "others": stuck.others}
        self._site.telemetry.log.error("instance.hung", model=self._owner.model, instance=self.id, pid=self.pid, **about)
        # Told to other callers, too: of whom it works for it says nothing.
        reason = f"it hung: it went on for {stuck.left_s:.0f} s with a request that nobody waited for any more"
        goes_on = self._owner.state is State.READY and not stuck.others  # an unload is not undone by who waits behind what hangs
        unbegun = self.link.take_back(behind=self._bounds.most) if goes_on else []
        self._owner.tell(Hung(self._site.now(), reason, self._site.settings.drain_s if stuck.others else 0.0))
        if unbegun:
            self._owner.intake.take_over(unbegun)

    def hung_up(self) -> None:
        # Usually the process is dying and the keeper's word is on its way: that one knows why.
        if not self.over:
            self._hanging = self._site.loop.call_later(CLOSED_S, self._owner.hung_up)

    def _expect_coming_up(self, message: str) -> None:
        if not self._coming_up:
            raise ProtocolError(f"{message} although its load was over")

    def _take_over(self, hello: dict[str, Any]) -> None:
        """What an adopted runner still works on for callers who are gone, and what it holds."""
        booked = hello.get("booked")
        if isinstance(booked, dict):
            self._site.devices.take_over(self.id, {str(k): v for k, v in booked.items() if isinstance(v, int) and v <= BYTES_MOST})
        in_flight = hello.get("in_flight")
        if isinstance(in_flight, list):
            self.link.cancel_foreign(id for id in in_flight if isinstance(id, int) and 0 <= id <= REQUEST_LARGEST)


def _told(said: dict[str, Any]) -> dict[str, Any]:
    return {"failed": str(said["failed"])[:TEXT_LONGEST]} if said.get("failed") else {}


def _is_duration(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value <= LOAD_LONGEST_S
