"""A node's record (core.policy.record), shown again: its plans one by one, and its requests through the simulator.

Both are compared with what the node did. A plan has to come out the same from the same moment, to the last word. The simulator is given
the record's requests at their times, how long each start and each end took, and what the node took them to cost from then on; the places,
the queues, the rates and every choice are its own.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from fornada.core.names import Instant, ModelName
from fornada.core.policy.demand import HOUR_S, Demand
from fornada.core.policy.ladder import UNKNOWN, Ladder
from fornada.core.policy.record import Came, Entry, Gone, Known, Learned, Moment, Ready, Slept
from fornada.simulate.node import Simulation, _Instance
from fornada.simulate.report import Choice
from fornada.simulate.traffic import Asked, SimulatedModel

WORK_S = 0.001
"""How long a model worked isn't in the record."""


def different_plans(record: Iterable[Entry]) -> list[Moment]:
    """Moments at which core.policy would plan something else than the node did."""
    return [entry for entry in record if isinstance(entry, Moment) and entry.planned_anew() != entry.plan]


def choices(record: Sequence[Entry]) -> list[Choice]:
    """What the node chose, in its order."""
    found = []
    for entry in record:
        if isinstance(entry, Moment):
            names = {need.key: need.model for need in entry.needs} | {holding.key: holding.model for holding in entry.holdings}
            asleep = {holding.key for holding in entry.holdings}
            found += [Choice(entry.at, "sleep", names[key]) for key in entry.made.sleep]
            found += [Choice(entry.at, "evict", names[key]) for key in entry.made.evict]
            found += [Choice(entry.at, "wake" if one.key in asleep else "start", names[one.key]) for one in entry.made.grants]
    return found


class Replay(Simulation):
    """A recorded run on virtual time. What idleness or an operator puts to sleep or stops isn't in it: nobody chose that for a wish's sake."""

    def __init__(self, record: Sequence[Entry]) -> None:
        """Raises ValueError for a record without a plan."""
        moments = [entry for entry in record if isinstance(entry, Moment)]
        if not moments:
            raise ValueError("the record holds no plan")
        known = {entry.model: entry for entry in reversed(record) if isinstance(entry, Known)}
        sizes = {need.model: need for moment in reversed(moments) for need in moment.needs}
        devices = [replace(device, foreign_bytes=0, lingering_bytes=0) for device in moments[0].devices]
        super().__init__([_model(name, need.device_bytes) for name, need in sizes.items()], devices, bounds=moments[0].bounds)
        self._demand = {name: Demand(at=known[name].at) if name in known else Demand(at=moments[0].at) for name in sizes}
        self._began = next((entry for entry in record if isinstance(entry, Known)), Known(moments[0].at, ModelName(""), 0))
        self._steps = _steps(record)
        self._coming: dict[ModelName, str] = {}
        """How whoever is on its way up comes: start or wake."""
        self._requests = [Asked(entry.at, entry.model, WORK_S) for entry in record if isinstance(entry, Came) and entry.model in sizes]

    def choices(self) -> list[Choice]:
        """What the simulator chooses."""
        return self.serve(self._requests).choices

    # ---- the record's numbers instead of the simulator's own

    def _start_takes_s(self, model: SimulatedModel) -> float:
        self._coming[model.name] = "start"
        return self._took_s("start", model.name, UNKNOWN.start_s)

    def _stop_takes_s(self, model: SimulatedModel) -> float:
        return self._took_s("evict", model.name, UNKNOWN.stop_s)

    def _asleep_at(self, model: SimulatedModel) -> Instant:
        return self._takes(self._took_s("sleep", model.name, UNKNOWN.sleep_s))

    def _awake_at(self, model: SimulatedModel) -> Instant:
        self._coming[model.name] = "wake"
        return self._takes(self._took_s("wake", model.name, UNKNOWN.wake_s))

    def _ready(self, instance: _Instance) -> None:
        self._learn(self._coming.pop(instance.model.name), instance)
        super()._ready(instance)

    def _fell_asleep(self, instance: _Instance) -> None:
        self._learn("sleep", instance)
        super()._fell_asleep(instance)

    def _ended(self, instance: _Instance) -> None:
        self._learn("evict", instance)
        super()._ended(instance)

    def _took_s(self, what: str, name: ModelName, unknown_s: float) -> float:
        steps = self._steps[what, name]
        return steps[0].took_s if steps else unknown_s

    def _learn(self, what: str, instance: _Instance) -> None:
        name = instance.model.name
        if steps := self._steps[what, name]:
            self._models[name] = instance.model = replace(self._models[name], ladder=steps.popleft().ladder)

    def _hour(self) -> int:
        return self._began.hour + int((self.now - self._began.at) // HOUR_S)


class _Step(NamedTuple):
    took_s: float
    ladder: Ladder
    """What is known after it."""


_Steps = dict[tuple[str, ModelName], deque[_Step]]
"""By what it was (as a Choice says it) and whose, in order."""


def _model(name: ModelName, device_bytes: int) -> SimulatedModel:
    """Of which nothing is known yet. The host's memory isn't replayed: what processes hold of it changes by itself."""
    return SimulatedModel(name, device_bytes, 0, UNKNOWN, concurrency=1 << 16)


def _steps(record: Sequence[Entry]) -> _Steps:
    steps: _Steps = defaultdict(deque)
    begun: dict[ModelName, Choice] = {}
    last: dict[ModelName, deque[_Step]] = {}
    for entry in record:
        match entry:
            case Moment():
                begun |= {ModelName(choice.key): choice for choice in choices([entry])}
            case Ready() | Slept() | Gone() if entry.model in begun:
                choice = begun.pop(entry.model)
                last[entry.model] = steps[choice.what, entry.model]
                last[entry.model].append(_Step(entry.at - choice.at, entry.ladder))
            case Learned() if entry.model in last:
                last[entry.model][-1] = last[entry.model][-1]._replace(ladder=entry.ladder)
            case _:
                pass
    return steps
