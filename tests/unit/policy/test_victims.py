"""Who has to go, and how far down."""

# Instants and names are plain numbers and strings here.
# mypy: disable-error-code="arg-type"

from dataclasses import replace
from itertools import combinations

import hypothesis.strategies as st
from hypothesis import given

from fornada.core.policy.ladder import Ladder, Rung, loss, resting_rung
from fornada.core.policy.memory import CPU, Bounds, DeviceRoom, Holding, Need, Phase
from fornada.core.policy.placement import Grant, plan

GIB = 1024**3
HOST = DeviceRoom(CPU, 64 * GIB)
CARD = DeviceRoom("cuda:0", 8 * GIB)
SLEEPER = Ladder(start_s=10.0, sleeps=True, sleep_s=0.25, wake_s=0.25, asleep_host_bytes=2 * GIB)
STOPPER = Ladder(start_s=10.0)


def holding(key, gib=2, *, rate=0.0, last_used=0.0, phase=Phase.IDLE, ladder=STOPPER, device="cuda:0", host_gib=0, **more):
    charge_bytes = 0 if device == CPU else gib * GIB
    facts = {"oldest_waiting": None, "served": True, "kept": False, **more}
    return Holding(key, key, device, charge_bytes, phase, last_used, rate=rate, ladder=ladder, memory_bytes=host_gib * GIB, **facts)


def need(key="new", gib=2, *, since=50.0, device="cuda", host_gib=0, **more):
    return Need(key, key, device, gib * GIB if device != CPU else 0, host_gib * GIB, since, **more)


def made(needs, held, *, devices=(HOST, CARD), max_resident=0, max_wait_s=60.0, now=100.0):
    return plan(needs, held, devices, bounds=Bounds(max_resident, max_wait_s), now=now)


# ---- whom


def test_the_one_that_is_expected_back_latest_goes_whenever_it_was_used():
    held = [holding("often", rate=1.0, last_used=1.0), *(holding(f"m{n}", rate=0.1 + n, last_used=90.0) for n in range(3))]
    assert made([need()], held).evict == ("m0",)


def test_of_ten_that_hold_a_tenth_each_exactly_one_goes_and_it_is_the_one_of_least_value():
    card = DeviceRoom("cuda:0", 10 * GIB)
    held = [holding(f"m{n}", 1, rate=1.0 + (n - 6) ** 2, last_used=float(n)) for n in range(10)]
    assert made([need(gib=1)], held, devices=[HOST, card]).evict == ("m6",)


def test_what_is_slow_to_come_back_is_worth_more_than_what_is_quick():
    held = [holding("slow", 4, rate=1.0, ladder=Ladder(start_s=30.0)), holding("quick", 4, rate=2.0, ladder=Ladder(start_s=1.0))]
    assert made([need()], held).evict == ("quick",)


def test_without_rates_the_one_used_least_recently_goes():
    held = [holding(f"m{n}", last_used=float(n)) for n in (3, 1, 2, 4)]
    assert made([need()], held).evict == ("m1",)


def test_one_large_one_goes_where_many_small_ones_together_are_worth_more():
    small = [holding(f"s{n}", 1, rate=0.9) for n in range(4)]
    assert made([need(gib=4)], [*small, holding("large", 4, rate=3.0)]).evict == ("large",)
    assert set(made([need(gib=4)], [*small, holding("large", 4, rate=4.0)]).evict) == {"s0", "s1", "s2", "s3"}


def test_two_of_little_value_go_where_one_would_give_more_for_its_value_and_cost_more():
    card = DeviceRoom("cuda:0", 13 * GIB)
    held = [holding("a", 4, rate=0.1), holding("b", 3, rate=0.3), holding("c", 6, rate=0.5)]
    assert made([need(gib=6)], held, devices=[HOST, card]).evict == ("a", "b")


def test_a_large_one_does_not_go_where_a_small_one_of_less_value_would_do():
    held = [holding("large", 7, rate=1.5), holding("small", 1, rate=1.0)]
    assert made([need(gib=1)], held).evict == ("small",)


