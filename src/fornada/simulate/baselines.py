"""Whom the policy is compared with: what others do, on the same models, the same link and the same traffic."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace

from fornada.core.names import Instant, ModelName
from fornada.core.policy.memory import Bounds, DeviceRoom, Holding, Need
from fornada.core.policy.placement import Plan, plan
from fornada.simulate.report import Answered, Report
from fornada.simulate.traffic import Asked, SimulatedModel


def least_recently_used(
    needs: Sequence[Need], holdings: Sequence[Holding], devices: Sequence[DeviceRoom], *, bounds: Bounds, now: Instant
) -> Plan:
    """The same in everything but whom it chooses: without rates nobody is worth more than another, and the one used last stays."""
    return plan(needs, [replace(holding, rate=0.0) for holding in holdings], devices, bounds=bounds, now=now)


def one_at_a_time(
    needs: Sequence[Need], holdings: Sequence[Holding], devices: Sequence[DeviceRoom], *, bounds: Bounds, now: Instant
) -> Plan:
    """One model is ready at a time, and the others sleep."""
    return least_recently_used(needs, holdings, devices, bounds=replace(bounds, max_resident=1), now=now)


def fifo_exclusive(models: Sequence[SimulatedModel], traffic: Sequence[Asked], *, device_bytes: int) -> Report:
    """Whoever is first has the device for itself until its answer. Models stay while there is room, the one used last longest; all of
    them are asleep in the beginning, and the host holds them all."""
    sizes = {model.name: model for model in models}
    resident: OrderedDict[ModelName, int] = OrderedDict()
    report = Report()
    now = 0.0
    for asked in sorted(traffic, key=lambda one: one.at):
        now = max(now, asked.at)
        model = sizes[asked.model]
        if asked.model not in resident:
            while sum(resident.values()) + model.device_bytes > device_bytes:
                name, _ = resident.popitem(last=False)
                report.swaps.append((now, now + sizes[name].ladder.sleep_s))
                now += sizes[name].ladder.sleep_s
            report.swaps.append((now, now + model.ladder.wake_s))
            now += model.ladder.wake_s
            resident[asked.model] = model.device_bytes
        resident.move_to_end(asked.model)
        report.answered.append(Answered(asked.at, asked.model, now - asked.at, now + asked.work_s - asked.at))
        now += asked.work_s
    return report
