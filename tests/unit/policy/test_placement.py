"""Who takes memory next, and who goes for it."""

# Instants and names are plain numbers and strings here.
# mypy: disable-error-code="arg-type"

from dataclasses import replace

import hypothesis.strategies as st
from hypothesis import given

from fornada.core.policy.memory import CPU, Bounds, DeviceRoom, Holding, Need, Phase
from fornada.core.policy.placement import LOOKS_AHEAD, Grant
from fornada.core.policy.placement import plan as plan_of

GIB = 1024**3
HOST = DeviceRoom(CPU, 16 * GIB)
CARD = DeviceRoom("cuda:0", 8 * GIB)


def holding(key, *, model=None, device=CPU, gib=0, phase=Phase.IDLE, last_used=0.0, oldest_waiting=None, served=True, kept=False):
    return Holding(key, model or key, device, gib * GIB, phase, last_used, oldest_waiting, served, kept)


def need(key, *, model=None, device="auto", gib=0, memory_gib=0, since=0.0):
    return Need(key, model or key, device, gib * GIB, memory_gib * GIB, since)


def plan(needs, holdings, devices, *, max_resident, now=99.0, max_wait_s=60.0):
    return plan_of(needs, holdings, devices, bounds=Bounds(max_resident, max_wait_s), now=now)


def test_where_there_is_room_it_is_taken_at_once():
    made = plan([need("a"), need("b")], [], [HOST], max_resident=0)
    assert made.grants == (Grant("a", CPU), Grant("b", CPU))


def test_auto_means_an_accelerator_for_who_declares_device_memory_and_the_cpu_else():
    made = plan([need("a", gib=1), need("b")], [], [HOST, CARD], max_resident=0)
    assert made.grants == (Grant("a", "cuda:0"), Grant("b", CPU))
    assert plan([need("a", gib=1)], [], [HOST], max_resident=0).grants == (Grant("a", CPU),)


def test_who_asks_for_a_device_that_is_not_there_never_fits():
    made = plan([need("a", device="cuda:3"), need("b", device="cuda")], [], [HOST], max_resident=0)
    assert made.never == {
        "a": "asks for the device 'cuda:3'; this node has: cpu",
        "b": "asks for the device 'cuda'; this node has: cpu",
    }


def test_who_needs_more_than_there_is_in_all_never_fits_and_is_told_both_numbers():
    made = plan([need("a", gib=9), need("b", memory_gib=17)], [], [HOST, CARD], max_resident=0)
    assert made.never == {
        "a": "needs 9 GiB of device memory, the largest such device has 8 GiB",
        "b": "needs 17 GiB of host memory, this node has 16 GiB for models",
    }


def test_host_memory_counts_wherever_a_model_runs():
    held = [Holding("a", "a", "cuda:0", GIB, Phase.IDLE, 1.0, None, True, False, memory_bytes=12 * GIB)]
    made = plan([need("b", memory_gib=4), need("c", device="cuda", gib=1, memory_gib=4)], [], [HOST, CARD], max_resident=0)
    assert made.grants == (Grant("b", CPU), Grant("c", "cuda:0"))
    made = plan([need("b", memory_gib=5, since=5.0)], held, [HOST, CARD], max_resident=0)
    assert (made.grants, made.evict) == ((), ("a",))
    assert made.waits == {"b": "cpu has 4 GiB free of 5 GiB needed, 1 GiB are missing; waits for the end of a"}


def test_a_younger_model_doesn_t_take_host_memory_that_an_older_one_waits_for():
    held = [Holding("busy", "busy", CPU, 0, Phase.COMING, 1.0, None, True, False, memory_bytes=10 * GIB)]
    made = plan([need("large", memory_gib=8, since=1.0), need("small", memory_gib=1, since=2.0)], held, [HOST], max_resident=0)
    assert made.grants == ()


