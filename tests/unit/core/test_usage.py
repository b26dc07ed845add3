"""What a request costs."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fornada.core.usage import Amount, amount_of

TOKENS = {"input_tokens": 10, "output_tokens": 3}


@pytest.mark.parametrize(
    ("price", "used", "neurons"),
    [
        ({}, TOKENS, 0.0),
        ({"request": 2}, {}, 2.0),
        ({"second": 4}, {}, 2.0),
        ({"token": 1}, TOKENS, 13.0),
        ({"input_token": 0.5, "output_token": 2}, TOKENS, 11.0),
        ({"image": 0.25}, {}, 0.25),
        ({"image": 0.25}, {"images": 4}, 1.0),
        ({"tile": 4.8, "step": 9.6}, {"tiles": 2, "step": 1}, 19.2),
        ({"tile": 4.8}, {}, 0.0),
        ({"token": 1}, {"input_tokens": -5, "output_tokens": "many"}, 0.0),
        ({"token": 1}, {"input_tokens": True, "output_tokens": math.inf}, 0.0),
    ],
)
def test_neurons_are_what_the_price_says_of_what_was_counted(price: dict[str, float], used: dict[str, object], neurons: float):
    assert amount_of(price, used, 0.5).neurons == pytest.approx(neurons)


def test_tokens_and_seconds_are_told_whatever_they_cost():
    assert amount_of({}, TOKENS, 0.5) == Amount(1, 10, 3, 0.5, 0.0)


@given(st.dictionaries(st.sampled_from(["input_tokens", "output_tokens", "images"]), st.integers() | st.floats() | st.text() | st.none()))
def test_whatever_model_code_says_it_counted_costs_something_finite_and_not_negative(used: dict[str, object]):
    found = amount_of({"token": 1.0, "image": 1.0}, used, 0.1)
    assert 0 <= found.neurons < math.inf and 0 <= found.input_tokens < 2**32 and 0 <= found.output_tokens < 2**32
