"""What is expected of a model, and what may be brought up for it ahead of need."""

# Instants and names are plain numbers and strings here.
# mypy: disable-error-code="arg-type"

import random

import hypothesis.strategies as st
import pytest
from hypothesis import given

from fornada.core.policy.demand import BURST_S, HOUR_S, LATELY_S, Demand, likely, rate, seen
from fornada.core.policy.memory import CPU, Bounds, DeviceRoom, Holding, Need, Phase
from fornada.core.policy.placement import Grant
from fornada.core.policy.prefetch import LIKELY, SOON_S, prefetch

GIB = 1024**3
DEVICES = [DeviceRoom(CPU, 64 * GIB), DeviceRoom("cuda:0", 8 * GIB)]


def steady(requests_per_s, seconds, *, began=0.0, demand=None, hour=1, chance=None):
    chance = chance or random.Random(1)
    demand, at = demand or Demand(hour=hour), began
    while (at := at + chance.expovariate(requests_per_s)) < began + seconds:
        demand = seen(demand, 1, last=at, hour=hour)
    return demand


def test_steady_traffic_is_expected_to_go_on():
    demand = steady(2.0, 3600.0)
    expected = [rate(steady(2.0, 3600.0, chance=random.Random(seed)), now=3600.0, hour=1) for seed in range(20)]
    assert sum(expected) / 20 == pytest.approx(2.0, rel=0.15)
    assert rate(demand, now=3600.0 + 10 * LATELY_S, hour=1) < 0.001


def test_who_was_asked_more_is_expected_more_and_who_was_asked_long_ago_less():
    often, seldom = steady(1.0, 600.0), steady(0.1, 600.0)
    assert rate(often, now=600.0, hour=1) > rate(seldom, now=600.0, hour=1)
    once = seen(Demand(hour=1), 1, last=0.0, hour=1)
    ages = [rate(once, now=now, hour=1) for now in (0.0, 1.0, 10.0, 100.0)]
    assert ages == sorted(ages, reverse=True)
    assert ages[0] > ages[-1]


def test_who_was_asked_a_moment_ago_comes_before_whose_burst_is_over():
    """But not before one that is asked all the time."""
    begun = seen(Demand(hour=1), 1, last=100.0, hour=1)
    over = seen(Demand(hour=1), 5, last=100.0 - 5 * BURST_S, hour=1)
    always = steady(1.0, 100.0)
    assert rate(over, now=100.1, hour=1) < rate(begun, now=100.1, hour=1) < rate(always, now=100.1, hour=1)


def test_what_used_to_be_at_this_hour_tells_two_idle_models_apart():
    morning = Demand(hour=24)
    for day in range(1, 6):
        morning = seen(morning, 3600, last=day * 24 * HOUR_S + 8.5 * HOUR_S, hour=day * 24 + 8)
        morning = seen(morning, 0, last=day * 24 * HOUR_S + 9.5 * HOUR_S, hour=day * 24 + 9)
    now = 6 * 24 * HOUR_S + 8 * HOUR_S
    assert rate(morning, now=now, hour=6 * 24 + 8) > 0.1
    assert rate(morning, now=now + 4 * HOUR_S, hour=6 * 24 + 12) == pytest.approx(0.0, abs=1e-6)


def test_days_without_requests_are_forgotten_even_if_nobody_looked():
    once = seen(Demand(hour=24), 3600, last=0.0, hour=24)
    next_day = rate(seen(once, 0, last=24 * HOUR_S, hour=48), now=24 * HOUR_S, hour=48)
    month_later = rate(seen(once, 0, last=30 * 24 * HOUR_S, hour=24 * 31), now=30 * 24 * HOUR_S, hour=24 * 31)
    assert 0 < month_later < next_day / 100


