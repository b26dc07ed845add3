"""Who may take memory next, on which device, and who has to step down for it.

Strict order: models that wait are served oldest wish first. A younger one passes an older one only where it takes nothing that the older
one is waiting for, so nobody starves behind a stream of small models. A wish that nothing here could meet, because of what is kept or what
others hold, waits without taking anything from anybody: else one such wish would keep everybody out. Victims are chosen by value
(`victims`) among those that are idle; where they don't suffice, busy ones are drained once the wish has waited long enough. A model that
was just brought in serves before it may go again, and never goes for a wish that is younger than its own oldest waiting request: two
models with steady traffic take turns.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from fornada.core.names import NEVER, Instant
from fornada.core.policy.ladder import Rung
from fornada.core.policy.memory import CPU, Bounds, DeviceRoom, Holding, Need, host_of
from fornada.core.policy.naming import named
from fornada.core.policy.picture import Move, Picture
from fornada.core.policy.victims import choose
from fornada.core.resources import format_size

DRAIN_AFTER_SWAPS = 20.0
"""A busy model is drained for a wish that has waited this many times what the swap itself will take, and half the bound at most. A model at
work mostly rests within that time, and nobody's queue has to wait for it to come back: under a full load drains after 1, 3 and 10 swaps had a p95
up to twice as long (docs/decisions/0015). Two models that both always have work take turns and lose a twentieth of the time to it."""
LOOKS_AHEAD = 16
"""For so many of those who wait victims are looked for at a time, the oldest first; the others keep their place in the line. A search costs as much
as there are holders, and what is chosen for the seventeenth is another choice by the time the first sixteen have gone in."""


@dataclass(frozen=True, slots=True)
class Grant:
    """The instance may take its memory now: it starts, or wakes up if it is asleep."""

    key: str
    device: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now."""

    grants: tuple[Grant, ...] = ()
    evict: tuple[str, ...] = ()
    """Instances to drain and stop, in the order of choice."""
    sleep: tuple[str, ...] = ()
    """Instances to drain and put to sleep, in the order of choice."""
    sakes: dict[str, str] = field(default_factory=dict)
    """Of each in `evict` and `sleep`: for whose need."""
    waits: dict[str, str] = field(default_factory=dict)
    """Who waits on: what for, in words."""
    never: dict[str, str] = field(default_factory=dict)
    """Who can't ever fit: why, with both numbers."""
    declined: tuple[str, ...] = ()
    """Spare wishes for which nothing is left over: they don't wait."""
    again_at: Instant = NEVER
    """When time alone would change the plan."""


def plan(
    needs: Sequence[Need],
    holdings: Sequence[Holding],
    devices: Sequence[DeviceRoom],
    *,
    bounds: Bounds,
    now: Instant,
) -> Plan:
    """What to do at `now`. Needs that can't be met now claim what they wait for, so that younger ones don't take it."""
    picture = Picture(holdings, devices, max_resident=bounds.max_resident)
    grants: list[Grant] = []
    moves: list[Move] = []
    sakes: dict[str, str] = {}
    waits: dict[str, str] = {}
    never: dict[str, str] = {}
    declined: list[str] = []
    again_at = NEVER
    looked_for = 0
    for need in sorted(needs, key=lambda need: (need.spare, need.since, need.key)):
        candidates = _places(picture, need, devices)
        if isinstance(candidates, str):
            never[need.key] = candidates
            continue
        usable = [device for device in candidates if not device.fenced]
        if need.spare and not any(picture.fits_now(need, device) for device in usable):
            declined.append(need.key)
            continue
        if not usable:
            waits[need.key] = f"{', '.join(device.id for device in candidates)}: fenced after a fault"
            continue
        fitting = [device for device in usable if picture.fits_now(need, device) and not picture.is_going(need.key)]
        if fitting:
            best = max(fitting, key=picture.free_now)
            picture.grant(need, best)
            grants.append(Grant(need.key, best.id))
            continue
        reachable = [device for device in usable if not picture.obstacles(need, device)]
        if not reachable:
            device = max(usable, key=picture.free_now)
            waits[need.key] = f"{picture.explain(need, device)}; {picture.obstacles(need, device)}"
            continue
        looked_for += 1
        if looked_for > LOOKS_AHEAD:
            device = max(reachable, key=picture.free_now)
            waits[need.key] = picture.explain(need, device)
            picture.claim(need, device)
            continue
        device, victims = _least_damage(picture, need, reachable)
        drains_at = _drains_at(need, victims, bounds)
        if drains_at > now:
            again_at = min(again_at, drains_at)
            waits[need.key] = _waits_for_rest(need, picture.explain(need, device), victims, drains_at - now)
            picture.carry_out(victims)  # on paper: younger wishes are to look for their own
        else:
            picture.carry_out(victims)
            # Who is to be stopped so that the host holds who falls asleep has to be gone first: that one's turn comes with a later plan.
            leaving = [move for move in victims if picture.lease(move)]
            moves += leaving
            sakes.update({move.holding.key: need.key for move in leaving})
            waits[need.key] = picture.explain(need, device)
        picture.claim(need, device)
    evict = tuple(move.holding.key for move in moves if move.to is Rung.STOPPED)
    sleep = tuple(move.holding.key for move in moves if move.to is Rung.ASLEEP)
    return Plan(tuple(grants), evict, sleep, sakes, waits, never, tuple(declined), again_at)