def test_a_fenced_device_takes_nobody():
    made = plan([need("a", gib=1)], [], [HOST, replace(CARD, fenced=True)], max_resident=0)
    assert (made.grants, made.waits) == ((), {"a": "cuda:0: fenced after a fault"})
    second = DeviceRoom("cuda:1", 8 * GIB)
    assert plan([need("a", gib=1)], [], [HOST, replace(CARD, fenced=True), second], max_resident=0).grants == (Grant("a", "cuda:1"),)


def test_foreign_memory_sends_models_to_the_other_device():
    first = replace(CARD, foreign_bytes=6 * GIB)
    second = DeviceRoom("cuda:1", 8 * GIB)
    made = plan([need("a", gib=3), need("b", gib=3)], [], [HOST, first, second], max_resident=0)
    assert made.grants == (Grant("a", "cuda:1"), Grant("b", "cuda:1"))


def test_the_idle_model_that_was_used_least_recently_goes():
    held = [holding("old", last_used=1.0), holding("new", last_used=2.0), holding("busy", phase=Phase.BUSY, last_used=0.5)]
    made = plan([need("a", since=5.0)], held, [HOST], max_resident=3)
    assert (made.evict, made.waits) == (("old",), {"a": "3 of 3 resident models (max_resident); waits for the end of old"})


def test_where_no_idle_model_suffices_the_busy_one_that_was_used_least_recently_is_drained():
    held = [holding("a", phase=Phase.BUSY, last_used=1.0), holding("b", phase=Phase.BUSY, last_used=2.0)]
    assert plan([need("c", since=5.0)], held, [HOST], max_resident=2).evict == ("a",)


def test_no_more_go_than_must():
    held = [holding(f"m{number}", device="cuda:0", gib=1, last_used=float(number)) for number in range(8)]
    assert plan([need("a", gib=1, since=99.0)], held, [HOST, CARD], max_resident=0).evict == ("m0",)
    large = [holding("small", device="cuda:0", gib=1, last_used=1.0), holding("large", device="cuda:0", gib=6, last_used=2.0)]
    assert plan([need("a", gib=6, since=99.0)], large, [HOST, CARD], max_resident=0).evict == ("large",)


def test_a_model_that_was_just_brought_in_serves_before_it_may_go():
    fresh = holding("fresh", phase=Phase.BUSY, served=False)
    made = plan([need("a", since=5.0)], [fresh], [HOST], max_resident=1)
    assert (made.evict, made.grants) == ((), ())
    assert plan([need("a", since=5.0)], [replace(fresh, served=True)], [HOST], max_resident=1).evict == ("fresh",)


def test_a_model_whose_caller_left_before_it_was_ready_may_go():
    assert plan([need("a")], [holding("b", served=False)], [HOST], max_resident=1).evict == ("b",)


def test_nobody_goes_for_a_wish_that_is_younger_than_its_own_oldest_request():
    held = [holding("a", phase=Phase.BUSY, oldest_waiting=1.0)]
    assert plan([need("b", since=2.0)], held, [HOST], max_resident=1).evict == ()
    assert plan([need("b", since=0.5)], held, [HOST], max_resident=1).evict == ("a",)


def test_pinned_models_and_those_that_come_up_stay():
    held = [holding("pinned", kept=True), holding("coming", phase=Phase.COMING)]
    made = plan([need("a", since=5.0)], held, [HOST], max_resident=2)
    assert (made.evict, made.grants) == ((), ())
    assert made.waits == {"a": "2 of 2 resident models (max_resident)"}


def test_while_one_is_going_already_no_other_is_chosen():
    held = [holding("going", phase=Phase.CLOSING), holding("idle")]
    assert plan([need("a", since=5.0)], held, [HOST], max_resident=2).evict == ()


def test_two_versions_of_a_model_count_as_one_resident_model():
    held = [holding("a:1", model="a", phase=Phase.BUSY)]
    assert plan([need("a:2", model="a", since=5.0)], held, [HOST], max_resident=1).grants == (Grant("a:2", CPU),)


