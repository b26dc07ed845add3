"""When each of those who wait for room will be ready: the plan itself, carried out in thought.

What is asked is the plan's own code, so a prediction can't follow another order than the one that is kept. It is the least that the wait
may be: work ends as early as it may, nobody new comes, and what a device is slow to give back is taken for given back. So who is refused for
it would have waited too long; who is let in may still be refused when the bound has passed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fornada.core.names import NEVER, Instant
from fornada.core.policy.ladder import Rung, down_s
from fornada.core.policy.memory import CPU, Bounds, DeviceRoom, Holding, Need, Phase
from fornada.core.policy.placement import Plan, plan

STEPS_FOR_EACH = 4
"""Of a forecast: grant, ready, rest, and the way down of whoever goes for it."""
LOOKS_MOST = 5_000
"""At holders and at who waits, in one forecast: as much as a fifth of a second of one core. A hundred are thought through to the end."""


def forecast(
    needs: Sequence[Need], holdings: Sequence[Holding], devices: Sequence[DeviceRoom], *, bounds: Bounds, now: Instant
) -> Mapping[str, float]:
    """Seconds until each need is ready, by key. Who is missing can't be told: it waits for somebody who would have to change his mind,
    or for ever. Where so many wait that it would take long to think it through, the last are told how far it was."""
    looked_at = 0
    future = _Future(needs, holdings, [replace(device, lingering_bytes=0) for device in devices], now)
    for _ in range(STEPS_FOR_EACH * (len(needs) + len(holdings) + 1)):
        made = plan(list(future.needs.values()), list(future.held.values()), future.devices, bounds=bounds, now=future.now)
        future.carry_out(made)
        looked_at += len(future.needs) + len(future.held)
        if looked_at > LOOKS_MOST:
            return {**{need.key: future.now + need.in_s - now for need in future.needs.values()}, **future.ready_in_s}
        if not future.needs or not future.pass_on(made.again_at):
            break
    return future.ready_in_s


class _Future:
    def __init__(self, needs: Sequence[Need], holdings: Sequence[Holding], devices: Sequence[DeviceRoom], now: Instant) -> None:
        self.needs = {need.key: need for need in needs}
        self.held = {holding.key: holding for holding in holdings}
        self.devices = devices
        self.now = self._began = now
        self.ready_in_s: dict[str, float] = {}
        self._work_s: dict[str, float] = {}
        moving = [holding for holding in holdings if holding.phase not in (Phase.IDLE, Phase.ASLEEP)]
        self._ends = {holding.key: Instant(now + holding.work_left_s + holding.queue_s) for holding in moving}

    def carry_out(self, made: Plan) -> None:
        for key in made.never:
            self.needs.pop(key)
        for grant in made.grants:
            need = self.needs.pop(grant.key)
            self.held[need.key] = _coming(need, grant.device, self.now)
            self.ready_in_s[need.key] = self.now + need.in_s - self._began
            self._work_s[need.key] = need.work_s
            self._ends[need.key] = Instant(self.now + need.in_s)
        for keys, rung, phase in ((made.evict, Rung.STOPPED, Phase.CLOSING), (made.sleep, Rung.ASLEEP, Phase.FALLING)):
            for key in keys:
                holding = self.held[key]
                host_bytes = max(holding.memory_bytes, holding.ladder.asleep_host_bytes) if rung is Rung.ASLEEP else holding.memory_bytes
                works_s = holding.work_left_s if holding.phase is Phase.BUSY else 0.0
                idle_at = min(self._ends.get(key, self.now), self.now + works_s)
                self.held[key] = replace(holding, phase=phase, memory_bytes=host_bytes)
                self._ends[key] = Instant(idle_at + down_s(holding.ladder, rung))

    def pass_on(self, again_at: Instant) -> bool:
        """To the next moment at which something changes. False: nothing ever will."""
        at = min([*self._ends.values(), again_at], default=NEVER)
        if at == NEVER:
            return False
        self.now = Instant(max(self.now, at))
        for key in [key for key, ends in self._ends.items() if ends <= self.now]:
            self._arrive(key)
        return True

    def _arrive(self, key: str) -> None:
        del self._ends[key]
        holding = self.held[key]
        match holding.phase:
            case Phase.COMING:
                self.held[key] = replace(holding, phase=Phase.BUSY, last_used=self.now)
                self._ends[key] = Instant(self.now + self._work_s.get(key, 0.0))
            case Phase.BUSY | Phase.IDLE:
                self.held[key] = replace(holding, phase=Phase.IDLE, served=True, oldest_waiting=None, last_used=self.now)
            case Phase.FALLING | Phase.ASLEEP:
                ladder = holding.ladder
                asleep_bytes = min(holding.charge_bytes, ladder.asleep_bytes)
                self.held[key] = replace(holding, phase=Phase.ASLEEP, charge_bytes=asleep_bytes, memory_bytes=ladder.asleep_host_bytes)
            case Phase.CLOSING:
                del self.held[key]


def _coming(need: Need, device: str, now: Instant) -> Holding:
    charge_bytes = 0 if device == CPU else need.device_bytes
    return Holding(
        key=need.key,
        model=need.model,
        device=device,
        charge_bytes=charge_bytes,
        phase=Phase.COMING,
        last_used=now,
        oldest_waiting=need.since,
        served=False,
        kept=False,
        memory_bytes=need.memory_bytes,
        ladder=need.ladder,
    )
