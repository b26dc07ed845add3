"""The further instances of a model's versions: they come while there is more to do than one can, into room that nobody wants, and go again."""

from collections.abc import Iterator

from fornada.core.lifecycle.states import CLOSING, RESTING, State
from fornada.core.names import Instant, VersionDigest
from fornada.core.policy.scaling import Bounds, Load, Needed, seen, wanted
from fornada.node.home import Home
from fornada.node.instance import Instance
from fornada.node.site import Site

AFTER_FAILURE_S = 30.0
"""After a further instance failed to come: the one that serves shows that the model can, so that it is the machine that can't."""


class Copies:
    """Of one model. Its first instances are the model's own."""

    def __init__(self, home: Home, *, site: Site) -> None:
        self._home = home
        self._site = site
        self._of: dict[VersionDigest, list[Instance]] = {}
        self._needed = Needed()
        self._needed_of: VersionDigest | None = None
        self._not_before = site.now()

    def __iter__(self) -> Iterator[Instance]:
        for copies in list(self._of.values()):
            yield from list(copies)

    def of(self, digest: VersionDigest) -> list[Instance]:
        """Of one version, in the order in which they came."""
        return list(self._of.get(digest, ()))

    def add(self, first: Instance) -> Instance:
        """One more, of which nothing runs yet."""
        copy = Instance(first.version, self._home, site=self._site, beside=first)
        self._of.setdefault(first.version.digest, []).append(copy)
        return copy

    def remove(self, copy: Instance) -> None:
        """Nothing of it runs any more."""
        copies = self._of.get(copy.version.digest, [])
        if copy in copies:
            copies.remove(copy)
        if not copies:
            self._of.pop(copy.version.digest, None)
        if copy.state is State.FAILED:
            self._not_before = Instant(self._site.now() + AFTER_FAILURE_S)

    def exchange(self, first: Instance, copy: Instance) -> None:
        """The copy is the first from now on, and the first one of the copies."""
        copies = self._of[first.version.digest]
        copies[copies.index(copy)] = first
        first.extra, copy.extra = True, False

    def heir(self, first: Instance) -> Instance | None:
        """One that serves."""
        return next((copy for copy in self.of(first.version.digest) if copy.state is State.READY), None)

    def scale(self, first: Instance, now: Instant) -> None:
        """Called now and then: brings up what is missing, ends what is superfluous."""
        serving = first.version.spec.serving
        bounds = Bounds(least=serving.min_instances, most=serving.max_instances, idle_timeout_s=serving.idle_timeout_s)
        if self._needed_of != first.version.digest:
            self._needed, self._needed_of = Needed(), first.version.digest
        load = _load(first)
        self._needed = seen(self._needed, load, bounds=bounds, now=now)
        copies = [copy for copy in self.of(first.version.digest) if copy.state not in RESTING and copy.state not in CLOSING]
        if first.state is not State.READY:
            return
        more = wanted(load, self._needed, present=1 + len(copies), bounds=bounds, now=now) - 1 - len(copies)
        for _ in range(max(0, more) if now >= self._not_before else 0):
            copy = self.add(first)
            if not copy.kept and not self._site.room.left_over(copy):
                self.remove(copy)
                return
            instances = 1 + len(self.of(first.version.digest))
            self._site.telemetry.log.info("instance.further", model=first.model, waiting=load.waiting, instances=instances)
            copy.wanted()
        for copy in reversed(copies[more:] if more < 0 else []):
            if not copy.kept and not copy.calls and copy.state is State.READY:
                copy.evicted("superfluous")


def _load(first: Instance) -> Load:
    crew, serving = first.intake.crew, first.version.spec.serving
    last = first.intake.service_s
    return Load(
        working=serving.concurrency * serving.max_batch,
        in_flight=crew.in_flight,
        waiting=len(crew.line),
        service_s=sum(last) / len(last) if last else None,
        start_s=first.worth.start_s,
    )
