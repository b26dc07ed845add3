"""What jobs may have of a model while others ask for it."""

# Instants are plain numbers here.
# mypy: disable-error-code="arg-type"

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fornada.core.policy.idle_capacity import (
    FIRST_GAP_S,
    LULL_GAPS,
    LULL_LONGEST_S,
    OVERDUE_LONGEST_S,
    PEAK_HOLDS_S,
    SHARE,
    UNLOADED_OVERDUE_S,
    Places,
    Traffic,
    first_seen,
    lull,
    places,
    seen,
    unloaded,
)


def asked_every(gap_s: float, *, times: int = 50, here: int = 0) -> tuple[Traffic, float]:
    """The traffic after so many requests, and the time of the last one."""
    traffic = first_seen(0, 0.0, 0, 0.0)
    for number in range(1, times + 1):
        traffic = seen(traffic, number, number * gap_s, here, number * gap_s)
    return traffic, times * gap_s


def test_a_model_that_nobody_ever_asked_is_the_jobs():
    traffic = first_seen(0, 0.0, 0, 5.0)
    assert lull(traffic, 0, 5.0)
    assert places(traffic, working=4, lanes=4, here=0, item_s=None, now=5.0).most == 4


@pytest.mark.parametrize("gap_s", [0.01, 0.5, 1.5])
def test_a_lull_is_several_pauses_long(gap_s: float):
    traffic, last = asked_every(gap_s)
    assert not lull(traffic, 0, last + 2 * gap_s)
    assert lull(traffic, 0, last + max(1.01, 6 * gap_s))


def test_whoever_is_there_makes_no_lull_however_long_he_stays():
    traffic, last = asked_every(0.1)
    assert not lull(traffic, 1, last + 3600)


def test_rare_requests_hold_jobs_up_for_a_bounded_time():
    traffic, last = asked_every(100.0)
    assert lull(traffic, 0, last + LULL_LONGEST_S)


def test_the_first_request_that_is_seen_is_waited_for():
    traffic = first_seen(1, 4.9, 0, 5.0)
    assert not lull(traffic, 0, 5.0)
    assert lull(traffic, 0, 4.9 + LULL_GAPS * FIRST_GAP_S)


def test_a_place_is_kept_for_the_next_request_beyond_what_was_needed_of_late():
    traffic, last = asked_every(0.1, here=2)
    assert places(traffic, working=8, lanes=8, here=2, item_s=1.0, now=last).most == 5
    assert places(traffic, working=8, lanes=8, here=6, item_s=1.0, now=last).most == 1
    assert places(traffic, working=3, lanes=3, here=0, item_s=1.0, now=last).most == 0


def test_places_of_a_batch_are_no_places_beside_whoever_asks_and_all_there_are_in_a_lull():
    traffic, last = asked_every(0.1, here=1)
    assert places(traffic, working=16, lanes=1, here=0, item_s=0.02, now=last).most == 0
    assert places(traffic, working=64, lanes=4, here=1, item_s=0.02, now=last).most == 2
    assert places(traffic, working=16, lanes=1, here=0, item_s=0.02, now=last + LULL_LONGEST_S).most == 16


def test_a_peak_is_forgotten():
    traffic, last = asked_every(0.1, here=5)
    later = last + PEAK_HOLDS_S + 1
    traffic = seen(traffic, 51, later, 1, later)
    assert traffic.peak == 1


def test_where_no_place_is_left_over_items_take_a_small_share_of_the_time():
    traffic, last = asked_every(0.1)
    found = places(traffic, working=1, lanes=1, here=0, item_s=0.02, now=last)
    assert found == Places(0, 0.02 / SHARE)
    for item_s in (60.0, None):
        assert places(traffic, working=1, lanes=1, here=0, item_s=item_s, now=last).overdue_s == OVERDUE_LONGEST_S


def test_a_model_is_loaded_for_a_job_where_that_costs_nobody_anything():
    assert unloaded(nobody_asks=True, fits=False).most == 1
    assert unloaded(nobody_asks=False, fits=True).most == 1
    assert unloaded(nobody_asks=False, fits=False) == Places(0, UNLOADED_OVERDUE_S)


@given(
    st.lists(st.tuples(st.floats(0, 100), st.integers(0, 50), st.integers(0, 20)), max_size=30),
    st.integers(1, 64),
    st.integers(1, 8),
    st.integers(0, 64),
    st.none() | st.floats(0, 1e6),
)
def test_jobs_never_get_more_than_there_is_nor_what_somebody_has(steps, lanes, batch, here, item_s):
    working = lanes * batch
    now, ever = 0.0, 0
    traffic = first_seen(0, now, 0, now)
    for pause_s, new, there in steps:
        now, ever = now + pause_s, ever + new
        traffic = seen(traffic, ever, now, there, now)
        assert traffic.peak >= there and traffic.gap_s >= 0
    found = places(traffic, working=working, lanes=lanes, here=here, item_s=item_s, now=now)
    assert 0 <= found.most <= working
    assert 0 <= found.overdue_s <= OVERDUE_LONGEST_S
    if here:
        assert found.most <= max(0, lanes - here - 1)
