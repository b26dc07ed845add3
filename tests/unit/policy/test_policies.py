"""The small choices: admission, idleness, batches, back-off."""

# Instants and names are plain numbers and strings here.
# mypy: disable-error-code="arg-type"

import hypothesis.strategies as st
import pytest
from hypothesis import given

from fornada.core.policy.admission import SAMPLES, Standing, admit, predicted_wait_s
from fornada.core.policy.backoff import FREE_CRASHES, LONGEST_S, after_crashes, after_failures
from fornada.core.policy.batching import AHEAD_UNKNOWN, MOST_AHEAD, slots
from fornada.core.policy.idle import Use, ends_in_s


def standing(*, working=1, ahead=0, queue=4, service_s=()):
    return Standing("@test/a", working, ahead, queue, service_s)


def admitted(standing, *, reject_if_busy=False, max_wait_s=60.0):
    return admit(standing, reject_if_busy=reject_if_busy, max_wait_s=max_wait_s) is None


def test_a_queue_takes_as_many_as_it_holds_beyond_what_is_worked_on():
    assert [admitted(standing(ahead=ahead)) for ahead in range(7)] == [True] * 5 + [False] * 2
    assert [admitted(standing(working=0, ahead=ahead)) for ahead in range(6)] == [True] * 4 + [False] * 2
    assert [admitted(standing(ahead=ahead, queue=0)) for ahead in range(3)] == [True, False, False]


def test_who_does_not_want_to_wait_is_refused_where_it_would():
    assert admitted(standing(working=2, ahead=1), reject_if_busy=True)
    assert not admitted(standing(working=2, ahead=2), reject_if_busy=True)
    refusal = admit(standing(working=0), reject_if_busy=True, max_wait_s=60.0)
    assert refusal is not None and "has to be loaded first" in refusal.message


def test_a_wait_beyond_the_bound_is_refused_with_the_time_to_come_back():
    slow = standing(ahead=64, queue=64, service_s=[2.0] * SAMPLES)
    refusal = admit(slow, reject_if_busy=False, max_wait_s=60.0)
    assert refusal is not None and refusal.retry_after_s == 60.0
    assert "would wait about 128 s, the bound is 60 s" in refusal.message


def test_a_prediction_takes_the_fastest_of_the_last_service_times_and_needs_enough_of_them():
    assert predicted_wait_s(standing(ahead=4, service_s=[10.0] * (SAMPLES - 1))) is None
    assert predicted_wait_s(standing(ahead=4, service_s=[10.0] * (SAMPLES - 1) + [0.5])) == 2.0


@given(st.integers(0, 8), st.integers(0, 200), st.integers(0, 64), st.booleans())
def test_the_queue_never_grows_beyond_its_bound(working, ahead, queue, reject_if_busy):
    if admitted(standing(working=working, ahead=ahead, queue=queue), reject_if_busy=reject_if_busy):
        assert ahead + 1 <= working + queue


@given(st.integers(1, 8), st.integers(0, 200), st.lists(st.floats(0.001, 100), max_size=SAMPLES))
def test_a_refusal_says_when_to_come_back(working, ahead, service_s):
    refusal = admit(standing(working=working, ahead=ahead, service_s=service_s), reject_if_busy=True, max_wait_s=60.0)
    assert refusal is None or 1.0 <= (refusal.retry_after_s or 0) <= 60.0


def test_back_off_doubles_to_a_minute():
    assert [after_failures(count, first_s=1.0) for count in range(9)] == [0, 1, 2, 4, 8, 16, 32, 60, 60]
    assert after_failures(10**9, first_s=0.5) == LONGEST_S
    assert after_failures(1, first_s=90.0) == 90.0


def test_some_crashes_are_free():
    assert [after_crashes(FREE_CRASHES + more, first_s=1.0) for more in range(-1, 3)] == [0, 0, 1, 2]


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        (Use(calls=0, last_used=100.0, kept=False), 2.0),
        (Use(calls=1, last_used=100.0, kept=False), float("inf")),
        (Use(calls=0, last_used=0.0, kept=True), float("inf")),
        (Use(calls=0, last_used=90.0, kept=False), -8.0),
    ],
)
def test_idleness_counts_from_the_last_byte(use, expected):
    assert ends_in_s(use, idle_timeout_s=4.0, now=102.0) == expected


def sent(granted_ahead, service_s=(), *, concurrency=1, max_batch=1):
    return slots(concurrency=concurrency, max_batch=max_batch, granted_ahead=granted_ahead, service_s=service_s)


def test_a_runner_is_sent_what_it_works_on_together_and_what_it_takes_ahead():
    assert sent(0, [0.001]) == (1, 1)
    assert sent(16, [0.001]) == (1, 17)
    assert sent(16, [0.001], concurrency=4, max_batch=8) == (32, 48)
    assert sent(10**6, [1e-6]) == (1, 1 + MOST_AHEAD)


def test_slow_models_are_sent_little_ahead():
    assert sent(64) == (1, 1 + AHEAD_UNKNOWN)
    assert [sent(64, [seconds, 0.001]).sent for seconds in (0.01, 0.1, 1.0)] == [26, 3, 1]
