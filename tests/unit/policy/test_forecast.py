"""When who waits will be ready, and what is said to whom it would take too long."""

# Instants and names are plain numbers and strings here.
# mypy: disable-error-code="arg-type"

from dataclasses import replace

import pytest
from hypothesis import given

from fornada.core.policy.admission import Standing, admit
from fornada.core.policy.forecast import forecast
from fornada.core.policy.ladder import Ladder
from fornada.core.policy.memory import CPU, Bounds, DeviceRoom, Holding, Need, Phase
from tests.unit.policy.test_placement import worlds

GIB = 1024**3
DEVICES = [DeviceRoom(CPU, 64 * GIB), DeviceRoom("cuda:0", 8 * GIB)]
STEPS = Ladder(start_s=5.0, stop_s=1.0)


def holding(key, gib=8, *, phase=Phase.IDLE, work_left_s=0.0, ladder=STEPS, kept=False, served=True, oldest_waiting=None):
    return Holding(
        key, key, "cuda:0", gib * GIB, phase, 0.0, oldest_waiting, served, kept, ladder=ladder, rate=1.0, work_left_s=work_left_s
    )


def need(key, gib=8, *, since=0.0, in_s=5.0, work_s=0.0):
    return Need(key, key, "cuda", gib * GIB, 0, since, in_s=in_s, ladder=STEPS, work_s=work_s)


def ready_in_s(needs, held=(), *, devices=DEVICES, max_wait_s=60.0, now=0.0):
    return forecast(needs, held, devices, bounds=Bounds(max_wait_s=max_wait_s), now=now)


def test_where_there_is_room_it_takes_the_start():
    assert ready_in_s([need("a")]) == {"a": 5.0}


def test_an_idle_victim_adds_its_way_out():
    assert ready_in_s([need("a")], [holding("x")]) == {"a": 6.0}
    assert ready_in_s([need("a")], [holding("x", phase=Phase.CLOSING, work_left_s=0.4)]) == {"a": 5.4}
    sleeper = Ladder(sleeps=True, start_s=50.0, sleep_s=0.25, wake_s=0.25)
    assert ready_in_s([need("a", in_s=0.25)], [holding("x", ladder=sleeper)]) == {"a": 0.5}


def test_one_at_work_is_waited_for_until_it_rests_or_is_drained():
    assert ready_in_s([need("a")], [holding("x", phase=Phase.BUSY, work_left_s=2.0)]) == {"a": 8.0}
    # It has more to do, and is drained after half the bound; then it ends what it works on.
    busy = replace(holding("x", phase=Phase.BUSY, work_left_s=2.0), queue_s=100.0)
    assert ready_in_s([need("a")], [busy]) == {"a": 30.0 + 2.0 + 1.0 + 5.0}
    # Drained at once it still has to end what it works on.
    assert ready_in_s([need("a", since=-40.0)], [holding("x", phase=Phase.BUSY, work_left_s=20.0)]) == {"a": 26.0}


def test_each_waits_for_the_older_ones_and_for_their_work():
    wishes = [need("a", since=0.0, work_s=2.0), need("b", since=1.0, work_s=2.0), need("c", since=2.0)]
    # a: 5 s to start. b: a has worked for 2 s, leaves within 1 s, b starts within 5 s. c the same again.
    assert ready_in_s(wishes, now=3.0) == {"a": 5.0, "b": 13.0, "c": 21.0}


def test_a_small_one_beside_a_large_one_waits_for_nobody():
    assert ready_in_s([need("a", 6), need("b", 2, since=1.0, in_s=1.0)], now=1.0) == {"a": 5.0, "b": 1.0}


def test_what_nobody_can_tell_is_left_out():
    assert ready_in_s([need("a")], [holding("x", kept=True)]) == {}
    assert ready_in_s([need("a", 9)]) == {}


def test_who_would_wait_beyond_the_bound_is_refused_with_the_reason_and_when_to_come_again():
    waits_s = ready_in_s([need(f"m{n}", since=n, work_s=10.0) for n in range(6)], now=6.0)["m5"]
    standing = Standing("m5", 0, 0, 64, ())
    refusal = admit(standing, reject_if_busy=False, max_wait_s=60.0, room_s=waits_s)
    assert waits_s == pytest.approx(5 * 16.0 + 5.0)
    assert refusal is not None
    assert refusal.message == "m5 isn't ready, and would be in about 85 s, after older wishes for memory; the bound is 60 s"
    assert refusal.retry_after_s == pytest.approx(25.0)
    assert admit(standing, reject_if_busy=False, max_wait_s=90.0, room_s=waits_s) is None


def test_a_model_that_is_ready_is_not_asked_about_memory():
    assert admit(Standing("a", 4, 2, 64, ()), reject_if_busy=False, max_wait_s=60.0, room_s=0.0) is None


@given(worlds())
def test_a_forecast_ends_and_is_about_those_who_wait(world):
    needs, held, devices, limit = world
    found = forecast(needs, held, devices, bounds=Bounds(limit), now=20.0)
    assert found.keys() <= {wish.key for wish in needs}
    assert all(0.0 <= seconds < float("inf") for seconds in found.values())


def test_where_hundreds_wait_the_last_are_told_how_far_it_was_thought_through():
    """Thinking it through to the end took seconds for each request, in which nobody was answered anything."""
    wishes = [need(f"n{number:03}", since=number / 1000, work_s=2.0) for number in range(600)]
    foretold = ready_in_s(wishes, now=1.0)
    waits = [foretold[wish.key] for wish in wishes]
    assert waits[:3] == [5.0, 13.0, 21.0] and waits == sorted(waits)
    assert waits[2] < waits[-1] < 600 * 8.0 and waits[-1] == waits[-2], "less than they will wait"