@given(st.lists(st.tuples(st.floats(0.0, 500.0), st.integers(0, 100)), max_size=20), st.integers(0, 40))
def test_a_rate_is_never_negative_and_never_more_than_came(steps, hour):
    demand, now, came = Demand(hour=hour), 0.0, 0
    for passed_s, count in steps:
        now, came = now + passed_s, came + count
        demand = seen(demand, count, last=now, hour=hour + int(now // HOUR_S))
        assert 0.0 <= demand.just_now <= demand.lately + 1e-9 <= came + 1e-6
        assert 0.0 <= rate(demand, now=now, hour=hour + int(now // HOUR_S)) < float("inf")


@given(st.integers(1, 50), st.floats(0.1, 300.0))
def test_looking_seldom_comes_to_about_the_same_as_looking_at_each(count, seconds):
    each = Demand(hour=1)
    for number in range(count):
        each = seen(each, 1, last=seconds * (number + 1) / count, hour=1)
    at_once = seen(Demand(hour=1), count, last=seconds, hour=1)
    assert at_once.lately == pytest.approx(each.lately, rel=max(0.01, seconds / LATELY_S / count))


def test_likelihood_is_that_of_a_poisson_process():
    assert likely(0.0, within_s=300.0) == 0.0
    assert likely(1 / 300.0, within_s=300.0) == pytest.approx(0.632, abs=0.001)


# ---- bringing up ahead of need


def wish(key, gib=2, *, in_s=1.0):
    return Need(key, key, "cuda", gib * GIB, 0, 0.0, in_s=in_s)


def ahead(wishes, *, needs=(), held=(), max_resident=0):
    return prefetch(wishes, needs, held, DEVICES, bounds=Bounds(max_resident), now=10.0)


def held(key, gib, *, phase=Phase.IDLE):
    return Holding(key, key, "cuda:0", gib * GIB, phase, 0.0, None, True, False)


def test_the_one_that_saves_most_is_brought_up_into_free_room():
    wishes = [(wish("a", in_s=1.0), 1.0), (wish("c", in_s=5.0), 1.0), (wish("b", in_s=5.0), 0.01), (wish("d", in_s=2.0), 1.0)]
    assert ahead(wishes) == Grant("c", "cuda:0")
    assert ahead(wishes, held=[held("x", 6)]) == Grant("c", "cuda:0")
    assert ahead([(wish("large", 4, in_s=9.0), 1.0), *wishes], held=[held("x", 6)]) == Grant("c", "cuda:0")


def test_nobody_goes_for_what_nobody_has_asked_for():
    assert ahead([(wish("a"), 1.0)], held=[held("x", 7)]) is None
    assert ahead([(wish("a"), 1.0)], held=[held("x", 1)], max_resident=1) is None
    assert ahead([(wish("a"), 1.0)], held=[held("x", 7, phase=Phase.CLOSING)]) is None


def test_what_is_free_belongs_to_those_who_wait():
    assert ahead([(wish("a"), 1.0)], needs=[wish("large", 8)], held=[held("x", 2)]) is None


def test_while_somebody_comes_up_nothing_else_is_brought_up():
    assert ahead([(wish("a"), 1.0)], held=[held("x", 1, phase=Phase.COMING)]) is None


@given(st.lists(st.tuples(st.integers(0, 12), st.floats(0.0, 2.0), st.floats(0.0, 20.0)), max_size=12), st.integers(0, 8))
def test_whatever_is_brought_up_fits_beside_what_is_there(sizes, taken):
    wishes = [(wish(f"m{number}", gib, in_s=in_s), expected) for number, (gib, expected, in_s) in enumerate(sizes)]
    found = ahead(wishes, held=[held("x", taken)])
    able = {
        need.key: need.in_s * likely(expected, within_s=SOON_S)
        for need, expected in wishes
        if likely(expected, within_s=SOON_S) >= LIKELY and need.device_bytes <= (8 - taken) * GIB
    }
    assert (found is None) == (not able)
    if found is not None:
        assert able[found.key] == max(able.values())


def test_what_nobody_is_likely_to_want_stays_down():
    assert ahead([(wish("a"), 0.0)]) is None
    assert ahead([(wish("a"), 1 / 3600.0)]) is None
