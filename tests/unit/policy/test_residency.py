"""The residency broker's invariants, in any order of events on virtual time: I1 to I9 of the memory design.

I2 (nothing computes outside ready) and I8 (a failed step leaves it ready or gone) are what the simulated node's phases mean; that answers are
equal after sleep and wake (I6) is the engines' to show. The share of time spent swapping (I9) is reported and looked at in test_simulation.
"""

# Instants and names are plain numbers and strings here.
# mypy: disable-error-code="arg-type"

import itertools

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fornada.core.policy.ladder import Ladder
from fornada.core.policy.memory import CPU, READY, Bounds, DeviceRoom, Holding, Phase
from fornada.core.policy.placement import Plan, plan
from fornada.simulate.node import OverCommitted, Simulation
from fornada.simulate.traffic import Asked, SimulatedModel
from tests.bounds import count

GIB = 1024**3
CARD = 8
STEP = (Phase.COMING, Phase.FALLING, Phase.CLOSING)
NAMES = [f"m{number}" for number in range(6)]


@st.composite
def catalogues(draw):
    models = []
    for name in NAMES:
        gib = draw(st.sampled_from([1, 2, 3, 5]))
        ladder = Ladder(
            start_s=draw(st.sampled_from([0.5, 3.0])),
            stop_s=draw(st.sampled_from([0.0, 0.2, 0.4])),
            sleeps=draw(st.sampled_from([True, True, True, False])),
            sleep_s=gib / 8,
            wake_s=gib / 8,
            asleep_bytes=draw(st.sampled_from([0, GIB // 8])),
            asleep_host_bytes=gib * GIB,
        )
        models.append(SimulatedModel(name, gib * GIB, GIB // 4, ladder, concurrency=draw(st.integers(1, 3))))
    return models


class Broker(RuleBasedStateMachine):
    """Any traffic, pins, crashes and foreign memory."""

    choose = staticmethod(plan)

    @initialize(
        models=catalogues(), host_gib=st.sampled_from([4, 7, 9, 64]), most=st.sampled_from([0, 0, 2]), bound_s=st.sampled_from([10.0, 60.0])
    )
    def begin(self, models, host_gib, most, bound_s):
        self.models = {model.name: model for model in models}
        self.bounds = Bounds(max_resident=most, max_wait_s=bound_s)
        self.devices = [DeviceRoom(CPU, host_gib * GIB), DeviceRoom("cuda:0", CARD * GIB)]
        self.pinned = set()
        self.foreign = 0
        self.asked = 0
        self.ended_asleep = set()
        self.simulation = Simulation(models, self.devices, bounds=self.bounds, choose=self.watched)

    def watched(self, needs, holdings, devices, *, bounds, now) -> Plan:
        """The choice, and what must hold of it at that moment."""
        made = type(self).choose(needs, holdings, devices, bounds=bounds, now=now)
        held = {holding.key: holding for holding in holdings}
        for key in (*made.evict, *made.sleep):
            victim = held[key]
            assert not victim.kept and victim.phase not in STEP
            # I4: who was brought in for somebody serves before it goes.
            idle_for_nobody = victim.phase is Phase.IDLE and victim.oldest_waiting is None
            assert victim.served or victim.phase is Phase.ASLEEP or idle_for_nobody
            # Turns: never for a wish that is younger than its own oldest request.
            assert victim.oldest_waiting is None or any(need.since <= victim.oldest_waiting for need in needs)
        evicted_asleep = {key for key in made.evict if held[key].phase is Phase.ASLEEP}
        self.ended_asleep = (self.ended_asleep - {*made.evict}) | evicted_asleep
        oldest = min(needs, key=lambda need: (need.since, need.key))
        granted = {grant.key for grant in made.grants}
        if now - oldest.since >= bounds.max_wait_s / 2 and oldest.key not in granted and not made.evict and not made.sleep:
            assert self.is_stuck(oldest, holdings, devices), (oldest, made.waits)
        return made

    def is_stuck(self, need, holdings, devices) -> bool:
        """I5: from X/2 on the head's swap is under way, unless nobody may go for it. Tried by force: every set of those who may, stopped."""
        going = [holding for holding in holdings if holding.phase in (Phase.CLOSING, Phase.FALLING)]
        able = [holding for holding in holdings if self.may_go(holding, need)]
        enough = self.fits(need, [holding for holding in holdings if holding not in able and holding not in going], going, devices)
        return bool(going) or not enough

    def may_go(self, holding: Holding, need) -> bool:
        if holding.key == need.key or holding.kept or holding.phase in STEP:
            return False
        if holding.oldest_waiting is not None and holding.oldest_waiting < need.since:
            return False
        return holding.served or holding.phase is Phase.ASLEEP or (holding.phase is Phase.IDLE and holding.oldest_waiting is None)

    def fits(self, need, staying, going, devices) -> bool:
        host, card = devices
        asleep = [holding for holding in going if holding.phase is Phase.FALLING]
        others = [holding for holding in staying if holding.key != need.key]
        own = max([holding.memory_bytes for holding in staying if holding.key == need.key], default=0)
        device = sum(h.charge_bytes for h in others) + sum(h.ladder.asleep_bytes for h in asleep) + need.device_bytes
        on_host = sum(h.memory_bytes for h in others) + sum(h.ladder.asleep_host_bytes for h in asleep) + max(own, need.memory_bytes)
        models = {h.model for h in others if h.phase is not Phase.ASLEEP} | {need.model}
        slots = not self.bounds.max_resident or len(models) <= self.bounds.max_resident
        return device + card.foreign_bytes <= card.total_bytes and on_host <= host.total_bytes and slots

    # ---- what happens

    @rule(name=st.sampled_from(NAMES), work_s=st.sampled_from([0.05, 0.5, 4.0]), more=st.integers(1, 3))
    def ask(self, name, work_s, more):
        for _ in range(more):
            self.simulation.ask(Asked(self.simulation.now, name, work_s))
            self.asked += 1

    @rule(seconds=st.sampled_from([0.01, 0.2, 1.0, 5.0, 20.0]))
    def pass_time(self, seconds):
        self.simulation.advance(self.simulation.now + seconds)

    @rule(name=st.sampled_from(NAMES))
    def pin(self, name):
        pinned = name not in self.pinned
        self.pinned ^= {name}
        self.simulation.keep(name, pinned)

    @precondition(lambda self: self.simulation.holdings())
    @rule(data=st.data())
    def crash(self, data):
        self.simulation.crash(data.draw(st.sampled_from([holding.key for holding in self.simulation.holdings()])))

    @precondition(lambda self: any(holding.phase is Phase.FALLING for holding in self.simulation.holdings()))
    @rule(data=st.data())
    def fail_to_sleep(self, data):
        falling = [holding.key for holding in self.simulation.holdings() if holding.phase is Phase.FALLING]
        self.simulation.fail_to_sleep(data.draw(st.sampled_from(falling)))

    @rule(gib=st.integers(0, 3))
    def lend(self, gib):
        held = sum(holding.charge_bytes for holding in self.simulation.holdings())
        if held + gib * GIB <= CARD * GIB:
            self.foreign = gib * GIB
            self.simulation.lend("cuda:0", self.foreign)

    # ---- what always holds

    @invariant()
    def never_more_than_there_is(self):
        """I1, I3, I7: sums over the live set, whatever crashed meanwhile."""
        holdings = self.simulation.holdings()
        assert sum(holding.charge_bytes for holding in holdings) + self.foreign <= CARD * GIB
        assert sum(holding.memory_bytes for holding in holdings) <= self.devices[0].total_bytes
        for holding in holdings:
            if holding.phase is Phase.FALLING:
                assert holding.memory_bytes >= holding.ladder.asleep_host_bytes
        # Who slept and ends was no resident before, and is none on its way out.
        gone = {holding.key for holding in holdings if holding.phase is Phase.CLOSING} & self.ended_asleep
        ready = {holding.model for holding in holdings if holding.phase is not Phase.ASLEEP and holding.key not in gone}
        assert not self.bounds.max_resident or len(ready) <= self.bounds.max_resident

    @invariant()
    def nobody_waits_beyond_the_bound(self):
        assert self.simulation.report.longest_wait_s <= self.bounds.max_wait_s + 1e-6
        assert all(need.since + self.bounds.max_wait_s + 1e-6 >= self.simulation.now for need in self.simulation.needs())

    def teardown(self):
        """Everybody gets exactly one answer, and everything that was held is accounted for by who is there."""
        if not hasattr(self, "simulation"):
            return
        self.simulation.advance(float("inf"))
        report = self.simulation.report
        assert len(report.answered) + report.refused.total() == self.asked
        assert not self.simulation.needs()
        assert all(holding.phase in READY or holding.phase is Phase.ASLEEP for holding in self.simulation.holdings())


TestBroker = Broker.TestCase
TestBroker.settings = settings(max_examples=count(40, long=1000), stateful_step_count=50)


def test_what_the_machine_asserts_is_not_true_of_just_any_plan():
    """It notices who gives away what isn't there, who evicts the unserved, and who never drains."""
    bounds, room = Bounds(max_wait_s=10.0), [DeviceRoom(CPU, 64 * GIB), DeviceRoom("cuda:0", CARD * GIB)]
    models = [SimulatedModel(name, 5 * GIB, 0, Ladder(start_s=0.5), concurrency=1) for name in NAMES]

    def greedy(needs, holdings, devices, *, bounds, now):
        return plan(needs, [], devices, bounds=bounds, now=now)

    simulation = Simulation(models, room, bounds=bounds, choose=greedy)
    simulation.ask(Asked(0.0, "m0", 1.0))
    with pytest.raises(OverCommitted):
        simulation.ask(Asked(0.0, "m1", 1.0))

    def lazy(needs, holdings, devices, *, bounds, now):
        made = plan(needs, holdings, devices, bounds=bounds, now=now)
        return Plan(made.grants, (), (), made.waits, made.never)

    simulation = Simulation(models, room, bounds=bounds, choose=lazy)
    for number in itertools.count():
        simulation.ask(Asked(simulation.now, "m0" if number else "m1", 1.0))
        simulation.advance(simulation.now + 0.5)
        if simulation.now > 12.0:
            break
    assert simulation.report.refused["bound"]