def test_two_versions_of_a_model_that_both_wait_take_one_place_between_them():
    held = [holding("busy", phase=Phase.COMING)]
    wishes = [need("a:1", model="a", since=1.0), need("a:2", model="a", since=2.0)]
    made = plan(wishes, held, [HOST], max_resident=1)
    assert (made.grants, set(made.waits)) == ((), {"a:1", "a:2"})
    assert plan(wishes, [], [HOST], max_resident=1).grants == (Grant("a:1", CPU), Grant("a:2", CPU))


def test_a_younger_wish_passes_an_older_one_only_where_it_takes_nothing_from_it():
    held = [holding("busy", device="cuda:0", gib=5, phase=Phase.COMING)]
    wishes = [need("large", gib=6, since=1.0), need("small", gib=2, since=2.0), need("host", since=3.0)]
    made = plan(wishes, held, [HOST, CARD], max_resident=0)
    assert made.grants == (Grant("host", CPU),)
    assert set(made.waits) == {"large", "small"}


def test_a_wish_that_pinned_models_shut_out_keeps_nobody_else_out():
    held = [holding("pinned", device="cuda:0", gib=5, kept=True), holding("idle", device="cuda:0", gib=2)]
    made = plan([need("large", gib=4, since=1.0), need("small", gib=1, since=2.0)], held, [HOST, CARD], max_resident=0)
    assert made.grants == (Grant("small", "cuda:0"),) and not made.evict
    assert made.waits["large"].endswith("3 GiB are missing; pinned is kept loaded")


def test_who_is_pinned_and_leaves_all_the_same_is_waited_for():
    held = [holding("pinned", device="cuda:0", gib=5, kept=True, phase=Phase.CLOSING)]
    made = plan([need("large", gib=4, since=1.0), need("small", gib=5, since=2.0)], held, [HOST, CARD], max_resident=0)
    assert not made.grants and made.waits["large"].endswith("waits for the end of pinned")


def test_a_wish_that_other_programs_shut_out_keeps_nobody_else_out_and_nobody_goes_for_it():
    host = DeviceRoom(CPU, 16 * GIB, foreign_bytes=2 * GIB)
    made = plan([need("large", memory_gib=16, since=1.0), need("small", memory_gib=1, since=2.0)], [], [host], max_resident=0)
    assert made.grants == (Grant("small", CPU),)
    assert made.waits["large"].endswith("2 GiB are missing; other programs hold too much")
    card = DeviceRoom("cuda:0", 8 * GIB, foreign_bytes=3 * GIB)
    held = [holding("idle", device="cuda:0", gib=3), holding("elsewhere", device="cuda:1", gib=8)]
    made = plan([need("large", gib=6, since=1.0)], held, [HOST, card], max_resident=0)
    assert not made.evict, "its going would help nobody"
    made = plan([need("large", gib=6, since=1.0)], held, [HOST, card, DeviceRoom("cuda:1", 8 * GIB)], max_resident=0)
    assert made.evict == ("elsewhere",)


def test_a_wish_for_a_place_that_pinned_models_hold_by_count_keeps_nobody_out():
    held = [holding("pinned", kept=True), holding("sleeper", phase=Phase.ASLEEP, kept=True)]
    waking = need("sleeper", since=2.0)
    made = plan([need("a", since=1.0), waking], held, [HOST], max_resident=1)
    assert made.waits == {
        "a": "1 of 1 resident models (max_resident); pinned is kept loaded",
        "sleeper": "1 of 1 resident models (max_resident); pinned is kept loaded",
    }
    two = plan([need("a", since=1.0)], [*held, holding("idle")], [HOST], max_resident=2)
    assert two.evict == ("idle",)


