"""One node on virtual time: what node.room, node.intake and the instances do, without processes.

The events are the node's own: a request came, a model is ready, has fallen asleep, has ended, an answer was given, time is up. After each of
them a plan is made and carried out. Models that are ready compute side by side without slowing one another down, since what is looked at
is the wait for memory; what moves in one direction between device and host moves one after the other, as over a link.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from fornada.core.names import NEVER, Instant, ModelName
from fornada.core.policy.admission import SAMPLES, Standing, admit
from fornada.core.policy.demand import Demand, rate, seen
from fornada.core.policy.forecast import forecast
from fornada.core.policy.ladder import UNKNOWN
from fornada.core.policy.memory import CPU, READY, Bounds, DeviceRoom, Holding, Need, Phase
from fornada.core.policy.placement import Plan, plan
from fornada.core.policy.prefetch import prefetch
from fornada.simulate.report import Answered, Choice, Report
from fornada.simulate.traffic import Asked, SimulatedModel

QUEUE = 10_000
LOOKS_S = 5.0
"""Between two looks whether something is worth bringing up ahead of need."""


class OverCommitted(Exception):
    """More was given away than there is: the one thing that must never happen."""


class Chooser(Protocol):
    """core.policy.placement.plan, or whom it is compared with."""

    def __call__(
        self, needs: Sequence[Need], holdings: Sequence[Holding], devices: Sequence[DeviceRoom], *, bounds: Bounds, now: Instant
    ) -> Plan: ...


@dataclass(frozen=True, slots=True, eq=False)
class _Work:
    """A request that its model has begun with."""

    asked: Asked
    began: Instant
    ends: Instant


class _Instance:
    """A model that holds memory."""

    def __init__(self, model: SimulatedModel, device: str, now: Instant) -> None:
        self.model = model
        self.device = device
        self.phase = Phase.COMING
        self.charge_bytes = 0 if device == CPU else model.device_bytes
        self.host_bytes = model.host_bytes
        self.at_work: list[_Work] = []
        self.arrives_at = now
        """At the end of the step that it is taking."""
        self.last_used = now
        self.served = False
        self.stepping = False
        """On its way down, and nothing of its work is left."""
        self.step = 0
        """What was to happen at the end of an earlier step doesn't any more."""


