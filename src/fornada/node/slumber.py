"""How an instance falls asleep and wakes up: asks its process, believes what the device's own counter says, and measures both ways.

Sleep ── SLEEP ──> the process ── SLEPT ──> the device's counter ──fallen──> Slept
                        ├─ failed ───────────────└─ not within BELIEVED_S ──> SleepFailed: the process is ended
                        └─ says nothing for drain_s ────────────────────────> SleepFailed: others wait for what it holds
Wake  ── WAKE ───> the process ── WOKEN ──────────────────────────────────> Woken
                        └─ failed ────────────────────────────────────────> SleepFailed
"""

import asyncio
from typing import Any, Protocol

from fornada.core.errors import Conflict, ModelRaised, RunnerDied
from fornada.core.lifecycle.events import Event, Outcome, Sleep, SleepFailed, Slept, Wake, Woken
from fornada.core.lifecycle.states import COMING_UP, RESTING, State
from fornada.core.names import Instant, ModelName
from fornada.core.policy.ladder import Rung, resting_rung
from fornada.core.policy.memory import CPU
from fornada.core.ports import Step
from fornada.core.resources import format_size
from fornada.node.runner import Runner
from fornada.node.site import Site
from fornada.node.worth import Worth

BELIEVED_S = 5.0
"""How long a device may take to say that what a process gave back is free: as long as after a process's end."""
LOOK_S = 0.05
LEFT_SHARE = 0.5
"""Of what it held on its device it may still hold that much asleep: its context and its code. With more a sleep isn't worth a process."""
LEAST_BYTES = 1024**2
"""What a process on the cpu has to give back at least: its libraries stay, so that a share of all says nothing, and less may be anything."""
STEP_S = 1.0
"""What a step takes, as long as neither was measured nor can be told by a device's bandwidth."""


class Sleeper(Protocol):
    """The instance."""

    model: ModelName
    key: str
    worth: Worth
    runner: Runner | None
    version: Any
    device_bytes: int
    memory_bytes: int
    ended_because: str
    progress: Step

    @property
    def state(self) -> State: ...

    @property
    def process(self) -> Any: ...

    def tell(self, event: Event) -> None: ...

    def put_to_sleep(self, reason: str) -> None: ...

    @property
    def last_used(self) -> Instant: ...

    async def outcome(self, deadline: Instant) -> Outcome: ...