def test_victims_are_looked_for_for_the_oldest_of_many_and_the_others_keep_their_place():
    card = DeviceRoom("cuda:0", 40 * GIB)
    held = [holding(f"h{number:02}", device="cuda:0", gib=2, last_used=number) for number in range(20)]
    many = [need(f"n{number:02}", gib=2, since=float(number)) for number in range(LOOKS_AHEAD + 4)]
    made = plan([*many, need("last", gib=1, since=90.0)], held, [HOST, card], max_resident=0)
    assert made.evict == tuple(f"h{number:02}" for number in range(LOOKS_AHEAD)) and not made.grants
    gone = plan([*many, need("last", gib=1, since=90.0)], held[LOOKS_AHEAD + 2 :], [HOST, card], max_resident=0)
    assert [grant.key for grant in gone.grants] == [f"n{number:02}" for number in range(LOOKS_AHEAD + 2)], (
        "the younger small one passes nobody"
    )
    elsewhere = plan([*many, need("on the cpu", since=90.0)], held, [HOST, card], max_resident=0)
    assert elsewhere.grants == (Grant("on the cpu", CPU),)


def test_memory_that_lingers_after_an_end_is_waited_for_and_nobody_goes_for_it():
    made = plan([need("a", gib=6)], [holding("b", device="cuda:0", gib=2)], [HOST, replace(CARD, lingering_bytes=5 * GIB)], max_resident=0)
    assert (made.grants, made.evict) == ((), ())
    assert made.waits == {"a": "cuda:0 has 1 GiB free of 6 GiB needed, 5 GiB are missing; 5 GiB of ended processes are on their way back"}


