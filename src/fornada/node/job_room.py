"""What jobs may have of each model now, by what is seen of everybody else's requests (core.jobs.JobRoom).

It is looked at while items wait, some times a second; nothing is counted for it on a request's way that isn't counted anyhow.
"""

from collections.abc import Callable, Mapping

from fornada.core.lifecycle.states import State
from fornada.core.names import Instant, ModelName
from fornada.core.policy.idle_capacity import Places, Traffic, first_seen, lull, places, seen, unloaded
from fornada.node.instance import Instance
from fornada.node.model import Model
from fornada.node.room import Room


class IdleCapacity:
    """Over the node's models."""

    def __init__(self, models: Mapping[ModelName, Model], *, room: Room, now: Callable[[], Instant]) -> None:
        self._models = models
        self._room = room
        self._now = now
        self._seen: dict[ModelName, Traffic] = {}

    def places(self, model: ModelName, *, item_s: float | None) -> Places:
        known = self._models.get(model)
        now = self._now()
        if known is None:
            return unloaded(nobody_asks=True, fits=True)  # it is brought up by its first item, or that one says why not
        current = known.current
        crew = current.intake.crew
        if not crew.open:
            return unloaded(nobody_asks=self._nobody_asks(now), fits=self._fits(current))
        return places(self._traffic(known, now), working=crew.working, lanes=crew.lanes, here=crew.asked_here, item_s=item_s, now=now)

    def _traffic(self, model: Model, now: Instant) -> Traffic:
        crew = model.current.intake.crew
        count, at, here = crew.asked.count, crew.asked.at, crew.asked_here
        before = self._seen.get(model.name)
        # A new version counts anew.
        fresh = before is None or before.ever > count
        found = first_seen(count, at, here, now) if before is None or fresh else seen(before, count, at, here, now)
        self._seen[model.name] = found
        return found

    def _nobody_asks(self, now: Instant) -> bool:
        return all(lull(self._traffic(model, now), model.current.intake.crew.asked_here, now) for model in self._models.values())

    def _fits(self, instance: Instance) -> bool:
        if instance.state in (State.REGISTERED, State.STOPPED, State.ASLEEP):
            return self._room.may_come_unasked([(instance, 1.0)]) == instance.key
        return True  # it is coming, or going, or backs off: its item waits for that like anybody