class Slumber:
    """Of one instance."""

    def __init__(self, sleeper: Sleeper, *, site: Site) -> None:
        self._sleeper = sleeper
        self._site = site
        self._held_bytes: int | None = None
        """On its device, before it was asked to sleep; None: a predecessor asked, and nobody knows."""
        self.failed_because = ""
        """Why the last sleep or wake came to nothing."""
        self._overdue: asyncio.Task[None] | None = None

    # ---- what the life orders

    def carry_out(self, command: Sleep | Wake, runner: Runner) -> None:
        self._sleeper.progress = Step("", "")
        if isinstance(command, Wake):
            runner.wake()
            return
        # A task, not a timer: it ends with the node.
        self._overdue = self._site.tasks.start(self._watch(runner), name=f"overdue {runner.id}")
        if runner.device == CPU:
            self._site.tasks.start(self._ask_on_the_cpu(runner), name=f"sleep {runner.id}")
        else:
            self._ask(runner)

    # ---- what the process says

    def slept(self, runner: Runner, said: dict[str, Any]) -> None:
        """SLEPT, or a HELLO that says so."""
        self.in_time()
        if failed := said.get("failed"):
            self._fail(runner, f"it could not give its memory back: {failed}")
            return
        if self._held_bytes is None:
            self._held_bytes = self._held_once(runner)
        self._site.devices.gave_back(runner.id, now=self._site.now())
        self._site.tasks.start(self._believe(runner), name=f"believe {runner.id}")

    def woken(self, runner: Runner, said: dict[str, Any]) -> None:
        """WOKEN."""
        if failed := said.get("failed"):
            self._fail(runner, f"it could not take its memory back: {failed}")
        else:
            self._sleeper.tell(Woken())

    def in_time(self) -> None:
        """It has said that it sleeps, or nobody waits for that any more."""
        if self._overdue is not None:
            self._overdue.cancel()

    def overran(self) -> None:
        """The life's patience is at its end."""
        if self._sleeper.state in (State.FALLING_ASLEEP, State.WAKING):
            self._note_failure(f"it was still {self._sleeper.state.value} after {self._sleeper.version.spec.serving.load_timeout_s:g} s")

    # ---- what it is worth

    def offer(self, runner: Runner) -> None:
        """It is ready, and says that it can sleep: what that would take and cost, as long as nothing was measured."""
        if not runner.sleeps:
            return
        charges = self._site.room.charges(self._resident)
        host_bytes = charges.memory.bytes if charges is not None else 0
        held = self._site.devices.held(runner.id, runner.device)
        kind = self._site.devices.kind(runner.device)
        copied = 0 if kind in (CPU, "fake") else held
        step_s = self._site.devices.copy_s(runner.device, held) if kind == "fake" else STEP_S
        self._sleeper.worth.offers_sleep(self._site.now(), step_s=step_s, host_bytes=host_bytes + copied)

    @property
    def rests_asleep(self) -> bool:
        """Without work it is to sleep rather than to stop."""
        ladder = self._sleeper.worth.ladder
        return resting_rung(ladder) is Rung.ASLEEP and self._site.room.houses(self._resident, ladder.asleep_host_bytes)

    @property
    def refusal(self) -> str:
        """Why it can't be put to sleep; empty: it can."""
        model, worth = self._sleeper.model, self._sleeper.worth
        if not worth.ladder.sleeps:
            why = (
                f"its last sleep failed ({self.failed_because})" if self.failed_because else "its engine or its code has no sleep and wake"
            )
            return f"{model} can't sleep: {why}; unload it instead"
        if not self._site.room.houses(self._resident, worth.ladder.asleep_host_bytes):
            size = format_size(worth.ladder.asleep_host_bytes)
            return f"{model} can't sleep now: the host has no room for the {size} that it needs there; unload it instead"
        return ""

    async def ordered(self, deadline: Instant) -> None:
        """An operator wants it asleep. Returns when it is. Raises Conflict where it can't be, ModelRaised or RunnerDied where it fails at it,
        DeadlinePassed."""
        sleeper, asked = self._sleeper, False
        while sleeper.state is not State.ASLEEP:
            if sleeper.state in RESTING:
                if not asked:
                    raise Conflict(f"nothing of {sleeper.model} runs that could sleep; load it first")
                if self.failed_because:
                    raise ModelRaised(f"{sleeper.model} failed to fall asleep and was stopped: {self.failed_because}")
                raise Conflict(f"{sleeper.model} didn't fall asleep: {sleeper.ended_because}")
            if sleeper.state is State.READY:
                if refusal := self.refusal:
                    raise Conflict(refusal)
                sleeper.put_to_sleep("an operator put it to sleep")
            asked = True
            match await sleeper.outcome(deadline):
                case Outcome.ASLEEP:
                    return
                case Outcome.CRASHED:
                    raise RunnerDied(f"{sleeper.model} didn't fall asleep: {sleeper.ended_because}")

    # ---- within

    @property
    def _resident(self) -> Any:
        return self._sleeper

    def _is_current(self, runner: Runner) -> bool:
        return self._sleeper.runner is runner and (self._sleeper.state is State.FALLING_ASLEEP or self._sleeper.state in COMING_UP)

    def _ask(self, runner: Runner) -> None:
        self._held_bytes = self._held(runner)
        runner.sleep()

    async def _ask_on_the_cpu(self, runner: Runner) -> None:
        """The last reading may be older than what it has taken since."""
        with self._site.faults.contained("sleep", model=self._sleeper.model, instance=runner.id):
            await self._look(runner)
        if self._is_current(runner):
            self._ask(runner)

    async def _believe(self, runner: Runner) -> None:
        """Ends in Slept or SleepFailed, unless the process ends first."""
        site, sleeper = self._site, self._sleeper
        with site.faults.contained("believe", model=sleeper.model, instance=runner.id):
            before = self._held_bytes or 0
            until = site.now() + BELIEVED_S + site.devices.copy_s(runner.device, before)
            while True:
                await self._look(runner)
                if not self._is_current(runner):
                    return
                left = self._held(runner)
                if self._held_bytes is None or _has_fallen(runner.device, before, left):
                    break
                if site.now() >= until:
                    numbers = f"{format_size(before)} before, {format_size(left)} {BELIEVED_S:g} s after it said that it slept"
                    self._fail(runner, f"{runner.device} doesn't count its memory as free: {numbers}")
                    return
                await asyncio.sleep(LOOK_S)
            if runner.device != CPU:
                await site.ledger.weigh([self._resident])
            if self._is_current(runner):
                self._fell_asleep(runner, left)
            return
        if self._is_current(runner):
            self._fail(runner, "internal fault")

    async def _look(self, runner: Runner) -> None:
        if runner.device == CPU:
            await self._site.ledger.weigh([self._resident])
        else:
            await self._site.devices.look(now=self._site.now())

    def _held(self, runner: Runner) -> int:
        """What its process holds of what sleeping is to give back, by the last look."""
        if runner.device == CPU:
            return self._site.ledger.held_of_host(self._resident)
        return self._site.devices.held(runner.id, runner.device)

    def _held_once(self, runner: Runner) -> int | None:
        """The same before a sleep for which a predecessor asked: the most that was measured, then."""
        if self._site.devices.kind(runner.device) == "fake":
            return self._held(runner)
        learned = self._site.ledger.learned(self._resident)
        return (learned.memory_bytes if runner.device == CPU else learned.device_bytes) or None

    def _fell_asleep(self, runner: Runner, left: int) -> None:
        site, sleeper = self._site, self._sleeper
        self.failed_because = ""
        host_bytes = site.ledger.asleep_host_bytes(self._resident)
        of_device = 0 if runner.device == CPU else left
        sleeper.worth.slept(site.now(), answered_at=sleeper.last_used, device_bytes=of_device, host_bytes=host_bytes)
        site.telemetry.log.info(
            "instance.asleep", model=sleeper.model, instance=runner.id, pid=runner.pid, held_bytes=self._held_bytes, left_bytes=left
        )
        self._held_bytes = None
        site.room.slept(self._resident)
        sleeper.tell(Slept())

    async def _watch(self, runner: Runner) -> None:
        await asyncio.sleep(self._site.settings.drain_s)
        if self._sleeper.runner is runner and self._sleeper.state is State.FALLING_ASLEEP:
            self._fail(runner, f"it was still falling asleep after {self._site.settings.drain_s:g} s (drain_s)")

    def _fail(self, runner: Runner, reason: str) -> None:
        self._note_failure(reason)
        self._sleeper.tell(SleepFailed(reason))

    def _note_failure(self, reason: str) -> None:
        """Its process is ended for it."""
        sleeper, runner = self._sleeper, self._sleeper.runner
        self.failed_because = reason
        sleeper.ended_because = f"its {'sleep' if sleeper.state is State.FALLING_ASLEEP else 'waking'} failed ({reason})"
        sleeper.worth.sleeps_badly()
        log, instance = self._site.telemetry.log, runner.id if runner is not None else ""
        log.error(
            "instance.sleep_failed", model=sleeper.model, instance=instance, pid=runner.pid if runner is not None else 0, reason=reason
        )


def _has_fallen(device: str, before: int, left: int) -> bool:
    return left <= before - LEAST_BYTES if device == CPU else left <= before * LEFT_SHARE