@st.composite
def worlds(draw):
    devices = [HOST, CARD, DeviceRoom("cuda:1", 4 * GIB, foreign_bytes=draw(st.integers(0, 2)) * GIB, fenced=draw(st.booleans()))]
    free = {device.id: (device.total_bytes - device.foreign_bytes) // GIB for device in devices}
    held = []
    for number in range(draw(st.integers(0, 6))):
        device = draw(st.sampled_from([CPU, "cuda:0", "cuda:1"]))
        gib = draw(st.integers(0, free[device])) if device != CPU else 0
        free[device] -= gib
        held.append(
            holding(
                f"h{number}",
                model=f"m{draw(st.integers(0, 6))}",
                device=device,
                gib=gib,
                phase=draw(st.sampled_from(Phase)),
                last_used=draw(st.floats(0, 10)),
                oldest_waiting=draw(st.none() | st.floats(0, 10)),
                served=draw(st.booleans()),
                kept=draw(st.booleans()),
            )
        )
    needs = [
        need(
            f"n{number}",
            model=f"m{draw(st.integers(0, 9))}",
            device=draw(st.sampled_from(["auto", "cpu", "cuda", "cuda:0", "cuda:1", "cuda:2"])),
            gib=draw(st.integers(0, 9)),
            since=draw(st.floats(0, 10)),
        )
        for number in range(draw(st.integers(0, 6)))
    ]
    limit = draw(st.integers(0, 6))
    return needs, held, devices, limit if limit == 0 else max(limit, len({holding.model for holding in held}))


@given(worlds())
def test_a_plan_never_gives_away_more_than_there_is(world):
    needs, held, devices, limit = world
    made = plan(needs, held, devices, max_resident=limit)
    by_key = {wish.key: wish for wish in needs}
    for device in devices:
        taken = sum(by_key[grant.key].device_bytes for grant in made.grants if grant.device == device.id)
        used = sum(holding.charge_bytes for holding in held if holding.device == device.id)
        assert device.id == CPU or taken == 0 or taken + used + device.foreign_bytes <= device.total_bytes
        assert not (device.fenced and any(grant.device == device.id for grant in made.grants))
    ready = {holding.model for holding in held if holding.phase is not Phase.ASLEEP}
    models = ready | {by_key[grant.key].model for grant in made.grants}
    assert limit == 0 or len(models) <= limit


@given(worlds())
def test_everybody_who_wants_in_gets_exactly_one_answer(world):
    needs, held, devices, limit = world
    made = plan(needs, held, devices, max_resident=limit)
    answers = [grant.key for grant in made.grants] + list(made.waits) + list(made.never)
    assert sorted(answers) == sorted(wish.key for wish in needs)


@given(worlds())
def test_nobody_goes_who_is_kept_coming_or_going(world):
    needs, held, devices, limit = world
    made = plan(needs, held, devices, max_resident=limit)
    by_key = {holding.key: holding for holding in held}
    assert len(set(made.evict)) == len(made.evict)
    for key in made.evict:
        assert not by_key[key].kept
        assert by_key[key].phase in (Phase.IDLE, Phase.BUSY, Phase.ASLEEP)


@given(worlds(), st.integers(0, 6))
def test_what_older_wishes_get_does_not_depend_on_younger_ones(world, count):
    needs, held, devices, limit = world
    older = sorted(needs, key=lambda wish: (wish.since, wish.key))[:count]
    alone = plan(older, held, devices, max_resident=limit)
    together = plan(needs, held, devices, max_resident=limit)
    assert together.grants[: len(alone.grants)] == alone.grants
    assert together.evict[: len(alone.evict)] == alone.evict


@given(worlds())
def test_whom_nothing_here_could_let_in_takes_nothing_from_anybody(world):
    needs, held, devices, limit = world
    made = plan(needs, held, devices, max_resident=limit)
    shut_out = [wish for wish in needs if any(words in made.waits.get(wish.key, "") for words in ("kept loaded", "other programs"))]
    others = [wish for wish in needs if wish not in shut_out]
    without = plan(others, held, devices, max_resident=limit)
    assert (without.grants, without.evict, without.sleep) == (made.grants, made.evict, made.sleep)
    for wish in shut_out:
        staying = [h for h in held if h.kept and h.phase not in (Phase.CLOSING, Phase.FALLING)]
        assert wish.key not in [grant.key for grant in plan([wish], staying, devices, max_resident=limit).grants], (
            "it fits beside those who stay"
        )


@given(worlds())
def test_no_victim_of_a_single_wish_is_superfluous(world):
    needs, held, devices, limit = world
    for wish in needs:
        made = plan([wish], held, devices, max_resident=limit)
        for spared in made.evict:
            going = [replace(h, phase=Phase.CLOSING) if h.key in made.evict and h.key != spared else h for h in held]
            kept = [replace(h, kept=True) if h.key == spared else h for h in going]
            again = plan([wish], kept, devices, max_resident=limit)
            assert again.evict or not again.grants


@given(worlds())
def test_two_models_with_steady_traffic_take_turns(world):
    """Whatever else is there: with one place, each of two models that always have requests waiting is served in turn."""
    _, _, devices, _ = world
    resident, waiting, served = "a", "b", []
    clock = 0.0
    for _ in range(6):
        clock += 1.0
        held = [holding(resident, phase=Phase.BUSY, last_used=clock, oldest_waiting=clock, served=True)]
        made = plan([need(waiting, since=clock - 0.5)], held, devices, max_resident=1)
        assert made.evict == (resident,)
        served.append(resident)
        resident, waiting = waiting, resident
    assert served == ["a", "b"] * 3


def test_a_model_s_reasons_name_others_only_to_those_who_may_know_of_them():
    held = [
        replace(holding("theirs", device="cuda:0", gib=3, kept=True), known_to="other"),
        replace(holding("ours", device="cuda:0", gib=3, kept=True), known_to="us"),
        holding("everybody's", device="cuda:0", gib=2, kept=True),
    ]

    def told(known_to, there=held):
        return plan([replace(need("a", gib=8, since=98.5), in_s=10.0, known_to=known_to)], there, [HOST, CARD], max_resident=0).waits["a"]

    assert told("us").endswith("everybody's, ours, another model are kept loaded")
    assert told("").endswith("everybody's, 2 other models are kept loaded"), "everybody hears why it waits"
    assert told("us", [replace(held[0], charge_bytes=GIB)]).endswith("another model is kept loaded")
    for phase, said in (
        (Phase.BUSY, "; waits for another model to rest, which is drained in "),
        (Phase.CLOSING, "; waits for the end of another model"),
        (Phase.FALLING, "; waits for another model to fall asleep"),
    ):
        one = replace(held[0], kept=False, phase=phase, last_used=98.0)
        assert said in told("us", [one]) and "theirs" not in told("us", [one])
        assert said.replace("another model", "theirs") in told("other", [one])