def candidates_of(need: Need, devices: Sequence[DeviceRoom]) -> list[DeviceRoom] | str:
    """Devices that the need could ever live on, or why there is none."""
    host = host_of(devices)
    if host and need.memory_bytes > host.total_bytes:
        return f"needs {format_size(need.memory_bytes)} of host memory, this node has {format_size(host.total_bytes)} for models"
    accelerators = [device for device in devices if device.id != CPU]
    if need.device == CPU or (need.device == "auto" and (not need.device_bytes or not accelerators)):
        return [device for device in devices if device.id == CPU] or [DeviceRoom(CPU, 0)]
    named = accelerators if need.device in ("auto", "cuda") else [device for device in accelerators if device.id == need.device]
    if not named:
        present = ", ".join(device.id for device in devices) or "none"
        return f"asks for the device '{need.device}'; this node has: {present}"
    large = [device for device in named if need.device_bytes <= device.total_bytes]
    if not large:
        most = max(device.total_bytes for device in named)
        return f"needs {format_size(need.device_bytes)} of device memory, the largest such device has {format_size(most)}"
    return large


def _places(picture: Picture, need: Need, devices: Sequence[DeviceRoom]) -> list[DeviceRoom] | str:
    """Who sleeps wakes up where it is."""
    own = picture.sleeper(need)
    there = [device for device in devices if own is not None and device.id == own.device]
    return there or candidates_of(need, devices)


def _least_damage(picture: Picture, need: Need, devices: Sequence[DeviceRoom]) -> tuple[DeviceRoom, list[Move]]:
    """The device with the fewest busy victims, then the least loss, then the fewest at all; none where waiting or nothing helps."""
    best: tuple[tuple[int, float, int, int], DeviceRoom, list[Move]] | None = None
    for device in devices:
        victims = choose(picture, need, device)
        if victims is None:
            continue
        busy, lost = sum(move.busy for move in victims), sum(move.loss for move in victims)
        score = (busy, lost, len(victims), -picture.free_now(device))
        if best is None or score < best[0]:
            best = score, device, victims
    if best is None:
        return max(devices, key=picture.free_now), []
    return best[1], best[2]


def _drains_at(need: Need, victims: Sequence[Move], bounds: Bounds) -> Instant:
    """From when on these may be told to go, at work or not. Where all are idle that is at once: waiting for them would help nobody."""
    if not any(move.busy for move in victims):
        return need.since
    swap_s = need.in_s + max(move.takes_s - move.holding.work_left_s for move in victims)
    return Instant(need.since + min(bounds.max_wait_s / 2, DRAIN_AFTER_SWAPS * swap_s))


def _waits_for_rest(need: Need, why: str, victims: Sequence[Move], left_s: float) -> str:
    busy = named(need, [move.holding for move in victims if move.busy])
    return f"{why}; waits for {busy} to rest, which is drained in {left_s:.1f} s"
