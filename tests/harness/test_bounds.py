"""How far bounds stretch."""

import pytest

from tests.bounds import SCALE, STRETCHED_MOST, bound, count, stretched


@pytest.mark.parametrize(("load", "factor"), [(0, 1), (0.5, 1), (2, 1), (3, 1.5), (6, 3), (8, 4), (50, STRETCHED_MOST)])
def test_bounds_stretch_with_what_others_do_on_the_machine_and_not_for_ever(load: float, factor: float):
    assert stretched(load) == factor


def test_a_bound_is_never_shorter_than_it_says_and_never_endless():
    assert 10 * SCALE <= bound(10) <= 10 * max(SCALE, STRETCHED_MOST)


def test_repetitions_are_few_or_many():
    assert count(3, long=50) in (3, 50)
