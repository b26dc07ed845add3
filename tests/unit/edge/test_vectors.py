"""A model's vectors, cut to the length that a caller asked for."""

import pytest

from fornada.core.errors import BadRequest
from fornada.edge.dialects.openai.vectors import shortened


def test_what_is_left_of_a_vector_has_length_one_again():
    assert shortened([3.0, 4.0, 12.0], 2) == pytest.approx([0.6, 0.8])


def test_a_vector_that_is_cut_nowhere_stays_as_it_is():
    assert shortened([3.0, 4.0], 2) == [3.0, 4.0]


def test_a_vector_of_nothing_and_one_with_gaps_are_cut_too():
    assert shortened([0.0, 0.0, 1.0], 2) == [0.0, 0.0]
    assert shortened([None, 2.0, 1.0], 2) == [None, 1.0]


def test_numbers_whose_squares_are_no_numbers_are_cut_too():
    assert shortened([3e200, 4e200, 1.0], 2) == pytest.approx([0.6, 0.8])


def test_a_vector_is_not_made_longer():
    with pytest.raises(BadRequest, match="this model's vectors have 2"):
        shortened([3.0, 4.0], 3)
