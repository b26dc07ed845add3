"""Brings up what will probably be asked soon, before anybody asks: into memory that nobody wants, one at a time, and the first to go again.

Only a model whose start was measured here, and which went for a reason that says nothing against it: another one needed the room, or
nothing was asked of it. What is known of requests and starts is in memory: a new control plane, or a new version, begins without it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fornada.core.lifecycle.states import RESTING, State
from fornada.core.names import Instant
from fornada.core.policy.demand import hour_of
from fornada.core.policy.prefetch import SOON_S
from fornada.node.instance import Instance
from fornada.node.model import Model
from fornada.node.site import Site

LOOK_S = 10.0
"""Between two looks: a model that was evicted waits this long at most for room that has become free."""
NO_FAULT = frozenset({"room", "idle", "unused", "no room was left over"})
FOR_NOTHING = frozenset({"idle", "unused"})
"""Ends that show that requests have ceased: what came of late says nothing then, and what is usual at an hour of day only once another one
has begun. A model would never rest otherwise."""


@dataclass(frozen=True, slots=True)
class _Try:
    """The last time that a model was brought up."""

    hour: int
    count: int
    """Requests that had come by then."""


class Prefetching:
    """Of one node."""

    def __init__(self, site: Site, *, models: Callable[[], Iterable[Model]]) -> None:
        self._site = site
        self._models = models
        self._next_look = site.now()
        self._tries: dict[str, _Try] = {}
        """By the instance's key."""
        self._last: Instance | None = None

    def turn(self, now: Instant) -> None:
        """Called now and then."""
        if self._site.settings.prefetch and now >= self._next_look:
            self._next_look = Instant(now + LOOK_S)
            self._end_the_unused(now)
            self._bring_up(now)

    def _end_the_unused(self, now: Instant) -> None:
        for model in self._models():
            current = model.current
            if current.foreseen and current.state is State.READY and not current.kept and now - current.since >= SOON_S:
                current.evicted("unused")

    def _bring_up(self, now: Instant) -> None:
        last = self._last
        if last is not None and last.state is not State.READY and last.state not in RESTING:
            return
        wall = self._site.clock.wall()
        models = list(self._models())
        there = {model.current.key for model in models}
        self._tries = {key: known for key, known in self._tries.items() if key in there}
        resting = [instance for model in models if (instance := model.at_rest) is not None]
        able = {instance.key: instance for instance in resting if self._may_come(instance, now, wall)}
        key = self._site.room.may_come_unasked([(instance, _expected(instance, now, wall)) for instance in able.values()]) if able else ""
        if key:
            instance = self._last = able[key]
            asked = instance.intake.crew.asked
            self._tries[key] = _Try(hour_of(wall), asked.count)
            expected = round(_expected(instance, now, wall), 6)
            self._site.telemetry.log.info("instance.prefetched", model=instance.model, instance=key, rate=expected)
            asked.foresee()
            instance.wanted()

    def _may_come(self, instance: Instance, now: Instant, wall: float) -> bool:
        if instance.state is not State.STOPPED or instance.ended_because not in NO_FAULT or not instance.worth.start_s or instance.kept:
            return False
        if instance.ended_because in FOR_NOTHING and hour_of(wall - (now - instance.since)) == hour_of(wall):
            return False
        known = self._tries.get(instance.key)
        return known is None or known.hour != hour_of(wall) or known.count != instance.intake.crew.asked.count


def _expected(instance: Instance, now: Instant, wall: float) -> float:
    """Requests a second."""
    asked = instance.intake.crew.asked
    return asked.usual(wall) if instance.ended_because in FOR_NOTHING else asked.rate(now, wall)