class Simulation:
    """A run: `serve` from its beginning to its end, or `ask` and `advance` step by step. Raises OverCommitted wherever that happens."""

    def __init__(
        self,
        models: Sequence[SimulatedModel],
        devices: Sequence[DeviceRoom],
        *,
        bounds: Bounds,
        choose: Chooser = plan,
        prefetches: bool = False,
        first_hour: int = 0,
        asleep_on: str = "",
    ) -> None:
        """`asleep_on`: the device on which all models are asleep when it begins; else none has been started yet."""
        self._models = {model.name: model for model in models}
        self._devices = list(devices)
        self._bounds = bounds
        self._choose = choose
        self._prefetches = prefetches
        self._first_hour = first_hour
        self._held: dict[ModelName, _Instance] = {}
        self._queues: dict[ModelName, deque[Asked]] = {model.name: deque() for model in models}
        self._service_s: dict[ModelName, deque[float]] = {model.name: deque(maxlen=SAMPLES) for model in models}
        self._demand = {model.name: Demand(hour=first_hour) for model in models}
        self._asked: dict[ModelName, list[Instant]] = {model.name: [] for model in models}
        """Since somebody last wanted to know how often it is: counted as node.worth does it."""
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._link_free_at = {"up": 0.0, "down": 0.0}
        self._again_at: Instant = NEVER
        self.now = Instant(0.0)
        self.report = Report()
        for model in models if asleep_on else ():
            instance = self._held[model.name] = _Instance(model, asleep_on, self.now)
            self._rest(instance)
        self._check()

    def serve(self, traffic: Sequence[Asked]) -> Report:
        """Everything that was asked is answered or refused when it returns."""
        for asked in traffic:
            self._at(asked.at, lambda asked=asked: self.ask(asked))  # type: ignore[misc]
        if self._prefetches and traffic:
            for number in range(int(traffic[-1].at / LOOKS_S)):
                self._at(number * LOOKS_S, self._look_ahead)
        self.advance(NEVER)
        return self.report

    def advance(self, until: Instant) -> None:
        """Lets happen what happens until then."""
        while self._events and self._events[0][0] <= until:
            at, _, happens = heapq.heappop(self._events)
            self.now = Instant(max(at, self.now))
            happens()
        if until != NEVER:
            self.now = Instant(max(until, self.now))

    # ---- requests

    def ask(self, asked: Asked) -> None:
        """A request comes now."""
        self._asked[asked.model].append(self.now)
        queue = self._queues[asked.model]
        queue.append(asked)
        if self._refuses(asked.model):
            queue.pop()
            self.report.refused["predicted"] += 1
            return
        self._at(self.now + self._bounds.max_wait_s, lambda: self._bound_passed(asked))
        self._changed()

    def _refuses(self, name: ModelName) -> bool:
        """Whether the last one in the queue isn't taken: core.policy.admission decides, with what a node would know."""
        instance, ahead = self._held.get(name), len(self._queues[name]) - 1
        working, room_s = 0, 0.0
        if instance is not None and instance.phase in READY:
            working, ahead = instance.model.concurrency, ahead + len(instance.at_work)
        else:
            last_s = self._queues[name][-1].work_s / self._models[name].concurrency
            room_s = forecast(self.needs(), self.holdings(), self._devices, bounds=self._bounds, now=self.now).get(name, 0.0)
            room_s += self._queue_s(self._models[name]) - last_s
        standing = Standing(name, working, ahead, QUEUE, self._service_s[name])
        return admit(standing, reject_if_busy=False, max_wait_s=self._bounds.max_wait_s, room_s=room_s) is not None

    def _bound_passed(self, asked: Asked) -> None:
        queue = self._queues[asked.model]
        if any(one is asked for one in queue):
            self._queues[asked.model] = deque(one for one in queue if one is not asked)
            self.report.refused["bound"] += 1
            self._changed()

    def _dispatch(self, instance: _Instance) -> None:
        queue = self._queues[instance.model.name]
        while queue and instance.phase in READY and len(instance.at_work) < instance.model.concurrency:
            asked = queue.popleft()
            work = _Work(asked, self.now, Instant(self.now + asked.work_s))
            instance.at_work.append(work)
            self._at(work.ends, lambda work=work: self._answered(instance, work))  # type: ignore[misc]
        if instance.phase in READY:
            instance.phase = Phase.BUSY if instance.at_work else Phase.IDLE

    def _answered(self, instance: _Instance, work: _Work) -> None:
        if work not in instance.at_work:
            return  # it died over it
        instance.at_work.remove(work)
        asked = work.asked
        self.report.answered.append(Answered(asked.at, asked.model, work.began - asked.at, work.ends - asked.at))
        self._service_s[asked.model].append(asked.work_s)
        instance.served = True
        instance.last_used = self.now
        self._changed()

    # ---- what goes wrong, and what an operator does

    def crash(self, name: ModelName) -> None:
        """Its process ends, whatever it was doing, and gives back what it held."""
        instance = self._held.pop(name)
        self.report.refused["crashed"] += len(instance.at_work)
        instance.at_work.clear()
        instance.step += 1
        self._changed()

    def fail_to_sleep(self, name: ModelName) -> None:
        """The device says that nothing came back: it is as ready as before."""
        instance = self._held[name]
        instance.step += 1
        instance.stepping = False
        instance.phase = Phase.IDLE
        instance.host_bytes = instance.model.host_bytes
        self._changed()

    def keep(self, name: ModelName, kept: bool) -> None:
        """It is pinned, or not any more."""
        self._models[name] = replace(self._models[name], kept=kept)
        self._changed()

    def lend(self, device: str, foreign_bytes: int) -> None:
        """Somebody else holds so much of a device from now on. Raises OverCommitted where models hold it already."""
        self._devices = [replace(one, foreign_bytes=foreign_bytes) if one.id == device else one for one in self._devices]
        self._check()
        self._changed()

    # ---- steps of the ladder

    def _changed(self) -> None:
        for instance in list(self._held.values()):
            self._dispatch(instance)
            if instance.phase in (Phase.FALLING, Phase.CLOSING) and not instance.at_work and not instance.stepping:
                self._step_down(instance)
        self._plan()

    def _plan(self) -> None:
        needs = self.needs()
        if not needs:
            return
        made = self._choose(needs, self.holdings(), self._devices, bounds=self._bounds, now=self.now)
        for key in made.sleep:
            self._leave(key, Phase.FALLING, "sleep")
        for key in made.evict:
            self._leave(key, Phase.CLOSING, "evict")
        for grant in made.grants:
            self._come(ModelName(grant.key), grant.device)
        self._check()
        if made.again_at != NEVER and made.again_at != self._again_at:
            self._again_at = made.again_at
            self._at(made.again_at, self._plan)
        if made.sleep or made.evict:
            self._changed()

    def _leave(self, key: str, phase: Phase, what: str) -> None:
        instance = self._held[ModelName(key)]
        if phase is Phase.FALLING:
            instance.host_bytes = max(instance.host_bytes, instance.model.ladder.asleep_host_bytes)
        instance.phase = phase
        self.report.choices.append(Choice(self.now, what, key))

    def _step_down(self, instance: _Instance) -> None:
        instance.stepping = True
        if instance.phase is Phase.FALLING:
            instance.arrives_at = self._asleep_at(instance.model)
            self._after(instance, lambda: self._fell_asleep(instance))
        else:
            instance.arrives_at = self._takes(self._stop_takes_s(instance.model))
            self._after(instance, lambda: self._ended(instance))

    def _fell_asleep(self, instance: _Instance) -> None:
        self._rest(instance)
        self._changed()

    def _rest(self, instance: _Instance) -> None:
        instance.phase = Phase.ASLEEP
        instance.stepping = instance.served = False
        instance.charge_bytes = min(instance.charge_bytes, instance.model.ladder.asleep_bytes)
        instance.host_bytes = instance.model.ladder.asleep_host_bytes

    def _ended(self, instance: _Instance) -> None:
        del self._held[instance.model.name]
        self._changed()

    def _come(self, name: ModelName, device: str, what: str = "start") -> None:
        instance = self._held.get(name)
        model = self._models[name]
        if instance is None:
            instance = self._held[name] = _Instance(model, device, self.now)
            instance.arrives_at = self._takes(self._start_takes_s(model))
            self.report.starts += 1
        else:
            what = "wake"
            instance.phase = Phase.COMING
            instance.charge_bytes = model.device_bytes
            instance.arrives_at = self._awake_at(model)
        self.report.choices.append(Choice(self.now, what, name))
        self._after(instance, lambda: self._ready(instance))

    def _ready(self, instance: _Instance) -> None:
        instance.phase = Phase.IDLE
        instance.served = False
        instance.host_bytes = instance.model.host_bytes
        instance.last_used = self.now
        self._changed()

    def _look_ahead(self) -> None:
        absent = [model for model in self._models.values() if self._phase(model.name) in (None, Phase.ASLEEP)]
        wishes = [(self._need(model, self.now), self._rate(model.name)) for model in absent]
        found = prefetch(wishes, self.needs(), self.holdings(), self._devices, bounds=self._bounds, now=self.now)
        if found is not None:
            self._come(ModelName(found.key), found.device, "prefetch")
            self._check()

    def _start_takes_s(self, model: SimulatedModel) -> float:
        return model.ladder.start_s

    def _stop_takes_s(self, model: SimulatedModel) -> float:
        return model.ladder.stop_s

    def _asleep_at(self, model: SimulatedModel) -> Instant:
        return self._over_link("down", model.ladder.sleep_s)

    def _awake_at(self, model: SimulatedModel) -> Instant:
        return self._over_link("up", model.ladder.wake_s)

    def _over_link(self, direction: str, seconds: float) -> Instant:
        begins = max(self.now, self._link_free_at[direction])
        self._link_free_at[direction] = begins + seconds
        self.report.swaps.append((begins, begins + seconds))
        return Instant(begins + seconds)

    def _takes(self, seconds: float) -> Instant:
        self.report.swaps.append((self.now, self.now + seconds))
        return Instant(self.now + seconds)

    # ---- the snapshot

    def needs(self) -> list[Need]:
        waiting = [model for model in self._models.values() if self._queues[model.name] and self._phase(model.name) in (None, Phase.ASLEEP)]
        return [self._need(model, self._queues[model.name][0].at) for model in waiting]

    def _need(self, model: SimulatedModel, since: Instant) -> Need:
        asleep = self._phase(model.name) is Phase.ASLEEP
        return Need(
            key=model.name,
            model=model.name,
            device="cuda",
            device_bytes=model.device_bytes,
            memory_bytes=model.host_bytes,
            since=since,
            in_s=0.0 if model.ladder == UNKNOWN else model.ladder.wake_s if asleep else model.ladder.start_s,
            ladder=model.ladder,
            work_s=self._queue_s(model),
        )

    def holdings(self) -> list[Holding]:
        return [
            Holding(
                key=name,
                model=name,
                device=instance.device,
                charge_bytes=instance.charge_bytes,
                phase=instance.phase,
                last_used=instance.last_used,
                oldest_waiting=self._queues[name][0].at if self._queues[name] else None,
                served=instance.served,
                kept=self._models[name].kept,
                memory_bytes=instance.host_bytes,
                rate=self._rate(name),
                ladder=instance.model.ladder,
                work_left_s=self._work_left_s(instance),
                queue_s=self._queue_s(instance.model),
            )
            for name, instance in self._held.items()
        ]

    def _work_left_s(self, instance: _Instance) -> float:
        if instance.phase is Phase.COMING or instance.stepping:
            return max(0.0, instance.arrives_at - self.now)
        return max(0.0, max((work.ends for work in instance.at_work), default=self.now) - self.now)

    def _queue_s(self, model: SimulatedModel) -> float:
        return sum(asked.work_s for asked in self._queues[model.name]) / model.concurrency

    def _rate(self, name: ModelName) -> float:
        if asked := self._asked[name]:
            self._demand[name] = seen(self._demand[name], len(asked), last=asked[-1], hour=self._hour())
            asked.clear()
        return rate(self._demand[name], now=self.now, hour=self._hour())

    def _phase(self, name: ModelName) -> Phase | None:
        instance = self._held.get(name)
        return None if instance is None else instance.phase

    def _hour(self) -> int:
        return self._first_hour + int(self.now // 3600)

    def _check(self) -> None:
        for device in self._devices:
            on_it = [instance for instance in self._held.values() if device.id in (instance.device, CPU)]
            used = sum(instance.host_bytes if device.id == CPU else instance.charge_bytes for instance in on_it)
            if used + device.foreign_bytes > device.total_bytes:
                raise OverCommitted(f"{device.id}: {used} of {device.total_bytes} bytes are given away at {self.now:.3f} s")

    def _after(self, instance: _Instance, happens: Callable[[], None]) -> None:
        """At the end of the step that it takes, unless something comes between."""
        instance.step += 1
        step = instance.step
        self._at(instance.arrives_at, lambda: happens() if instance.step == step else None)

    def _at(self, at: float, happens: Callable[[], None]) -> None:
        heapq.heappush(self._events, (at, next(self._numbers), happens))
