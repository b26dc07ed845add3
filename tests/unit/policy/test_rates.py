"""Requests of a minute."""

from hypothesis import given
from hypothesis import strategies as st

from fornada.core.names import Instant
from fornada.core.policy.rates import WINDOW_S, Rate

PAUSES = st.integers(0, 50 * 1024).map(lambda steps: steps / 1024)
"""Seconds whose sums have no rounding: the end of a minute is a moment that either side computes in its own way."""


@given(st.integers(1, 5), st.lists(PAUSES, min_size=1, max_size=40))
def test_in_no_minute_are_there_more_and_who_waits_as_told_is_let_in(most: int, pauses: list[float]):
    rate = Rate(most)
    now, taken = 0.0, list[float]()
    for pause in pauses:
        now += pause
        wait_s = rate.wait_s(Instant(now))
        recent = [time for time in taken if time > now - WINDOW_S]
        assert (wait_s > 0) == (len(recent) >= most)
        assert wait_s <= WINDOW_S
        if wait_s:
            now += wait_s
            assert rate.wait_s(Instant(now + 1e-6)) == 0
        rate.take(Instant(now))
        taken.append(now)
