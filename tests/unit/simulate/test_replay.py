"""Records of a node's choices: kept without loss, and shown again."""

from dataclasses import replace

import msgspec
import pytest

from fornada.core.names import NEVER, Instant, ModelName
from fornada.core.policy.ladder import Ladder
from fornada.core.policy.memory import CPU, Bounds, DeviceRoom, Holding, Need, Phase
from fornada.core.policy.placement import Plan, plan
from fornada.core.policy.record import Came, Entry, Gone, Known, Learned, Moment, Ready, Slept, line, moment, read
from fornada.simulate.replay import Replay, choices, different_plans

GIB = 1024**3
DEVICES = [DeviceRoom(CPU, 64 * GIB), DeviceRoom("cuda:0", 8 * GIB)]
A, B = ModelName("@test/a"), ModelName("@test/b")
LADDER = Ladder(start_s=0.2, stop_s=0.01)


def need(name: ModelName, since: float) -> Need:
    return Need(f"{name}@1", name, "cuda", 5 * GIB, 0, Instant(since))


def holding(name: ModelName, phase: Phase = Phase.IDLE) -> Holding:
    return Holding(f"{name}@1", name, "cuda:0", 5 * GIB, phase, Instant(1.0), None, served=True, kept=False, rate=0.1, ladder=LADDER)


def made(needs: list[Need], holdings: list[Holding], at: float) -> Moment:
    bounds, now = Bounds(), Instant(at)
    return moment(needs, holdings, DEVICES, bounds=bounds, now=now, made=plan(needs, holdings, DEVICES, bounds=bounds, now=now))


FIRST, EVICTS = made([need(A, 1.0)], [], 1.0), made([need(B, 2.0)], [holding(A)], 2.0)
RECORD: list[Entry] = [
    Known(Instant(0.0), A, 100),
    Known(Instant(0.0), B, 100),
    Came(Instant(1.0), A),
    FIRST,
    Ready(Instant(1.2), A, LADDER),
    Came(Instant(2.0), B),
    EVICTS,
    made([need(B, 2.0)], [holding(A, Phase.CLOSING)], 2.005),
    Gone(Instant(2.01), A, LADDER),
    made([need(B, 2.0)], [], 2.01),
    Ready(Instant(2.21), B, LADDER),
]


def test_a_record_that_was_written_is_read_as_it_was():
    busy = made([need(B, 2.0)], [holding(A, Phase.BUSY)], 2.0)
    assert read(line(entry) for entry in [*RECORD, busy]) == [*RECORD, busy]
    assert busy.plan.again_at not in (NEVER, 0.0)
    assert FIRST.plan.again_at == NEVER
    with pytest.raises(msgspec.DecodeError):
        read([line(RECORD[0])[:-3]])


def test_a_plan_that_comes_out_otherwise_is_found():
    assert different_plans(RECORD) == []
    other = msgspec.structs.replace(EVICTS, made=Plan())
    assert different_plans([*RECORD[:6], other]) == [other]


def test_the_simulator_chooses_what_the_node_chose():
    chosen = [(choice.what, choice.key) for choice in choices(RECORD)]
    assert chosen == [("start", A), ("evict", A), ("start", B)]
    assert [(choice.what, choice.key) for choice in Replay(RECORD).choices()] == chosen


def test_what_cannot_be_replayed_is_refused():
    with pytest.raises(ValueError, match="no plan"):
        Replay(RECORD[:3])


SLEEPER = replace(LADDER, sleeps=True, sleep_s=0.02, wake_s=0.03, asleep_host_bytes=GIB)
ASLEEP = replace(SLEEPER, sleep_s=0.01)


def sleeper(name: ModelName, phase: Phase, *, ladder: Ladder = SLEEPER, charge_bytes: int = 5 * GIB) -> Holding:
    return replace(holding(name, phase), ladder=ladder, charge_bytes=charge_bytes)


def wants(name: ModelName, since: float, ladder: Ladder = LADDER) -> Need:
    return replace(need(name, since), ladder=ladder, in_s=ladder.wake_s if ladder.sleeps else 0.0)


SLEEPS: list[Entry] = [
    *RECORD[:5],
    Learned(Instant(1.2), A, SLEEPER),
    Came(Instant(2.0), B),
    made([wants(B, 2.0)], [sleeper(A, Phase.IDLE)], 2.0),
    Slept(Instant(2.01), A, ASLEEP),
    made([wants(B, 2.0)], [sleeper(A, Phase.ASLEEP, ladder=ASLEEP, charge_bytes=0)], 2.01),
    Ready(Instant(2.21), B, LADDER),
    Learned(Instant(2.21), B, SLEEPER),
    Came(Instant(3.0), A),
    made([wants(A, 3.0, ASLEEP)], [sleeper(A, Phase.ASLEEP, ladder=ASLEEP, charge_bytes=0), sleeper(B, Phase.IDLE)], 3.0),
    Slept(Instant(3.02), B, ASLEEP),
    made(
        [wants(A, 3.0, ASLEEP)],
        [sleeper(name, Phase.ASLEEP, ladder=ASLEEP, charge_bytes=0) for name in (A, B)],
        3.02,
    ),
    Ready(Instant(3.05), A, ASLEEP),
]


def test_models_that_sleep_are_shown_again_too():
    chosen = [(choice.what, choice.key) for choice in choices(SLEEPS)]
    assert chosen == [("start", A), ("sleep", A), ("start", B), ("sleep", B), ("wake", A)]
    replay = Replay(SLEEPS)
    assert [(choice.what, choice.key) for choice in replay.choices()] == chosen
    assert [round(answer.waited_s, 3) for answer in replay.report.answered] == [0.2, 0.21, 0.05]
    assert read(line(entry) for entry in SLEEPS) == SLEEPS
