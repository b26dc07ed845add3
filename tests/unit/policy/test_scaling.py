"""How many instances there should be, by what waits."""

# Instants are plain numbers here.
# mypy: disable-error-code="arg-type"

from hypothesis import given
from hypothesis import strategies as st

from fornada.core.policy.scaling import Bounds, Load, Needed, needed_now, seen, wanted

FOUR = Bounds(least=0, most=4, idle_timeout_s=10.0)


def load(*, in_flight: int = 0, waiting: int = 0, working: int = 1, service_s: float | None = 1.0, start_s: float = 2.0) -> Load:
    return Load(working, in_flight, waiting, service_s, start_s)


def looked(load: Load, needed: Needed | None = None, *, at: float = 0.0, bounds: Bounds = FOUR) -> Needed:
    return seen(needed or Needed(), load, bounds=bounds, now=at)


def test_a_queue_that_lasts_longer_than_a_start_brings_as_many_as_work_it_off_meanwhile():
    busy = load(in_flight=1, waiting=3)
    assert wanted(busy, looked(busy), present=1, bounds=FOUR, now=0.0) == 2
    flooded = load(in_flight=1, waiting=30)
    assert wanted(flooded, looked(flooded), present=1, bounds=FOUR, now=0.0) == 4


def test_a_queue_that_is_gone_before_another_instance_came_brings_none():
    short = load(in_flight=1, waiting=2, start_s=30.0)
    assert wanted(short, looked(short), present=1, bounds=FOUR, now=0.0) == 1
    quick = load(in_flight=1, waiting=20, service_s=0.01, start_s=0.001)
    assert wanted(quick, looked(quick), present=1, bounds=FOUR, now=0.0) == 1


def test_what_was_sent_ahead_counts_as_waiting():
    ahead = load(in_flight=8, waiting=0, working=2)
    assert wanted(ahead, looked(ahead), present=1, bounds=FOUR, now=0.0) == 2


def test_what_is_superfluous_goes_after_a_while_and_not_before():
    busy = load(in_flight=3)
    needed = looked(busy)
    quiet = load(in_flight=1)
    for at in (1.0, 5.0, 9.9):
        needed = looked(quiet, needed, at=at)
        assert wanted(quiet, needed, present=3, bounds=FOUR, now=at) == 3
    needed = looked(quiet, needed, at=10.1)
    assert wanted(quiet, needed, present=3, bounds=FOUR, now=10.1) == 1


def test_the_last_one_is_nobodys_business_here():
    nothing = load()
    assert wanted(nothing, looked(nothing), present=1, bounds=FOUR, now=1000.0) == 1
    assert wanted(nothing, looked(nothing), present=0, bounds=FOUR, now=1000.0) == 0


loads = st.builds(
    Load,
    working=st.integers(1, 8),
    in_flight=st.integers(0, 100),
    waiting=st.integers(0, 200),
    service_s=st.none() | st.floats(0.0001, 100.0),
    start_s=st.floats(0.0, 100.0),
)


@given(st.lists(loads, min_size=1, max_size=20), st.integers(0, 5), st.integers(1, 6), st.integers(1, 5))
def test_never_more_than_allowed_nor_fewer_and_never_one_that_would_find_nothing_to_do(looks, least, more, present):
    bounds = Bounds(least=least, most=least + more, idle_timeout_s=5.0)
    present = min(present, bounds.most)
    needed = Needed()
    for at, one in enumerate(looks):
        needed = seen(needed, one, bounds=bounds, now=float(at))
        count = wanted(one, needed, present=present, bounds=bounds, now=float(at))
        assert bounds.least <= count <= bounds.most
        if count > present:
            assert count <= max(bounds.least, needed_now(one)) or one.in_flight < one.working * present
        if not one.waiting and one.in_flight <= one.working * present:
            assert count <= max(bounds.least, present), "nothing waits"


@given(st.lists(loads, min_size=1, max_size=20))
def test_nobody_goes_who_was_needed_a_moment_ago(looks):
    needed = Needed()
    for at, one in enumerate(looks):
        needed = seen(needed, one, bounds=FOUR, now=float(at))
        of_late = max(min(4, needed_now(other)) for other in looks[max(0, at - 9) : at + 1])
        assert wanted(one, needed, present=4, bounds=FOUR, now=float(at)) >= of_late
