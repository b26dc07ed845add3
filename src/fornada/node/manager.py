"""The node's front: implements the ports through which edge and catalogue use it.

`submit` is on the way of every request and does nothing but find the instance. Everything else brings what runs (actual)
towards what the catalogue and the operators want (desired).
"""

import asyncio
import itertools
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import fornada
from fornada.core.errors import FornadaError, Unavailable, UnknownModel
from fornada.core.lifecycle.states import RESTING, State
from fornada.core.names import LOCAL_ACCOUNT, AccountId, Instant, ModelName, VersionDigest
from fornada.core.policy.memory import Bounds
from fornada.core.policy.outbound import outbound
from fornada.core.policy.packing import Bound
from fornada.core.ports import CatalogPort, Clock, Health, KeeperPort, LogLine, ModelView, ProcessPort, ProvisionPort, StorePort, Version
from fornada.core.requests import InferenceRequest, Sink, Ticket
from fornada.core.resources import parse_size
from fornada.core.settings import NodeSettings
from fornada.core.usage import Uncounted, UsagePort
from fornada.node import discretion, residency, views
from fornada.node.adoption import end_stranger, still_alive
from fornada.node.deadlines import Wheel
from fornada.node.devices import Devices
from fornada.node.disk_use import removed
from fornada.node.fault_port import fault_port
from fornada.node.faults import Faults
from fornada.node.hosts import Hosts
from fornada.node.instance import Instance
from fornada.node.job_room import IdleCapacity
from fornada.node.ledger import Ledger
from fornada.node.memory_use import Held, held_by
from fornada.node.model import Model
from fornada.node.moves import Moves
from fornada.node.outbound import WayOut
from fornada.node.output import Crowd
from fornada.node.prefetching import Prefetching
from fornada.node.recorder import recorder_of
from fornada.node.room import Room
from fornada.node.scratch import ScratchWatch, folders
from fornada.node.site import Site
from fornada.node.tasks import Tasks
from fornada.node.upkeep import Upkeep
from fornada.node.zygotes import ZygotePort, Zygotes
from fornada.telemetry import Telemetry

HEARTBEAT_S = 0.25
STARTING_RETRY_S = 1.0
DRAINING_RETRY_S = 5.0
STOP_GRACE_S = 2.0
"""What a runner without work gets to end by itself when the node goes down."""
DRAIN_TURN_S = 0.01
HANDED_OVER = frozenset({State.READY, State.ASLEEP})
"""What another control plane can take over, beside what rests, without anything being lost."""
KILL_SHARE = 0.7
"""Of kill_s, what a process has between SIGTERM and SIGKILL when the node's own time is over."""


class Keeper(KeeperPort, Protocol):
    """node.keeper_client's KeeperClient, as far as the manager needs it."""

    @property
    def adopted(self) -> Sequence[ProcessPort]:
        """Runners that a predecessor left, live or ended."""


class _Refused:
    """The ticket of a request that never got anywhere."""

    def leave(self) -> None:
        """Nothing to leave."""

    def taken(self, count: int) -> None:
        """Nothing to take."""


_REFUSED = _Refused()


