"""A model of the catalogue on this node: its versions, which of them serves, and what an operator wants of it.

`current` serves requests. A new stable version comes up beside a current one that is in use and takes over when it is ready; a
bad one leaves the old in place, and the label goes back to it. Where nothing runs, the new one simply serves from then on.
"""

from collections.abc import Callable
from typing import Any

from fornada.core.errors import DiskFull, FornadaError, Unavailable, UnknownModel
from fornada.core.lifecycle.events import Outcome
from fornada.core.lifecycle.states import RESTING, State, Wish
from fornada.core.names import Instant, VersionDigest
from fornada.core.ports import CatalogPort, Entry, Version
from fornada.node.copies import Copies
from fornada.node.instance import Instance
from fornada.node.site import Site
from fornada.node.waiters import until_at_rest, until_ready

UNLOADED_RETRY_S = 1.0
SETTLE_S = 5.0
"""How much longer than its own bounds an end may take before an operator is told that it hangs."""


class Model:
    """Implements node.instance.Home. `left` is called once a removed model has nothing running any more."""

    def __init__(self, entry: Entry, *, site: Site, catalog: CatalogPort, left: Callable[["Model"], None]) -> None:
        self.name = entry.name
        self.entry = entry
        self.pinned = entry.pinned
        self.held = False
        """An operator unloaded it: only a request or `load` brings it back."""
        self.going_down = False
        """The node ends: what stops now has not been replaced by anything."""
        self.instances: dict[VersionDigest, Instance] = {}
        """The first of each version: what people mean by the version's state."""
        self.incoming: Instance | None = None
        """The stable version, while it comes up beside the one that serves."""
        self._site = site
        self._catalog = catalog
        self._left = left
        self._removed = False
        self._copies = Copies(self, site=site)
        self.loads, self.attempts = site.store.counters(entry.name)
        self._coming: dict[str, int] = {}
        """What number those that load will be, if all of them become ready."""
        # A deploy was under way when the node went down: who served then goes on, and stable comes up beside it.
        self.current = self._instance(entry.answering)

    # ---- requests

    def instance_for(self, digest: VersionDigest | None) -> Instance:
        """Who serves a request. Raises UnknownModel for a version that is gone."""
        self.held = False
        if digest is None:
            return self.current
        found = self.instances.get(digest)
        return found if found is not None else self._instance(self._catalog.version(self.name, digest))

    # ---- the catalogue

    def changed(self, entry: Entry) -> None:
        """The catalogue says what is stable now, and which versions there are."""
        self.entry = entry
        for digest in [digest for digest in self.instances if digest not in entry.versions and digest != entry.stable.digest]:
            for instance in self.all_of(self.instances[digest]):
                self._retire(instance)
        stable = self._instance(entry.stable)
        if stable is self.incoming:
            return
        self._drop_incoming()
        if stable.state is State.FAILED:
            stable.reset()  # deployed again: whoever did it believes that it works now
        if stable is self.current:
            stable.prepare()
        elif self._in_use(self.current):
            self.incoming = stable
            self._site.telemetry.log.info("deploy.begins", model=self.name, version=stable.version.digest[:12])
            stable.wanted()
        else:
            self._switch(stable)
            stable.prepare()
        if entry.canary is not None:
            self._instance(entry.canary).prepare()
        self.keep_alive()

    def removed(self) -> None:
        """The catalogue has forgotten it."""
        self._removed = True
        self.incoming = None
        for instance in self.all():
            self._retire(instance)
        self._leave_if_over()

    # ---- operators

    async def load(self, deadline: Instant) -> None:
        """Raises what prevents it, or DeadlinePassed."""
        self.held = False
        self.current.intake.crew.asked.wanted()
        await until_ready(self.incoming or self.current, deadline, now=self._site.now)

    async def unload(self, grace_s: float) -> None:
        """Returns when nothing of it runs. Raises DeadlinePassed where even SIGKILL doesn't end it."""
        self.held = True
        now = self._site.now()
        instances = self.all()
        waits = [instance for instance in instances if instance.state not in RESTING]
        for instance in instances:
            # Who waits came before the order: it would load the model again at once, against the order.
            instance.intake.refuse_waiting(Unavailable("an operator unloaded the model", retry_after_s=UNLOADED_RETRY_S))
            instance.unwanted(grace_s=grace_s, reason="an operator unloaded it")
        deadline = Instant(now + grace_s + self._site.settings.kill_s + SETTLE_S)
        for instance in waits:
            await until_at_rest(instance, deadline)

    async def sleep(self) -> None:
        """Returns when the one that serves is asleep. Raises Conflict where it can't be, DeadlinePassed."""
        current, settings = self.current, self._site.settings
        for copy in self.all_of(current)[1:]:
            copy.unwanted(grace_s=settings.drain_s, reason="an operator put it to sleep")
        serving = current.version.spec.serving
        within_s = settings.drain_s + 2 * serving.load_timeout_s + SETTLE_S
        await current.slumber.ordered(Instant(self._site.now() + within_s))

    @property
    def visibility(self) -> str:
        """account | node"""
        return self._catalog.visibility(self.entry)

    def pin(self, pinned: bool) -> None:
        self.pinned = pinned
        self._site.store.set_pinned(self.name, pinned=pinned)
        self._catalog.reload(self.name)
        self._site.room.replan()

    def reset(self) -> None:
        self.attempts = 0
        self._keep_counters()
        for instance in self.all():
            instance.reset()
            self._site.ledger.forget(instance)
        self.keep_alive()

    def keep_alive(self) -> None:
        """Brings up what min_instances asks for, unless an operator unloaded it or it backs off."""
        current = self.current
        wanted = current.version.spec.serving.min_instances > 0 and not self.held and not self._removed
        if wanted and current.state in RESTING:
            if current.refusal(self._site.now()) is None:
                current.wanted()

    def scale(self, now: Instant) -> None:
        """Called now and then: as many instances as there is work for."""
        if self.current.version.spec.serving.max_instances > 1 and self.incoming is None and not self.held and not self._removed:
            self._copies.scale(self.current, now)

    @property
    def at_rest(self) -> Instance | None:
        """Who would come up for the next request. None while anything of it runs or comes, and where an operator unloaded it."""
        wished = self.held or self._removed or self.incoming is not None
        return None if wished or any(instance.state not in RESTING for instance in self.all()) else self.current

    # ---- its instances

    def all(self) -> list[Instance]:
        """Those of all versions, the first of each before further ones."""
        return [*self.instances.values(), *self._copies]

    def all_of(self, first: Instance) -> list[Instance]:
        """Those of its version."""
        return [first, *self._copies.of(first.version.digest)]

    # ---- node.home.Home

    def keeps(self, instance: Instance) -> bool:
        serves = (self.current, self.incoming)
        if self.held or instance.version.digest not in {first.version.digest for first in serves if first is not None}:
            return False
        least = instance.version.spec.serving.min_instances
        if instance.extra:
            return instance in self._copies.of(instance.version.digest)[: max(0, least - 1)]
        return instance in serves and (self.pinned or least > 0)

    def closed(self, instance: Instance) -> None:
        heir = self._copies.heir(instance) if instance is self.current and not self.held and not self.going_down else None
        if heir is not None and not self._removed:
            self._follow(instance, heir)

    def starting(self, instance: Instance) -> tuple[int, int]:
        self.attempts += 1
        self._keep_counters()
        self._coming.pop(instance.key, None)
        number = self._coming[instance.key] = max([self.loads, *self._coming.values()]) + 1
        return self.attempts, number

    def _keep_counters(self) -> None:
        """A disk that is full costs what a restart would count by, never a load: what is in memory holds until then."""
        try:
            self._site.store.set_counters(self.name, loads=self.loads, attempts=self.attempts)
        except DiskFull as error:
            self._site.telemetry.log.warning("store.counters_lost", model=self.name, reason=error.message)

    def announced(self, instance: Instance, outcome: Outcome) -> None:
        if instance.state in RESTING:
            self._coming.pop(instance.key, None)
        if instance.extra:
            self._announced_copy(instance, outcome)
            return
        if outcome is Outcome.READY:
            self._note_load(instance)
            if instance is self.incoming:
                self._switch(instance)
            elif instance is self.current:
                self._note_serving()
            if instance is self.current and self.incoming is None and instance.version.digest != self.entry.stable.digest:
                self.changed(self.entry)  # a deploy that a restart interrupted goes on
        elif instance is self.incoming and instance.state is State.FAILED:
            self._reject(instance)
        elif self.incoming is not None and self.incoming.state in RESTING and not self._in_use(self.current):
            self._switch(self.incoming)  # both were unloaded: the next request is the new version's
        if instance.state in RESTING:
            self._forget_if_gone(instance)
        self.keep_alive()

    def adopted(self, version: Version) -> Instance | None:
        """The instance that takes over a predecessor's process; None for one too many. Who serves is said by the entry, not by who is there:
        an older version may have been loaded by its digest alone."""
        first = self._instance(version)
        if first.state in RESTING:
            return first
        return self._copies.add(first) if len(self.all_of(first)) < version.spec.serving.max_instances else None

    def settle(self) -> None:
        """After every process has been adopted: stable takes over from an older one that serves, or goes on coming up beside it. Where
        nothing runs it begins to once the older one is ready."""
        stable = self._instance(self.entry.stable)
        if stable is not self.current:
            if self._in_use(self.current):
                self.changed(self.entry)
            elif stable.state is State.READY:
                self._switch(stable)
            elif self._in_use(stable):
                self.incoming = stable
        self.keep_alive()

    # ---- within

    def _announced_copy(self, copy: Instance, outcome: Outcome) -> None:
        if outcome is Outcome.READY:
            self._note_load(copy)
            first = self.instances.get(copy.version.digest)
            if first is not None and first is self.current and first.state is not State.READY:
                self._follow(first, copy)
        elif copy.state in RESTING:
            self._copies.remove(copy)
            self._leave_if_over()
        self.keep_alive()

    def _follow(self, first: Instance, heir: Instance) -> None:
        """The first of a version is gone, or not there yet, and another one serves: that is what people mean from now on."""
        self._copies.exchange(first, heir)
        self.instances[heir.version.digest] = heir
        if self.current is first:
            self.current = heir

    def _instance(self, version: Version) -> Instance:
        found = self.instances.get(version.digest)
        if found is None:
            found = self.instances[version.digest] = Instance(version, self, site=self._site)
        return found

    def _in_use(self, instance: Instance) -> bool:
        """Something of it runs or is wanted to run; a build that a deploy began is neither."""
        if instance.intake.line:
            return True
        if instance.state in RESTING or instance.state is State.CANCELLING:
            return False
        return instance.state not in (State.BUILDING, State.FETCHING) or instance.life.wish is Wish.RUNNING

    def _switch(self, to: Instance) -> None:
        old, self.current, self.incoming = self.current, to, None
        self._note_serving()
        waiting = old.intake.take_back()
        self._site.telemetry.log.info("deploy.switched", model=self.name, version=to.version.digest[:12], waiting=len(waiting))
        to.intake.take_over(waiting)
        if old is not to:
            for instance in self.all_of(old):
                instance.unwanted(grace_s=self._site.settings.drain_s, reason="another version took its place")

    def _note_serving(self) -> None:
        """What can't be written costs this much: after a restart the older version is tried once more before this one."""
        if self.entry.answering.digest == self.current.version.digest or self._removed or self.going_down:
            return
        try:
            self.entry = self._site.store.set_serving(self.name, self.current.version.digest)
        except FornadaError as error:
            self._site.telemetry.log.warning("deploy.serving_lost", model=self.name, reason=error.message)
            return
        self._catalog.reload(self.name)

    def _reject(self, instance: Instance) -> None:
        """The new version is bad: the one that serves goes on serving, and the label goes back to it."""
        self.incoming = None
        current = self.current.version.digest
        failure: dict[str, Any] = {"reason": instance.life.failure.reason, "serving": current[:12]}
        self._site.telemetry.log.warning("deploy.rejected", model=self.name, version=instance.version.digest[:12], **failure)
        try:
            self.entry = self._site.store.set_label(self.name, label="stable", digest=current)
        except FornadaError as error:
            # The one that serves may have been removed meanwhile: it serves on, but no label can go back to it.
            self._site.telemetry.log.warning("deploy.label_stays", model=self.name, reason=error.message)
            return
        self._catalog.reload(self.name)

    def _drop_incoming(self) -> None:
        if self.incoming is not None:
            dropped, self.incoming = self.incoming, None
            dropped.unwanted(grace_s=0.0, reason="a newer version was deployed")

    def _retire(self, instance: Instance) -> None:
        error: FornadaError = UnknownModel(f"{self.name} has been removed")
        if not self._removed:
            error = UnknownModel(f"the version {instance.version.digest[:12]} of {self.name} has been removed")
        if instance is self.incoming:
            self.incoming = None
        if instance is not self.current or self._removed:
            instance.retire(error)

    def _forget_if_gone(self, instance: Instance) -> None:
        digest = instance.version.digest
        if digest not in self.entry.versions and instance not in (self.current, self.incoming):
            self.instances.pop(digest, None)
        self._leave_if_over()

    def _leave_if_over(self) -> None:
        if self._removed and all(instance.state in RESTING for instance in self.all()):
            self._left(self)

    def _note_load(self, instance: Instance) -> None:
        runner = instance.runner
        ours = self._coming.pop(instance.key, 0)
        if runner is None or not (ours or runner.load_count > self.loads):
            return  # adopted: a predecessor has counted it
        self.loads = self.loads + 1 if ours else runner.load_count
        self._keep_counters()
        metrics = self._site.telemetry.metrics
        metrics.loads.at(self.name, "ok").value += 1
        if isinstance(load_s := runner.facts.get("load_s"), int | float):
            metrics.load_seconds.at(self.name).observe(load_s)