def test_the_device_whose_victims_are_worth_least_is_chosen():
    held = [holding("dear", 8, rate=5.0), holding("cheap", 8, rate=1.0, device="cuda:1")]
    assert made([need()], held, devices=[HOST, CARD, DeviceRoom("cuda:1", 8 * GIB)]).evict == ("cheap",)


def test_an_idle_one_of_any_value_goes_before_one_at_work():
    held = [holding("idle", 8, rate=5.0), holding("busy", 8, rate=0.1, device="cuda:1", phase=Phase.BUSY)]
    assert made([need()], held, devices=[HOST, CARD, DeviceRoom("cuda:1", 8 * GIB)]).evict == ("idle",)
    assert made([need(gib=4)], [holding("idle", 4, rate=5.0), holding("busy", 4, rate=0.1, phase=Phase.BUSY)]).evict == ("idle",)


# ---- how far down


def test_who_can_sleep_sleeps_and_who_cannot_is_stopped():
    plan_of = made([need(gib=8)], [holding("a", 4, ladder=SLEEPER), holding("b", 4)])
    assert (plan_of.sleep, plan_of.evict) == (("a",), ("b",))


def test_a_start_that_is_quicker_than_a_copy_is_preferred_to_sleep():
    zygote = replace(SLEEPER, start_s=0.02)
    assert resting_rung(zygote) is Rung.STOPPED
    assert made([need()], [holding("a", 8, ladder=zygote)]).evict == ("a",)
    slow_to_sleep = replace(SLEEPER, sleep_s=10.6, wake_s=2.2, start_s=50.0)
    assert resting_rung(slow_to_sleep) is Rung.ASLEEP


def test_where_the_host_has_no_room_for_who_would_sleep_it_is_stopped():
    assert made([need()], [holding("a", 8, ladder=SLEEPER)], devices=[DeviceRoom(CPU, GIB), CARD]).evict == ("a",)


def test_who_sleeps_and_is_worth_less_is_stopped_so_that_another_may_sleep():
    asleep = [holding("old", 0, phase=Phase.ASLEEP, ladder=SLEEPER, rate=0.01, host_gib=2)]
    ready = [holding("a", 8, ladder=SLEEPER, rate=1.0)]
    plan_of = made([need()], asleep + ready, devices=[DeviceRoom(CPU, 3 * GIB), CARD])
    assert (plan_of.sleep, plan_of.evict) == ((), ("old",))  # its bytes have to be back first
    going = [replace(asleep[0], phase=Phase.CLOSING)]
    assert made([need()], going + ready, devices=[DeviceRoom(CPU, 3 * GIB), CARD]) == replace(plan_of, evict=(), sakes={})
    assert made([need()], ready, devices=[DeviceRoom(CPU, 3 * GIB), CARD]).sleep == ("a",)
    dear = [replace(asleep[0], rate=5.0)]
    plan_of = made([need()], dear + ready, devices=[DeviceRoom(CPU, 3 * GIB), CARD])
    assert (plan_of.sleep, plan_of.evict) == ((), ("a",))


def test_two_who_fall_asleep_for_two_wishes_take_the_host_only_once():
    held = [holding("a", 4, ladder=SLEEPER, rate=1.0), holding("b", 4, ladder=SLEEPER, rate=2.0)]
    plan_of = made([need("x", 4, since=1.0), need("y", 4, since=2.0)], held, devices=[DeviceRoom(CPU, 3 * GIB), CARD])
    assert (plan_of.sleep, plan_of.evict) == (("a",), ("b",))


def test_two_do_not_both_begin_to_fall_asleep_where_the_host_has_room_for_one_and_the_rest_is_on_its_way():
    held = [holding("a", 4, ladder=SLEEPER, rate=1.0), holding("b", 4, ladder=SLEEPER, rate=2.0)]
    leaving = holding("old", 0, phase=Phase.CLOSING, ladder=SLEEPER, host_gib=2)
    wishes = [need("x", 4, since=1.0), need("y", 4, since=2.0)]
    plan_of = made(wishes, [*held, leaving], devices=[DeviceRoom(CPU, 4 * GIB), CARD])
    assert (plan_of.sleep, plan_of.evict) == (("a",), ())
    going = replace(held[0], phase=Phase.FALLING, memory_bytes=2 * GIB)
    assert made(wishes, [going, held[1]], devices=[DeviceRoom(CPU, 4 * GIB), CARD]).sleep == ("b",)


