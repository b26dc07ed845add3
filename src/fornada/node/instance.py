"""One version of a model on this node: the loop that carries its life out.

What is to happen is decided by core.lifecycle.model; this file does it (builds, spawns, timers, signals) and feeds back what
comes of it. The life has one writer, `tell`. Everybody else asks for something (`wanted`, `unwanted`) or awaits an outcome.
"""

import asyncio
from collections import deque
from functools import partial
from typing import Any, assert_never

from fornada.core.errors import Busy, DeadlinePassed, FornadaError, Unavailable
from fornada.core.lifecycle import events as e
from fornada.core.lifecycle.life import ModelLife, Terms
from fornada.core.lifecycle.model import step
from fornada.core.lifecycle.states import CLOSING, GOING_TO_SLEEP, PROVISIONING, RESTING, WITH_PROCESS, State, Wish, outside
from fornada.core.names import NEVER, Instant
from fornada.core.policy.idle import Use
from fornada.core.ports import ExitStatus, ProcessPort, Step, Version
from fornada.node.home import Home
from fornada.node.idling import Idling
from fornada.node.intake import Intake
from fornada.node.launch import Place
from fornada.node.occupant import Occupant
from fornada.node.past import Past, crashed, describe_death, describe_end
from fornada.node.provisioning import Provisioning
from fornada.node.refusals import CUT_RETRY_S, cut_off, refusal
from fornada.node.runner import Runner
from fornada.node.site import Site
from fornada.node.slumber import Slumber
from fornada.node.start import Starting, remove_scratch
from fornada.node.undertaking import Undertaking
from fornada.node.waiters import Waiters

BUSY_RETRY_S = 5.0


