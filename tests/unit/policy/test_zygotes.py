"""Which environments have a zygote, and how many spares."""

from hypothesis import given
from hypothesis import strategies as st

from fornada.core.names import Instant
from fornada.core.policy.zygotes import KEEP_S, MOST, RETRY_FIRST_S, RETRY_LONGEST_S, SPARE_BYTES, State, Terms, Use, plan, retry_at

NOW = Instant(100_000.0)
TERMS = Terms(zygotes=True, spares=1, spares_bytes=64 * SPARE_BYTES)


def use(key: str = "a", *, ago_s: float = 0.0, **more: object) -> Use:
    return Use(**{"key": key, "instances": 0, "last_used": Instant(NOW - ago_s), **more})  # type: ignore[arg-type]


def test_what_is_used_has_one_with_its_spares():
    assert plan([use()], TERMS, NOW) == ({"a": 1}, ())
    assert plan([use(state=State.READY)], TERMS, NOW) == ({"a": 1}, ())


def test_it_stays_while_something_runs_but_parks_nothing_where_nothing_starts():
    assert plan([use(instances=1, ago_s=2 * KEEP_S, state=State.READY)], TERMS, NOW) == ({"a": 0}, ())


def test_unused_it_goes():
    assert plan([use(ago_s=KEEP_S, state=State.READY)], TERMS, NOW) == ({}, ("a",))
    assert plan([use(ago_s=KEEP_S)], TERMS, NOW) == ({}, ())


def test_switched_off_there_is_none():
    assert plan([use(), use("b", state=State.READY)], TERMS._replace(zygotes=False), NOW) == ({}, ("b",))


def test_one_that_failed_is_left_alone_for_longer_and_longer():
    failed = use(instances=1, state=State.UNFIT, failures=1, failed_at=NOW)
    assert plan([failed], TERMS, Instant(NOW + RETRY_FIRST_S - 1)).wanted == {}
    assert plan([failed], TERMS, Instant(NOW + RETRY_FIRST_S)).wanted == {"a": 1}
    waits = [retry_at(failed._replace(failures=count)) - NOW for count in range(1, 40)]
    assert waits == sorted(waits)
    assert waits[0] == RETRY_FIRST_S
    assert waits[-1] == RETRY_LONGEST_S


def test_the_ones_used_last_come_first_where_there_are_too_many():
    uses = [use(f"k{number:03}", ago_s=number) for number in range(MOST + 5)]
    assert list(plan(uses, TERMS, NOW).wanted) == [f"k{number:03}" for number in range(MOST)]


def test_what_they_hold_is_bounded_and_the_ones_used_last_come_first():
    uses = [use(f"k{number}", ago_s=number, held_bytes=100, state=State.READY) for number in range(4)]
    terms = TERMS._replace(zygotes_bytes=250)
    assert plan(uses, terms, NOW) == ({"k0": 1, "k1": 1}, ("k2", "k3"))
    large = [uses[0]._replace(held_bytes=300), *uses[1:]]
    assert plan(large, terms, NOW) == ({"k1": 1, "k2": 1}, ("k0", "k3")), "one that is too large keeps nobody else away"


def test_where_they_are_in_a_model_s_way_there_is_none():
    assert plan([use(instances=1, state=State.READY), use("b")], TERMS._replace(in_the_way=True), NOW) == ({}, ("a",))


def test_spares_stop_where_their_memory_does():
    uses = [use(f"k{number}", ago_s=number) for number in range(4)]
    terms = Terms(zygotes=True, spares=2, spares_bytes=3 * SPARE_BYTES)
    assert plan(uses, terms, NOW).wanted == {"k0": 2, "k1": 1, "k2": 0, "k3": 0}
    heavy = [uses[0]._replace(spare_bytes=2 * SPARE_BYTES), *uses[1:]]
    assert plan(heavy, terms, NOW).wanted == {"k0": 1, "k1": 1, "k2": 0, "k3": 0}


USES = st.lists(
    st.builds(
        Use,
        st.text("abcdefgh", min_size=1, max_size=3),
        st.integers(0, 3),
        st.floats(NOW - 3 * KEEP_S, NOW).map(Instant),
        st.sampled_from([None, *State]),
        st.integers(0, 5),
        st.floats(NOW - 2 * RETRY_LONGEST_S, NOW).map(Instant),
        st.integers(1, 10 * SPARE_BYTES),
    ),
    unique_by=lambda use: use.key,
    max_size=60,
)


@given(USES, st.booleans(), st.integers(-1, 4), st.integers(0, 30 * SPARE_BYTES))
def test_whatever_is_used_the_plan_keeps_its_bounds(uses: list[Use], zygotes: bool, spares: int, spares_bytes: int):
    terms = Terms(zygotes, spares, spares_bytes)
    wanted, retired = plan(uses, terms, NOW)
    by_key = {each.key: each for each in uses}
    assert len(wanted) <= MOST
    assert sum(count * by_key[key].spare_bytes for key, count in wanted.items()) <= spares_bytes
    assert all(0 <= count <= max(0, spares) for count in wanted.values())
    assert not wanted.keys() & set(retired)
    assert {key for key in retired if by_key[key].state not in (State.IMPORTING, State.READY)} == set()
    # What is there is either wanted or told to go, and nothing is started before its time.
    assert {each.key for each in uses if each.state in (State.IMPORTING, State.READY)} <= wanted.keys() | set(retired)
    assert all(by_key[key].state in (State.IMPORTING, State.READY) or retry_at(by_key[key]) <= NOW for key in wanted)
    assert plan(list(reversed(uses)), terms, NOW) == (wanted, retired)