def test_who_wakes_up_as_slowly_as_it_starts_loses_nothing_by_a_stop_in_its_sleep():
    useless = holding("a", 0, phase=Phase.ASLEEP, ladder=replace(SLEEPER, start_s=0.3), rate=5.0, host_gib=2)
    useful = holding("b", 0, phase=Phase.ASLEEP, ladder=SLEEPER, rate=1.0, host_gib=2)
    assert made([need(device=CPU, host_gib=2)], [useless, useful], devices=[DeviceRoom(CPU, 4 * GIB), CARD]).evict == ("a",)


def test_what_stays_on_the_device_while_asleep_is_counted():
    floor = replace(SLEEPER, asleep_bytes=GIB)
    held = [holding("a", 4, ladder=floor, rate=1.0), holding("b", 4, ladder=floor, rate=2.0)]
    assert made([need(gib=3)], held).sleep == ("a",)
    assert made([need(gib=4)], held).sleep == ("a", "b")
    plan_of = made([need(gib=8)], held)
    assert (plan_of.sleep, set(plan_of.evict)) == ((), {"a", "b"})


def test_host_memory_is_a_measure_of_its_own():
    """Models on the cpu hold nothing else, and go for each other by value."""
    held = [holding(f"c{n}", device=CPU, host_gib=2, rate=1.0 + n) for n in range(2)]
    host = [DeviceRoom(CPU, 5 * GIB), CARD]
    plan_of = made([need(device=CPU, host_gib=2)], held, devices=host)
    assert (plan_of.grants, plan_of.evict) == ((), ("c0",))
    assert plan_of.waits["new"] == "cpu has 1 GiB free of 2 GiB needed, 1 GiB are missing; waits for the end of c0"
    assert made([need(device=CPU, host_gib=1)], held, devices=host).grants == (Grant("new", CPU),)
    asleep = [holding("s", 0, phase=Phase.ASLEEP, ladder=SLEEPER, rate=0.1, host_gib=2)]
    assert made([need(device=CPU, host_gib=2)], [*held, *asleep], devices=[DeviceRoom(CPU, 6 * GIB), CARD]).evict == ("s",)


def test_a_place_by_count_is_taken_by_those_who_are_ready_only():
    asleep = [holding(f"s{n}", 0, phase=Phase.ASLEEP, ladder=SLEEPER, host_gib=2) for n in range(5)]
    assert made([need(gib=1)], asleep, max_resident=1).grants == (Grant("new", "cuda:0"),)
    plan_of = made([need(gib=1)], [*asleep, holding("a", 1, ladder=SLEEPER)], max_resident=1)
    assert (plan_of.sleep, plan_of.evict) == (("a",), ())


# ---- waking up


def test_who_is_asleep_wakes_up_where_it_is_for_what_it_lacks():
    cards = [HOST, CARD, DeviceRoom("cuda:1", 80 * GIB)]
    own = replace(holding("a", 1, phase=Phase.ASLEEP, ladder=SLEEPER, host_gib=2), oldest_waiting=50.0)
    assert made([need("a", 4)], [own, holding("b", 4)], devices=cards).grants == (Grant("a", "cuda:0"),)
    assert made([need("a", 4)], [own, holding("b", 5)], devices=cards).evict == ("b",)


def test_who_is_to_be_stopped_in_its_sleep_is_not_woken_up_first():
    own = replace(holding("a", 0, phase=Phase.ASLEEP, ladder=SLEEPER, host_gib=2), oldest_waiting=50.0)
    wishes = [need("x", device=CPU, host_gib=2, since=1.0), need("a", 1, since=50.0)]
    plan_of = made(wishes, [own], devices=[DeviceRoom(CPU, 3 * GIB), CARD])
    assert (plan_of.grants, plan_of.evict) == ((), ("a",))
    assert made(wishes[1:], [own], devices=[DeviceRoom(CPU, 3 * GIB), CARD]).grants == (Grant("a", "cuda:0"),)


