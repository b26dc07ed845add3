"""When an instance is parked."""

# Instants are plain numbers here.
# mypy: disable-error-code="arg-type"

import hypothesis.strategies as st
from hypothesis import given

from fornada.core.policy.parking import Rest, parks_in_s

TIMES = st.floats(0, 1e6)


def rest(*, calls=0, last_used=100.0, allowed=True):
    return Rest(calls=calls, last_used=last_used, allowed=allowed)


def test_it_counts_from_the_last_use():
    assert parks_in_s(rest(), park_after_s=5.0, now=102.0) == 3.0
    assert parks_in_s(rest(), park_after_s=5.0, now=107.0) == -2.0


@given(st.integers(0, 3), TIMES, st.booleans(), st.floats(0, 1e3), TIMES)
def test_it_is_due_when_it_has_rested_for_long_enough_and_for_no_other_reason(calls, last_used, allowed, park_after_s, now):
    due = parks_in_s(rest(calls=calls, last_used=last_used, allowed=allowed), park_after_s=park_after_s, now=now) <= 0
    assert due == (not calls and allowed and park_after_s > 0 and last_used + park_after_s - now <= 0)


@given(TIMES, st.floats(0.001, 1e3), TIMES)
def test_who_looks_again_when_he_is_told_to_finds_it_due(last_used, park_after_s, now):
    left_s = parks_in_s(rest(last_used=last_used), park_after_s=park_after_s, now=now)
    if left_s > 0:
        assert parks_in_s(rest(last_used=last_used), park_after_s=park_after_s, now=now + left_s) <= 1e-6