class Instance(Occupant):
    """Implements node.room.Resident, node.start.Owner, node.runner.Owner and node.intake.Decider."""

    def __init__(self, version: Version, home: Home, *, site: Site, beside: "Instance | None" = None) -> None:
        """`beside`: another instance of the same version, whose line it shares."""
        spec = version.spec
        self.version = version
        self.model = home.name
        self.key = f"{home.name}@{version.digest}#{site.new_suffix()}"
        self.device_wish = spec.resources.device
        self.device_bytes = int(spec.resources.device_memory)
        self.memory_bytes = int(spec.resources.memory)
        self.extra = beside is not None
        """Another instance of the version is the one that people mean. Changed by its model alone."""
        self._home = home
        self._site = site
        terms = Terms(load_timeout_s=spec.serving.load_timeout_s, kill_s=site.settings.kill_s, backoff_s=site.settings.backoff_s)
        self.life = ModelLife(terms)
        self.since = site.now()
        """When it came into its state, as people see states."""
        crew = beside.intake.crew if beside is not None else None
        self.intake: Intake = Intake(self, model=home.name, serving=spec.serving, site=site, crew=crew)
        self.submit, self.worth = self.intake.submit, self.intake.worth
        if beside is not None:
            self.worth.take_after(beside.worth)
        self.slumber = Slumber(self, site=site)
        over = partial(self.evicted, "idle")
        self.idling = Idling(self.intake, serving=spec.serving, use=self._use, due=self._rest, over=over, site=site)
        self.runner: Runner | None = None
        """The process, from its spawn or adoption until it has been reaped."""
        self.progress = Step("", "")
        self.waiting_since = site.now()
        """When it last got in line for memory."""
        self.past = Past()
        self.ended_because = ""
        """Why nothing of it runs, in a word or a sentence; empty: it never ran."""
        self.device = ""
        self._events: deque[e.Event] = deque()
        self._stepping = False
        self._undertaking = Undertaking(site.tasks, self.tell)
        self._provisioning = Provisioning(version, self._undertaking, site=site, note_progress=self.note_progress)
        self._starting = Starting(self, self._undertaking, next_try=lambda: home.starting(self), site=site)
        self._timer: asyncio.TimerHandle | None = None
        self._waiters = Waiters(site.loop)

    # ---- what others ask of it

    @property
    def state(self) -> State:
        return self.life.state

    @property
    def _process(self) -> Runner:
        """For commands that the life gives only while there is one."""
        assert self.runner is not None
        return self.runner

    def wanted(self) -> None:
        """It is to be ready. Tells the life only what it doesn't know yet: every waiting request comes by here."""
        if because := self._site.handover.hands_off:
            # Requests that were half received when another control plane took over, for one: it alone may load now.
            self.intake.refuse_waiting(Unavailable(because, retry_after_s=CUT_RETRY_S))
            return
        state = self.life.state
        unheard = (state in PROVISIONING or state in CLOSING or state in GOING_TO_SLEEP) and self.life.wish is not Wish.RUNNING
        if unheard or state in RESTING or state is State.ASLEEP:
            self.tell(e.Wanted(self._site.now()))

    def prepare(self) -> None:
        """It is to be built and fetched, not loaded."""
        self.tell(e.Prepare())

    def unwanted(self, *, grace_s: float, reason: str) -> None:
        """It is to end."""
        if self._site.handover.hands_off:
            return
        if self.life.state not in RESTING:
            self.ended_because = reason
            self._site.moves.told_to_go(self, reason)
            self._say("instance.unwanted", reason=reason, state=self.life.state.value)
        self.tell(e.Unwanted(self._site.now(), grace_s))

    def kill(self, reason: str) -> None:
        """No grace at all, for whatever process it still has."""
        if self.life.state in WITH_PROCESS:
            self.tell(e.Faulted(reason))

    def exceeds(self, bound: str) -> None:
        """It takes more than it may: its process is killed, and `bound` told to its callers."""
        if self.runner is not None and self.life.state in WITH_PROCESS:
            self.runner.faulted(bound)

    def reset(self) -> None:
        self._provisioning.trouble = None
        self.past.host_crashes = 0
        self.tell(e.Reset())

    def retire(self, error: FornadaError) -> None:
        """Its version is gone from the catalogue."""
        self.intake.refuse_waiting(error)
        self.unwanted(grace_s=self._site.settings.drain_s, reason="removed")

    def adopt(self, process: ProcessPort, device: str) -> None:
        """Takes over a live process that a predecessor had started."""
        self.device = device
        if host := process.memo.get("host"):
            self._site.hosts.adopted(process.instance, host=str(host), group=str(process.memo.get("group")), pid=process.pid)
        self._starting.alone_because = str(process.memo.get("alone_because", ""))
        self._site.zygotes.adopted(process.instance, str(process.memo.get("kin", "")))
        self.take(process, device)
        self.tell(e.Adopted())

    def withdraw(self) -> None:
        """Another control plane is to decide about it. What it works on here is answered."""
        self.idling.end()
        if self.runner is not None:
            self.runner.withdraw()

    def come_back(self) -> None:
        """After `withdraw`: nobody else decides about it."""
        if self.runner is not None:
            self.runner.come_back()
            if self.life.state is State.READY:
                self.idling.begin(self.runner)
            elif self.life.state is State.ASLEEP:
                self.idling.begin_asleep()

    def let_go(self) -> None:
        """The control plane ends and the process goes on: nothing of it is touched any more."""
        self._clear_timer()
        self.idling.end()
        if self.runner is not None:
            self.runner.let_go()

    def keeper_lost(self) -> None:
        """Whoever waits is told; what of it lives can't be reached any more."""
        self.idling.end()
        self._refuse_who_waits(Unavailable(self._site.handover.hands_off, retry_after_s=CUT_RETRY_S))

    def struck(self, reason: str) -> None:
        """Its device is at fault, or it was at fault there: its process is killed, and comes back where there is a place."""
        if self.life.state in WITH_PROCESS:
            self.tell(e.Faulted(reason))
            self.wanted()

    async def outcome(self, deadline: Instant) -> e.Outcome:
        """The next announcement. Raises DeadlinePassed."""
        try:
            return await self._waiters.next(deadline - self._site.now())
        except TimeoutError:
            raise DeadlinePassed(f"the deadline passed: {self.describe()}") from None

    def waited_too_long(self, now: Instant) -> None:
        """Called now and then: whoever has waited for room beyond the bound is told so. The wish itself stays in line."""
        bound_s = self._site.settings.max_wait_s
        if self.life.state not in (State.WAITING, State.ROUSED) or now < self.waiting_since + bound_s or self.intake.crew.open:
            return
        error = Busy(f"{self.describe()} for {bound_s:g} s", retry_after_s=BUSY_RETRY_S)
        self.intake.refuse_older(Instant(now - bound_s), error)
        self._waiters.refuse(error)

    def _refuse_who_waits(self, error: FornadaError) -> None:
        self.intake.refuse_waiting(error)
        self._waiters.refuse(error)

    # ---- the life

    def tell(self, event: e.Event) -> None:
        """The only way in which the life changes."""
        self._events.append(event)
        if self._stepping or self._site.handover.closed:
            return
        self._stepping = True
        try:
            while self._events:
                self._take_in(self._events.popleft())
        finally:
            self._stepping = False
        if self._site.room.anybody_waits:
            self._site.room.replan()

    def _take_in(self, event: e.Event) -> None:
        """A bug of ours ends this instance, with everybody told, rather than leave it where nothing would ever happen to it again."""
        before = outside(self.life.state)
        commands: tuple[e.Command, ...] = ()
        about = {"model": self.model, "instance": self.key, "over": type(event).__name__}
        with self._site.faults.contained("life", **about) as deciding:
            self.life, commands = step(self.life, event)
            self._site.moves.note(self)
        failed = deciding.error
        if outside(self.life.state) != before:
            self.since = self._site.now()
        for command in commands:
            # What comes after the one that fails is often what gives something back.
            with self._site.faults.contained(f"life {type(command).__name__}", **about) as doing:
                self._carry_out(command)
            self._site.passed(type(command).__name__, self.key)
            failed = failed or doing.error
        if failed is not None and not isinstance(event, e.Broke):
            left = e.Left.PROCESS if self._lives else e.Left.WORK if self._undertaking.owes_event else e.Left.NOTHING
            self._events.appendleft(e.Broke(self._site.now(), f"internal fault: {type(failed).__name__}: {failed}", left))

    @property
    def _lives(self) -> bool:
        return self.runner is not None and not self.runner.over

    def _carry_out(self, command: e.Command) -> None:
        match command:
            case e.BuildEnvironment():
                self._undertaking.begin(self._provisioning.build(), name=f"build {self.key}")
            case e.FetchArtifacts():
                self._undertaking.begin(self._provisioning.fetch(), name=f"fetch {self.key}")
            case e.CancelProvision():
                self._undertaking.cancel()
            case e.Reserve():
                self.progress = Step("waiting", "for room")
                self.waiting_since = self._site.now()
                self._site.room.join(self)
            case e.Withdraw():
                self._site.room.leave(self)
            case e.Claim():
                self._site.room.claim(self, self.device)
            case e.Release():
                self._site.room.release(self)
            case e.Spawn():
                self.progress = Step("spawning", "")
                self._undertaking.begin(self._starting.spawn(self._provisioning.obtained, self.device), name=f"spawn {self.key}")
            case e.OpenToWork():
                self._open_to_work()
            case e.CloseToWork():
                self.intake.close()
                self.idling.end()
                self._home.closed(self)
                self.emptied()
            case e.CutOff():
                if self.runner is not None:  # else nobody can be waiting for it
                    self.runner.link.cut_off(cut_off(self.model, command.cause, self.life.ending.reason or self.past.died_of))
            case e.Ask():
                self._process.link.stop(command.grace_s)
            case e.Terminate():
                self._process.terminate()
            case e.Kill():
                self._process.kill()
            case e.Sleep() | e.Wake():
                self.idling.end()
                self.slumber.carry_out(command, self._process)
            case e.SetTimer():
                self._clear_timer()
                self._timer = self._site.loop.call_later(command.seconds, self._time_is_up)
            case e.ClearTimer():
                self._clear_timer()
            case e.Announce():
                self._announce(command.outcome)
            case _:
                assert_never(command)

    # ---- the process

    async def _watch(self, runner: Runner) -> None:
        """Ends in Exited, whatever happens, but for KeeperLost."""
        contained = partial(self._site.faults.contained, model=self.model, instance=runner.id)
        status = await runner.ended()
        self.past.last_line, self.past.died_of = "", describe_death(status, last_line="")
        blameless, emptied, short = False, "", status.over_memory and not status.with_host
        with contained("end"):
            blameless, emptied = self._account_for(runner, status)
        with contained("end devices"):
            if self.process is not None:
                self._site.ledger.ended(self, self.process)
            self._site.devices.ended(runner.id, now=self._site.now())
        self.tell(e.Exited(self._site.now(), self.past.died_of, blameless, over_memory=short))
        self.runner = None
        with contained("end wire"):
            runner.close()
        await remove_scratch(self._site, runner.id, emptied)

    def _account_for(self, runner: Runner, status: ExitStatus) -> tuple[bool, str]:
        """What its end says about it: (whether it had nothing to do with it, what is to be removed of its host)."""
        if status.over_memory and not status.with_host:
            self.ran_short("")
        blameless = self.past.take_in(runner, status, booked_bytes=self.booked_bytes)
        self._site.zygotes.ended(runner.id)
        emptied = self._site.hosts.left(runner.id, well=not crashed(status))
        self._say("instance.ended", instance=runner.id, pid=runner.pid, how=describe_end(status), **runner.used(status))
        return blameless, emptied

    # ---- announcements

    def _announce(self, outcome: e.Outcome) -> None:
        self._waiters.tell(outcome)
        life = self.life
        if outcome is e.Outcome.READY:
            self._provisioning.trouble = None
        elif life.state is State.ASLEEP:
            self.idling.begin_asleep()
        elif life.state is State.FAILED:
            self._say_failed()
            refusal = self.refusal(self._site.now())
            if refusal is not None and not self.extra and not self.intake.crew.open:
                self.intake.refuse_waiting(refusal)
        if outcome is e.Outcome.CRASHED:
            self._site.moves.fell(self, life.failure)
            how = "was ended" if life.failure.kind in (e.FailureKind.FAULT, e.FailureKind.HUNG) else "ended by itself"
            self.ended_because = f"it {how} ({life.failure.reason})"
        if life.state in RESTING:
            self.progress = Step("", "")
            self.intake.crew.asked.wanted()
        self._home.announced(self, outcome)
        if self.intake.line and (self.life.state is State.ASLEEP or (self.life.state in RESTING and not self.extra)):
            self.wanted()

    def _say_failed(self) -> None:
        failure = self.life.failure
        self._site.telemetry.metrics.loads.at(self.model, "failed").value += 1
        retry_in_s = None if failure.retry_at == NEVER else round(failure.retry_at - self._site.now(), 3)
        self._say("model.failed", kind=failure.kind.value, reason=failure.reason, retry_in_s=retry_in_s)

    # ---- timers

    def _time_is_up(self) -> None:
        self.slumber.overran()
        self.tell(e.TimeUp())

    def _clear_timer(self) -> None:
        self.slumber.in_time()
        if self._timer is not None:
            self._timer.cancel()

    def _open_to_work(self) -> None:
        runner = self._process
        self._site.hosts.loaded(runner.id)
        self.progress = Step("", "")
        self._say("instance.ready", instance=runner.id, pid=runner.pid, **{key: runner.facts.get(key) for key in ("load_s", "warmup_s")})
        self.intake.open(runner.link, granted_ahead=runner.granted_ahead)
        self.idling.begin(runner)
        self._site.zygotes.ready(runner.id)
        self._site.ledger.loaded(self)
        self.slumber.offer(runner)
        self._site.tasks.start(self._weigh(), name=f"weigh {self.key}")

    async def _weigh(self) -> None:
        """What it takes is known now: the next one is placed by that."""
        with self._site.faults.contained("weigh", model=self.model, instance=self.key):
            await self._site.devices.look(now=self._site.now())
            await self._site.ledger.weigh([self])
            if self.runner is not None and self.life.state is State.READY:
                self.slumber.offer(self.runner)
            self._site.room.replan()

    # ---- node.intake.Decider

    def refusal(self, now: Instant) -> FornadaError | None:
        return refusal(self.model, self.life, now, trouble=self._provisioning.trouble, last_line=self.past.last_line)

    def describe(self) -> str:
        if self.life.state in (State.WAITING, State.ROUSED):
            return f"{self.model} waited for room ({self._site.room.reasons.get(self.key, 'not planned yet')})"
        return " ".join(filter(None, [self.model, "was", self.life.state.value, self.progress.text]))

    def emptied(self) -> None:
        runner = self.runner
        if self.life.state in (State.DRAINING, State.DROWSY) and runner is not None and runner.link.live == 0:
            foreign = runner.link.foreign if self.life.state is State.DROWSY else ()
            self.tell(e.Emptied(self._site.now(), stuck=bool(runner.link.calls or foreign)))

    def served(self) -> None:
        self.tell(e.Served())

    # ---- node.start.Owner

    @property
    def alone_because(self) -> str:
        return self._starting.alone_because

    def take(self, process: ProcessPort, device: str) -> None:
        serving = self.version.spec.serving
        self.progress = Step("loading", "")
        self._site.hosts.spawned(process.instance, pid=process.pid)
        self.runner = Runner(process, self, site=self._site, serving=serving, service_s=self.intake.service_s, device=device)
        self._site.devices.started(process.instance, device, process.pid)
        self._site.tasks.start(self._watch(self.runner), name=f"watch {process.instance}")

    def give_back(self) -> None:
        if self.runner is not None:
            self.runner.let_go()
            self.runner = None

    def spawned(self, place: Place, process: ProcessPort) -> None:
        on = {"device": place.device, "load_attempt": place.load_attempt, "start": process.start}
        self._say("instance.spawned", instance=process.instance, pid=process.pid, **on)

    # ---- node.runner.Owner

    def note_progress(self, step: Step) -> None:
        self.progress = step

    def freed(self) -> None:
        if self.runner is not None:
            self.intake.freed(self.runner.link)

    def ran_short(self, reason: str) -> str:
        known = self._site.ledger.ran_short(self, reason)
        return f"{reason} ({known})" if known else reason

    def grow(self, count: int) -> str:
        return self._site.room.may_grow(self, self.device, count)

    def slept(self, said: dict[str, Any]) -> None:
        self.slumber.slept(self._process, said)

    def woken(self, said: dict[str, Any]) -> None:
        self.slumber.woken(self._process, said)

    def hung_up(self) -> None:
        if self.life.state in WITH_PROCESS and self.life.state is not State.STOPPING:
            self.tell(e.Faulted("it closed its end of the wire"))

    # ---- node.room.Resident

    def _use(self) -> Use:
        return Use(calls=self.calls, last_used=self.last_used, kept=self.kept)

    @property
    def kept(self) -> bool:
        return self._home.keeps(self)

    def rate(self, now: Instant, wall: float) -> float:
        """Whoever is extra would be missed least, for the others take over its share, or came on a guess."""
        return 0.0 if self.extra or self.foreseen else self.intake.crew.asked.rate(now, wall)

    def no_room(self) -> None:
        self.unwanted(grace_s=0.0, reason="no room was left over")

    def granted(self, device: str) -> None:
        self.device = device
        self.tell(e.Granted())

    def never_fits(self, reason: str) -> None:
        self.tell(e.NeverFits(self._site.now(), reason))

    def evicted(self, reason: str) -> None:
        self.unwanted(grace_s=self._site.settings.drain_s, reason=reason)

    def put_to_sleep(self, reason: str) -> None:
        """It is to give its device memory back, with the grace of a drain for what it works on."""
        if self._site.handover.hands_off or self.life.state is not State.READY:
            return
        if self.extra or self.intake.crew.several:
            return self.evicted(reason)  # others serve on: nobody would wake it
        self._site.moves.told_to_go(self, reason)
        self.ended_because = reason
        self._say("instance.falls_asleep", reason=reason)
        self.tell(e.SleepWanted(self._site.settings.drain_s))

    def _rest(self) -> None:
        """It has been idle for long enough."""
        if self.slumber.rests_asleep:
            self.put_to_sleep("idle")
        else:
            self.evicted("idle")

    def _say(self, event: str, **fields: Any) -> None:
        self._site.telemetry.log.info(event, model=self.model, version=self.version.digest[:12], **fields)