def test_who_is_falling_asleep_is_waited_for_and_nobody_else_goes():
    held = [holding("a", 6, phase=Phase.FALLING, ladder=SLEEPER, host_gib=2), holding("b", 2)]
    plan_of = made([need(gib=6)], held)
    assert (plan_of.grants, plan_of.evict, plan_of.sleep) == ((), (), ())
    assert plan_of.waits == {"new": "cuda:0 has 0 B free of 6 GiB needed, 6 GiB are missing; waits for a to fall asleep"}


# ---- when busy ones are drained


def busy(key="busy", gib=8, **more):
    return holding(key, gib, phase=Phase.BUSY, ladder=Ladder(start_s=10.0, stop_s=0.25), work_left_s=30.0, **more)


def test_one_at_work_is_drained_after_twenty_times_what_the_swap_takes():
    wish = need(in_s=0.25, since=50.0)
    early = made([wish], [busy()], now=59.9)
    assert (early.evict, early.again_at) == ((), 60.0)
    assert "waits for busy to rest, which is drained in 0.1 s" in early.waits["new"]
    assert made([wish], [busy()], now=60.0).evict == ("busy",)


def test_one_at_work_is_drained_after_half_the_bound_however_slow_the_swap():
    wish = need(in_s=500.0, since=50.0)
    assert made([wish], [busy()], now=79.9).evict == ()
    assert made([wish], [busy()], now=80.0).evict == ("busy",)
    assert made([wish], [busy()], now=54.9, max_wait_s=10.0).again_at == 55.0


def test_while_one_at_work_is_waited_for_idle_ones_stay_too():
    """They would lie empty meanwhile."""
    held = [busy(gib=6), holding("idle", 2)]
    wish = need(gib=8, in_s=0.3)
    assert made([wish], held, now=51.0).evict == ()
    assert set(made([wish], held, now=61.0).evict) == {"busy", "idle"}


def test_a_younger_wish_does_not_clear_the_way_for_an_older_one_that_waits_for_rest():
    held = [busy(gib=5), holding("x", 2, rate=1.0), holding("y", 1, rate=2.0)]
    wishes = [need("old", 5, in_s=9.0, since=50.0), need("young", 2, in_s=9.0, since=51.0)]
    assert made(wishes, held, now=52.0).evict == ("x",)


# ---- any world


SIZES = st.integers(1, 4)


@st.composite
def ready_ones(draw):
    return [
        holding(f"h{n}", draw(SIZES), rate=draw(st.sampled_from([0.1, 0.5, 1.0, 3.0])), last_used=float(n))
        for n in range(draw(st.integers(1, 6)))
    ]


@given(ready_ones(), SIZES)
def test_the_chosen_set_suffices_and_costs_at_most_twice_the_cheapest(held, gib):
    """The cheapest found by trying them all."""
    used = sum(one.charge_bytes for one in held)
    card = DeviceRoom("cuda:0", max(used, gib * GIB))
    missing = gib * GIB - (card.total_bytes - used)
    chosen = made([need(gib=gib)], held, devices=[HOST, card]).evict
    if missing <= 0:
        assert chosen == ()
        return

    def costs(some):
        return sum(loss(one.ladder, Rung.STOPPED, rate=one.rate) for one in some)

    sets = [some for size in range(len(held) + 1) for some in combinations(held, size) if sum(one.charge_bytes for one in some) >= missing]
    took = [one for one in held if one.key in chosen]
    assert sum(one.charge_bytes for one in took) >= missing
    assert costs(took) <= 2 * min(map(costs, sets)) + 1e-9


@given(ready_ones(), SIZES, st.integers(0, 12))
def test_the_host_is_never_promised_twice(held, gib, host_gib):
    sleepers = [replace(one, ladder=replace(SLEEPER, asleep_host_bytes=one.charge_bytes)) for one in held]
    card = DeviceRoom("cuda:0", max(sum(one.charge_bytes for one in held), gib * GIB))
    wishes = [need("x", gib, since=1.0), need("y", gib, since=2.0)]
    plan_of = made(wishes, sleepers, devices=[DeviceRoom(CPU, host_gib * GIB), card])
    assert sum(one.charge_bytes for one in sleepers if one.key in plan_of.sleep) <= host_gib * GIB
