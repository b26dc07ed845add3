"""What an item of a job is refused with, and whether that is the end."""

import pytest

from fornada.core import errors
from fornada.core.errors import FornadaError
from fornada.core.policy.second_tries import LONGEST_S, MOST_ATTEMPTS, SHORTEST_S, after

WAITED_OUT: list[FornadaError] = [
    errors.Busy("", retry_after_s=3),
    errors.Unavailable("", retry_after_s=3),
    errors.DiskFull("", retry_after_s=3),
    errors.LoadFailed("", retry_after_s=3),
    errors.DeadlinePassed("it waited"),
]
TRIED_A_FEW_TIMES: list[FornadaError] = [errors.RunnerDied(""), errors.OutOfDeviceMemory(""), errors.InternalFault("")]
FOR_GOOD: list[FornadaError] = [
    errors.BadRequest(""),
    errors.UnknownModel(""),
    errors.ModelNotAllowed(""),
    errors.TooLarge(""),
    errors.NeverFits("", retry_after_s=3),
    errors.ModelRaised(""),
    errors.LoadFailed("for good"),
    errors.DeadlinePassed("it ran", begun=True),
]


@pytest.mark.parametrize("error", WAITED_OUT, ids=lambda error: type(error).__name__)
def test_want_of_capacity_is_waited_out_however_long_it_takes(error: FornadaError):
    again = after(error, attempts=10**6)
    assert again is not None and not again.counts
    assert again.wait_s == (3 if error.retry_after_s else SHORTEST_S)


@pytest.mark.parametrize("error", [errors.QuotaUsedUp(""), errors.RateLimited("")], ids=lambda error: type(error).__name__)
def test_an_allowance_that_is_used_up_is_waited_for(error: FornadaError):
    assert after(error, attempts=10**6) == (LONGEST_S, False)


@pytest.mark.parametrize("error", TRIED_A_FEW_TIMES, ids=lambda error: type(error).__name__)
def test_what_may_be_the_items_own_doing_is_tried_a_few_times(error: FornadaError):
    tries = 1
    while (again := after(error, attempts=tries - 1)) is not None:
        assert again.counts and again.wait_s > 0
        tries += 1
    assert tries == MOST_ATTEMPTS


@pytest.mark.parametrize("error", FOR_GOOD, ids=lambda error: f"{type(error).__name__} {error}")
def test_what_somebody_has_to_mend_is_told_at_once(error: FornadaError):
    assert after(error, attempts=0) is None


def test_no_wait_is_without_bounds():
    for asked_s in (0.0, 1e9):
        again = after(errors.Busy("", retry_after_s=asked_s), attempts=0)
        assert again is not None and SHORTEST_S <= again.wait_s <= LONGEST_S