class Manager:
    """Implements core.ports' InferencePort and OperationsPort."""

    def __init__(
        self,
        *,
        clock: Clock,
        keeper: Keeper,
        provision: ProvisionPort,
        store: StorePort,
        catalog: CatalogPort,
        devices: Devices,
        settings: NodeSettings,
        telemetry: Telemetry,
        data_dir: Path,
        allow_private: Iterable[str] = (),
        inherited: Mapping[str, str] | None = None,
        zygotes: ZygotePort | None = None,
        node: Mapping[str, Any] | None = None,
        measure: Callable[[int], Held] = held_by,
        usage: UsagePort | None = None,
    ) -> None:
        """`allow_private` is [outbound] allow_private. `inherited` is the node's environment, of which runners see
        node.launch.INHERITED_VARIABLES; without `zygotes` each of them is executed; `node` is run/node.json's object. `measure` is
        node.memory_use's held_by."""
        loop = asyncio.get_running_loop()
        self._clock = clock
        self._now = clock.now
        self._keeper = keeper
        self._catalog = catalog
        self._settings = settings
        self._node = node or {}
        self._models: dict[ModelName, Model] = {}
        self._leaving: set[Model] = set()
        self._started = False
        self._accepting = False
        self._draining = False
        self._beat_at = clock.now()
        scratch = data_dir / "scratch"
        packing = Bound(settings.packed_members, min(parse_size(settings.packed_memory), devices.host_bytes))
        tasks = Tasks(telemetry.log)
        faults = Faults(telemetry.log, now=clock.now)
        ledger = Ledger(devices, store, log=telemetry.log, measure=measure)
        bounds = Bounds(max_resident=settings.max_resident, max_wait_s=settings.max_wait_s)
        recorder = recorder_of(settings, data_dir / "logs", wall=clock.wall)
        room = Room(
            devices,
            ledger,
            bounds=bounds,
            clock=clock,
            loop=loop,
            log=telemetry.log,
            recorder=recorder,
            known_to=partial(discretion.known_to, catalog),
        )
        self._site = Site(
            clock=clock,
            now=clock.now,
            loop=loop,
            keeper=keeper,
            provision=provision,
            store=store,
            devices=devices,
            telemetry=telemetry,
            settings=settings,
            wheel=Wheel(now=clock.now, loop=loop, faults=faults),
            room=room,
            ledger=ledger,
            moves=Moves(now=clock.now, wall=clock.wall, metrics=telemetry.metrics, sake=room.sake),
            way_out=WayOut(policy=outbound(allow_private), telemetry=telemetry, tasks=tasks, loop=loop),
            hosts=Hosts(bound=packing, scratch=scratch, new_suffix=_suffix),
            zygotes=Zygotes(
                zygotes, settings=settings, inherited=inherited or {}, log=telemetry.log, now=clock.now, host_bytes=devices.host_bytes
            ),
            tasks=tasks,
            faults=faults,
            crowd=Crowd(),
            scratch=scratch,
            inherited=dict(inherited or {}),
            release=fornada.__version__,
            next_call=itertools.count((keeper.epoch << 40) + 1).__next__,
            passed=fault_port(inherited or {}),
            new_suffix=_suffix,
            usage=usage or Uncounted(),
        )
        self._upkeep = Upkeep(self._site, self._instances)
        self.signatures = self._site.signatures
        self.job_room = IdleCapacity(self._models, room=room, now=clock.now)
        self._prefetching = Prefetching(self._site, models=self._models.values)
        self._scratch_watch = ScratchWatch(
            scratch,
            watched=lambda: folders(self._instances()),
            now=clock.now,
            isolation=zygotes.isolation if zygotes is not None else "",
            in_memory=settings.scratch_in_memory,
        )
        self._measure()

    # ---- core.ports.InferencePort

    def submit(self, request: InferenceRequest, sink: Sink) -> Ticket:
        model = self._models.get(request.model)
        if model is not None and self._accepting and request.version is None:
            model.held = False
            return model.current.submit(request, sink)
        return self._submit_otherwise(request, sink)

    def _submit_otherwise(self, request: InferenceRequest, sink: Sink) -> Ticket:
        try:
            self._refuse_unless_accepting()
            return self._model(request.model).instance_for(request.version).submit(request, sink)
        except FornadaError as error:
            sink.refuse(error)
            return _REFUSED

    # ---- life of the node

    async def start(self) -> None:
        """Adopts what a predecessor left, brings up what min_instances asks for, then accepts requests."""
        self._site.scratch.mkdir(parents=True, exist_ok=True)
        self._upkeep.begin()
        left = list(self._site.scratch.iterdir())
        self._site.tasks.start(self._beat(), name="heartbeat")
        self._site.tasks.start(self._scratch_watch.run(), name="watch scratch")
        for entry in {entry.name: entry for entry in [*self._catalog.entries(LOCAL_ACCOUNT), *self._site.store.entries()]}.values():
            self._add(entry.name)
        living = {name for process in await self._adopt() for name in (process.instance, process.memo.get("host"))}
        self._site.tasks.start(self._sweep([path for path in left if path.name not in living]), name="sweep scratch")
        for model in list(self._models.values()):
            model.settle()
        self._site.tasks.start(self._upkeep.run(), name="upkeep")
        self._started = self._accepting = True
        self._site.telemetry.log.info("node.accepting", epoch=self._keeper.epoch, models=len(self._models))

    async def drain(self, deadline_s: float) -> None:
        """Refuses new requests, finishes accepted ones within `deadline_s`, then ends every process."""
        if self._draining:
            return
        self._draining, self._accepting = True, False
        until = Instant(self._now() + deadline_s)
        while self._now() < until and (self._site.handover.predecessor or self.in_flight):
            await asyncio.sleep(DRAIN_TURN_S)
        for model in self._all():
            model.held = model.going_down = True
        for instance in self._instances():
            instance.intake.refuse_waiting(_draining())
            instance.unwanted(grace_s=min(STOP_GRACE_S, max(0.0, until - self._now())), reason="the node stops")
        # The keeper ends whatever is left kill_s after the deadline; that would be a failed drain, so it comes before.
        await self._all_at_rest(Instant(until + self._settings.kill_s * KILL_SHARE))
        for instance in self._instances():
            instance.kill("the node stops")
        await self._all_at_rest(Instant(self._now() + self._settings.kill_s * (1 - KILL_SHARE) / 2))
        self._site.telemetry.log.info("node.drained", left=[i.key for i in self._instances() if i.state not in RESTING])
        await self.close()

    # ---- another control plane takes this one's place

    def half_done(self) -> str:
        """What must end before another control plane may take over: a sentence, empty if there is nothing."""
        for instance in self._instances():
            if instance.state not in RESTING and instance.state not in HANDED_OVER:
                return instance.describe()
        return ""

    def withdraw(self) -> None:
        """Goes on with what it has taken, and decides nothing any more. Ask `half_done` first, in the same turn of the loop."""
        self._site.handover.withdrawn = True
        for instance in self._instances():
            instance.withdraw()

    def come_back(self) -> None:
        """After `withdraw`: there is no successor."""
        self._site.handover.withdrawn = False
        for instance in self._instances():
            instance.come_back()

    def replaced(self) -> None:
        """After `withdraw`: there is a successor."""
        self._site.handover.replaced = True

    def keeper_lost(self, reason: str) -> None:
        """Nothing can be begun or ended any more: whoever waits for that is told so. What runs is answered while it is heard."""
        self._site.telemetry.log.error("node.keeper_lost", reason=reason, in_flight=self.in_flight)
        self._accepting = False
        self._site.handover.keeper_lost = True
        for instance in self._instances():
            instance.keeper_lost()

    def expect_predecessor(self, *, there: bool) -> None:
        """Whether another control plane still answers requests over links of its own."""
        self._site.handover.predecessor = there

    @property
    def in_flight(self) -> int:
        """Requests that wait or run."""
        return sum(instance.calls for instance in self._instances())

    async def _all_at_rest(self, deadline: Instant) -> None:
        """Returns when nothing runs any more, at the deadline, or when nobody can know any more what runs."""
        while (
            self._now() < deadline
            and not self._site.handover.keeper_lost
            and any(instance.state not in RESTING for instance in self._instances())
        ):
            await asyncio.sleep(DRAIN_TURN_S)

    async def close(self) -> None:
        """Lets go of everything without ending a process: a successor may take them over."""
        self._accepting = False
        self._site.handover.closed = True
        self._site.room.close()
        for instance in self._instances():
            instance.let_go()
        await self._site.tasks.close()
        self._site.wheel.close()

    # ---- the catalogue

    def catalog_changed(self, name: ModelName) -> None:
        """The catalogue's callback after a deploy, a rollout or a removal."""
        if not self._started or self._draining:
            return
        entry = self._catalog.entry(name)
        model = self._models.get(name)
        if entry is None and model is not None:
            del self._models[name]
            self._leaving.add(model)
            model.removed()
        elif entry is not None and model is not None:
            model.changed(entry)
        elif entry is not None:
            self._add(name).changed(entry)

    def in_use(self) -> Iterable[Version]:
        """Versions of which something runs or is under way, whether or not the catalogue still knows them."""
        return [instance.version for instance in self._instances() if instance.state not in RESTING]

    # ---- core.ports.OperationsPort

    def view(self, name: ModelName) -> ModelView:
        return views.view(self._model(name), self._site)

    def views(self, account: AccountId | None) -> Sequence[ModelView]:
        return [self.view(entry.name) for entry in self._catalog.entries(account)]

    async def load(self, name: ModelName, *, deadline: Instant) -> ModelView:
        self._refuse_unless_accepting()
        await self._model(name).load(deadline)
        return self.view(name)

    async def unload(self, name: ModelName, *, grace_s: float | None) -> ModelView:
        await self._model(name).unload(self._settings.drain_s if grace_s is None else grace_s)
        return self.view(name)

    async def sleep(self, name: ModelName) -> ModelView:
        self._refuse_unless_accepting()
        await self._model(name).sleep()
        return self.view(name)

    async def pin(self, name: ModelName, *, pinned: bool) -> ModelView:
        self._model(name).pin(pinned)
        return self.view(name)

    async def reset(self, name: ModelName) -> ModelView:
        self._model(name).reset()
        return self.view(name)

    def why(self, name: ModelName, account: AccountId | None = None) -> Mapping[str, Any]:
        return discretion.told(views.why(self._model(name), self._site), account, self._catalog)

    def logs(self, name: ModelName, *, follow: bool, last: int) -> AsyncIterator[LogLine]:
        return self._site.telemetry.outputs.read(self._model(name).name, last=last, follow=follow)

    def devices(self) -> Sequence[Mapping[str, Any]]:
        return views.device_views(self._site)

    def residency(self) -> Mapping[str, Any]:
        return views.residency_view(self._site)

    def patch_device(self, device: str, change: Mapping[str, Any]) -> Mapping[str, Any]:
        self._upkeep.changed(device, change)
        return next(view for view in self.devices() if view["id"] == device)

    def node(self) -> Mapping[str, Any]:
        return {**self._node, "accepting": self._accepting, "draining": self._draining, "epoch": self._keeper.epoch}

    def events(self) -> AsyncIterator[Mapping[str, Any]]:
        return aiter(self._site.telemetry.log.watch())

    def health(self) -> Health:
        return Health(accepting=self._accepting, draining=self._draining, loop_age_s=self._now() - self._beat_at)

    # ---- within

    def _refuse_unless_accepting(self) -> None:
        if self._draining:
            raise _draining()
        if not self._accepting:
            raise Unavailable(self._site.handover.hands_off or "the node is starting", retry_after_s=STARTING_RETRY_S)

    def _model(self, name: ModelName) -> Model:
        """Raises UnknownModel."""
        found = self._models.get(name)
        return found if found is not None else self._add(name)

    def _add(self, name: ModelName) -> Model:
        entry = self._catalog.entry(name)
        if entry is None:
            raise UnknownModel(f"there is no model '{name}'")
        model = self._models[name] = Model(entry, site=self._site, catalog=self._catalog, left=self._left)
        return model

    def _left(self, model: Model) -> None:
        self._leaving.discard(model)
        if model.name not in self._models:
            self._site.telemetry.forget(model.name)
            self._site.ledger.forget_model(model.name)

    def _all(self) -> list[Model]:
        return [*self._models.values(), *self._leaving]

    def _instances(self) -> list[Instance]:
        return [instance for model in self._all() for instance in model.all()]

    async def _beat(self) -> None:
        """The scheduler's turn for what is nobody's event: waits that are over, back-offs that have passed."""
        while True:
            self._beat_at = self._now()
            with self._site.faults.contained("heartbeat"):
                self._look_around(self._beat_at)
            await asyncio.sleep(HEARTBEAT_S)

    def _look_around(self, now: Instant) -> None:
        if self._site.handover.predecessor:
            for instance in self._instances():
                instance.intake.last_used = now
        if self._site.room.anybody_waits:
            for instance in self._instances():
                instance.waited_too_long(now)
            self._site.room.replan()
        if self._started and not self._draining and not self._site.handover.hands_off:
            self._site.zygotes.turn()
            for model in self._models.values():
                model.keep_alive()
                model.scale(now)
            self._prefetching.turn(now)

    # ---- adoption

    async def _adopt(self) -> list[ProcessPort]:
        """Returns those that live."""
        alive, ended = await still_alive(self._keeper.adopted)
        for process in ended:
            process.forget()
        for process in alive:
            memo = process.memo
            try:
                model = self._model(ModelName(str(memo.get("model"))))
                version = self._catalog.version(model.name, VersionDigest(str(memo.get("version"))))
            except UnknownModel:
                self._site.tasks.start(end_stranger(process, kill_s=self._settings.kill_s), name=f"end {process.instance}")
                continue
            instance = model.adopted(version)
            if instance is None:
                self._site.tasks.start(end_stranger(process, kill_s=self._settings.kill_s), name=f"end {process.instance}")
                continue
            self._site.telemetry.log.info("instance.adopted", model=model.name, instance=process.instance, pid=process.pid)
            instance.adopt(process, str(memo.get("device")))
        return alive

    async def _sweep(self, gone: list[Path]) -> None:
        """Directories of instances that ended while nobody was there to clear up."""
        for path in gone:
            await removed(path)

    # ---- metrics

    def _measure(self) -> None:
        metrics = self._site.telemetry.metrics
        metrics.loop_age.read = lambda: [((), self._now() - self._beat_at)]
        metrics.queue_length.read = lambda: [((model.name,), sum(map(views.queued, model.all()))) for model in self._models.values()]
        metrics.instances.read = self._count_instances
        metrics.parked.read = lambda: [((), sum(instance.idling.parked for instance in self._instances()))]
        metrics.zygotes.read = self._site.zygotes.count
        metrics.spare_bytes.read = lambda: [((), self._site.zygotes.spare_bytes())]
        metrics.charged_bytes.read = lambda: residency.charged(self._site)
        metrics.device_bytes.read = lambda: [
            ((device["id"], kind), device[f"{kind}_bytes"])
            for device in views.device_views(self._site)
            for kind in ("total", "reserved", "used", "foreign", "lingering")
        ]

    def _count_instances(self) -> list[tuple[tuple[str, ...], float]]:
        counts: dict[tuple[str, ...], float] = {}
        for instance in self._instances():
            if instance.runner is not None:
                labels = (instance.model, instance.state.value)
                counts[labels] = counts.get(labels, 0) + 1
        return list(counts.items())


def _suffix() -> str:
    return secrets.token_hex(5)


def _draining() -> Unavailable:
    return Unavailable("the node is shutting down", retry_after_s=DRAINING_RETRY_S)
