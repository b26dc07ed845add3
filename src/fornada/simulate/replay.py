"""A node's record (core.policy.record), shown again: its plans one by one, and its requests through the simulator.

Both are compared with what the node did. A plan has to come out the same from the same moment, to the last word. The simulator is given
the record's requests at their times, how long each start and each end took, and what the node took them to cost from then on; the places,
the queues, the rates and every choice are its own.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import replace

from fornada.core.names import Instant, ModelName
from fornada.core.policy.demand import HOUR_S, Demand
from fornada.core.policy.ladder import UNKNOWN, Ladder
from fornada.core.policy.record import Came, Entry, Gone, Known, Moment, Ready
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
    """A recorded run on virtual time. Models that sleep aren't in it: what a wake-up took is not recorded."""

    def __init__(self, record: Sequence[Entry]) -> None:
        """Raises ValueError for a record without a plan or of models that sleep."""
        moments = [entry for entry in record if isinstance(entry, Moment)]
        if not moments:
            raise ValueError("the record holds no plan")
        if any(moment.made.sleep for moment in moments):
            raise ValueError("the record holds models that fell asleep, which isn't replayed yet")
        known = {entry.model: entry for entry in reversed(record) if isinstance(entry, Known)}
        sizes = {need.model: need for moment in reversed(moments) for need in moment.needs}
        devices = [replace(device, foreign_bytes=0, lingering_bytes=0) for device in moments[0].devices]
        super().__init__([_model(name, need.device_bytes) for name, need in sizes.items()], devices, bounds=moments[0].bounds)
        self._demand = {name: Demand(at=known[name].at) if name in known else Demand(at=moments[0].at) for name in sizes}
        self._began = next((entry for entry in record if isinstance(entry, Known)), Known(moments[0].at, ModelName(""), 0))
        self._starts, self._ends = _steps(record)
        self._requests = [Asked(entry.at, entry.model, WORK_S) for entry in record if isinstance(entry, Came) and entry.model in sizes]

    def choices(self) -> list[Choice]:
        """What the simulator chooses."""
        return self.serve(self._requests).choices

    # ---- the record's numbers instead of the simulator's own

    def _start_takes_s(self, model: SimulatedModel) -> float:
        return self._starts[model.name][0][0] if self._starts[model.name] else UNKNOWN.start_s

    def _stop_takes_s(self, model: SimulatedModel) -> float:
        return self._ends[model.name][0][0] if self._ends[model.name] else UNKNOWN.stop_s

    def _ready(self, instance: _Instance) -> None:
        self._learn(instance.model.name, self._starts, instance)
        super()._ready(instance)

    def _ended(self, instance: _Instance) -> None:
        self._learn(instance.model.name, self._ends, instance)
        super()._ended(instance)

    def _learn(self, name: ModelName, steps: "_Steps", instance: _Instance) -> None:
        if steps[name]:
            _, ladder = steps[name].popleft()
            self._models[name] = instance.model = replace(self._models[name], ladder=ladder)

    def _hour(self) -> int:
        return self._began.hour + int((self.now - self._began.at) // HOUR_S)


_Steps = dict[ModelName, deque[tuple[float, Ladder]]]
"""Of each model, in order: what it took in seconds, and what is known after it."""


def _model(name: ModelName, device_bytes: int) -> SimulatedModel:
    """Of which nothing is known yet. The host's memory isn't replayed: what processes hold of it changes by itself."""
    return SimulatedModel(name, device_bytes, 0, UNKNOWN, concurrency=1 << 16)


def _steps(record: Sequence[Entry]) -> tuple[_Steps, _Steps]:
    """(starts, ends)"""
    starts: _Steps = defaultdict(deque)
    ends: _Steps = defaultdict(deque)
    begun: dict[ModelName, Instant] = {}
    for entry in record:
        match entry:
            case Moment():
                begun |= {ModelName(choice.key): entry.at for choice in choices([entry])}
            case Ready() if entry.model in begun:
                starts[entry.model].append((entry.at - begun.pop(entry.model), entry.ladder))
            case Gone() if entry.model in begun:
                ends[entry.model].append((entry.at - begun.pop(entry.model), entry.ladder))
            case _:
                pass
    return starts, ends
