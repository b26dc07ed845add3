"""When the next control plane starts, and when the node gives up."""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from fornada.keeper.supervise import (
    FAILURES_MOST,
    UNUSABLE,
    GiveUp,
    Start,
    State,
    Supervision,
    died,
    overdue,
    patience_s,
    served,
    started,
    succeeded,
)

GRACE_S = 10.0
NEW = Supervision(grace_s=GRACE_S)


def test_the_story_of_a_crash():
    first = served(started(NEW, now=0))
    assert (first.state, first.epoch) == (State.SERVING, 1)
    waiting, choice = died(first, now=100, code=None, how="was killed by signal 9")
    assert (waiting.state, choice) == (State.WAITING, Start(0.0))
    assert started(waiting, now=100).epoch == 2


def test_quick_deaths_wait_longer_and_a_steady_one_starts_afresh():
    now, present, waits = 0.0, NEW, []
    for _ in range(8):
        present, choice = died(served(started(present, now)), now + 1, 1, "exited with code 1")
        assert isinstance(choice, Start)
        waits.append(choice.delay_s)
        now += 1 + choice.delay_s
    assert waits == [0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    _, choice = died(served(started(present, now)), now + 60, 1, "exited with code 1")
    assert choice == Start(0.0)


def test_a_successors_death_is_like_that_of_the_one_that_it_replaced():
    first = served(started(NEW, now=0))
    second = succeeded(first, now=100)
    assert (second.state, second.epoch) == (State.SERVING, 2)
    assert overdue(second, now=1000) is None, "the grace time is for a node that nobody serves"
    waiting, choice = died(second, now=101, code=None, how="was killed by signal 9")
    assert choice == Start(0.0) and started(waiting, now=101).epoch == 3


def test_five_deaths_before_serving_end_the_node():
    present, choices = NEW, []
    for turn in range(FAILURES_MOST):
        present, choice = died(started(present, float(turn)), turn + 0.5, 3, "exited with code 3")
        choices.append(choice)
    assert all(isinstance(choice, Start) for choice in choices[:-1])
    assert isinstance(choices[-1], GiveUp) and "5 times" in choices[-1].reason and "code 3" in choices[-1].reason
    assert present.state is State.GIVEN_UP


def test_having_served_forgives_failures():
    present = NEW
    for turn in range(FAILURES_MOST - 1):
        present, _ = died(started(present, float(turn)), turn + 0.5, 3, "exited with code 3")
    present = served(started(present, 10))
    present, choice = died(present, 11, 3, "exited with code 3")
    assert isinstance(choice, Start)


def test_an_unusable_configuration_ends_the_node_without_a_second_reason():
    _, choice = died(started(NEW, 0), 1, UNUSABLE, "exited with code 78")
    assert choice == GiveUp("")


def test_a_first_start_may_take_as_long_as_it_takes():
    first = started(NEW, 0)
    assert patience_s(first, 0) is None
    assert overdue(first, 10_000) is None


def test_a_successor_that_does_not_serve_within_the_grace_time_ends_the_node():
    waiting, _ = died(served(started(NEW, 0)), 100, None, "was killed by signal 9")
    second = started(waiting, 101)
    assert patience_s(second, 101) == GRACE_S - 1
    assert overdue(second, 109) is None
    assert isinstance(overdue(second, 110), GiveUp)
    assert overdue(served(second), 1000) is None
    _, choice = died(second, 111, 3, "exited with code 3")
    assert isinstance(choice, GiveUp)


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 30), st.sampled_from([None, 0, 1, 3])), max_size=40))
def test_whatever_happens_the_epoch_rises_and_every_wait_is_bounded(lives):
    """Each life: whether it served, how long it lived, its exit code."""
    now, present = 0.0, NEW
    for serves, lived_s, code in lives:
        before = present.epoch
        present = started(present, now)
        assert present.epoch == before + 1
        if serves:
            present = served(present)
        now += lived_s
        present, choice = died(present, now, code, "ended")
        if isinstance(choice, GiveUp):
            assert choice.reason and present.state is State.GIVEN_UP and not serves
            return
        assert 0 <= choice.delay_s <= 2.0
        assert present.failures < FAILURES_MOST
        now += choice.delay_s
    assert dataclasses.is_dataclass(present)
