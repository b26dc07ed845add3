"""Who has memory and why so much, who waits for it, who had to go: as people see it."""

from typing import Any

from fornada.core.lifecycle.states import CLOSING, RESTING, State, outside
from fornada.core.policy.ladder import Ladder, loss, loss_of_sleep, resting_rung
from fornada.core.policy.memory import CPU
from fornada.node.instance import Instance
from fornada.node.site import Site
from fornada.telemetry.times import rfc3339


def standing(instance: Instance, site: Site) -> dict[str, Any]:
    """Where an instance stands on the ladder, what it is charged of its device, and what its absence would cost."""
    now = site.now()
    device, charges = site.room.device_of(instance), site.room.charges(instance)
    estimate = site.ledger.estimates(instance)[device == CPU]
    charge = None if charges is None else charges.memory if device == CPU else charges.device
    rate = instance.rate(now, site.clock.wall())
    idle = not instance.calls and instance.state not in CLOSING
    return {
        "step": instance.state.value,
        "charged_bytes": charge.bytes if charge is not None else 0,
        "because": charge.because.value if charge is not None else "",
        "expected_bytes": estimate.expected_bytes,
        "idle_s": round(max(0.0, now - instance.last_used), 3) if idle else 0.0,
        "kept": instance.kept,
        "expected_rps": round(rate, 6),
        "value": round(_value(instance.worth.ladder, rate, instance.state), 6),
    }


def residency(site: Site, seen: list[dict[str, Any]]) -> dict[str, Any]:
    """`seen`: all that have a place, as node.views shows them."""
    now, wall = site.now(), site.clock.wall()
    waits = [
        {
            "model": resident.model,
            "version": resident.version.digest,
            "since": rfc3339(wall - (now - since)),
            "waiting_s": round(now - since, 3),
            "needs_bytes": _needs(resident, site),
            "queued": resident.calls if isinstance(resident, Instance) else 0,
            "why": site.room.reasons.get(resident.key, "no plan has been made yet"),
        }
        for resident, since in site.room.line()
    ]
    return {"instances": seen, "waits": waits, "evictions": site.moves.evictions(), "swap": site.moves.shares()}


def placed(site: Site) -> list[Instance]:
    """Who has a place."""
    return [resident for resident in site.room.residents() if isinstance(resident, Instance) and resident.state not in RESTING]


def charged(site: Site) -> list[tuple[tuple[str, ...], float]]:
    """Of the metric `fornada_charged_bytes`: one number for each model, device and reason."""
    sums: dict[tuple[str, ...], float] = {}
    for device, on in site.room.holders().items():
        for resident, charges in on:
            for where, charge in {CPU: charges.memory, **({device: charges.device} if device != CPU else {})}.items():
                if charge.bytes:
                    labels = (resident.model, where, charge.because.value)
                    sums[labels] = sums.get(labels, 0.0) + charge.bytes
    return list(sums.items())


def _needs(resident: Any, site: Site) -> int:
    """Of a device where it asks for any, else of the host."""
    device, memory = site.ledger.needs(resident, site.devices.accelerators)
    return device or memory


def _value(ladder: Ladder, rate: float, state: State) -> float:
    """Seconds of swapping a second that its next step down would cost, as core.policy.victims counts."""
    if outside(state) == "asleep":
        return loss_of_sleep(ladder, rate=rate)
    return loss(ladder, resting_rung(ladder), rate=rate) if state is State.READY else 0.0
