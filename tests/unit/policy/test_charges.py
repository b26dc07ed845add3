"""What a model is charged, and what its processes teach."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from fornada.core.policy.charges import Because, Estimate, charge, learned_from, learned_from_shortage, missing_in, standing

MIB = 1024**2
GIB = 1024**3
BYTES = st.integers(0, 1 << 42)


def charged(declared=0, learned=0, live=0, *, slack=0, total=8 * GIB):
    made = charge(Estimate(declared, learned), live_bytes=live, slack_bytes=slack, total_bytes=total)
    return made.bytes, made.because


def test_it_is_what_was_declared_until_something_was_measured_and_the_measured_peak_then():
    assert charged(900 * MIB) == (900 * MIB, Because.DECLARED)
    assert charged(900 * MIB, 50 * MIB, 40 * MIB) == (50 * MIB, Because.LEARNED)
    assert charged(100 * MIB, 600 * MIB) == (600 * MIB, Because.LEARNED)


def test_a_declared_bound_beyond_what_there_is_counts_as_all_of_it_until_something_was_measured():
    assert Estimate(2 * GIB, 0, most_bytes=GIB).expected_bytes == GIB
    assert Estimate(GIB // 2, 0, most_bytes=GIB).expected_bytes == GIB // 2
    assert Estimate(2 * GIB, 50 * MIB, most_bytes=GIB).expected_bytes == 50 * MIB
    assert Estimate(2 * GIB, 3 * GIB, most_bytes=GIB).expected_bytes == 3 * GIB, "what was measured is no bound"
    assert Estimate(2 * GIB).expected_bytes == 2 * GIB, "of a device it is the need"


def test_whoever_holds_more_than_expected_is_charged_what_he_holds():
    assert charged(100 * MIB, 0, 200 * MIB) == (200 * MIB, Because.LIVE)
    assert charged(900 * MIB, 50 * MIB, 80 * MIB) == (80 * MIB, Because.LIVE)


def test_slack_is_added_but_makes_nothing_too_large_that_fits_without_it():
    assert charged(GIB, slack=64 * MIB)[0] == GIB + 64 * MIB
    assert charged(8 * GIB, slack=64 * MIB)[0] == 8 * GIB
    assert charged(9 * GIB, slack=64 * MIB)[0] == 9 * GIB, "too large is too large"
    assert charged(slack=64 * MIB)[0] == 0


@given(BYTES, BYTES, BYTES, BYTES, BYTES)
def test_a_charge_covers_what_is_held_and_what_is_expected(declared, learned, live, slack, total):
    made = charge(Estimate(declared, learned), live_bytes=live, slack_bytes=slack, total_bytes=total)
    assert made.bytes >= max(live, learned or declared)
    assert made.bytes <= max(live, learned or declared, total)
    assert made.bytes == max(live, learned or declared) + made.slack_bytes


def test_a_peak_grows_at_once_and_shrinks_slowly_when_a_process_is_over():
    assert learned_from(0, 50, over=False) == 50
    assert learned_from(50, 80, over=False) == 80
    assert learned_from(80, 40, over=False) == 80, "it may still come to that"
    assert learned_from(80, 40, over=True) == 70
    assert learned_from(80, 0, over=True) == 80, "what can't be measured says nothing"


@given(st.lists(st.tuples(st.integers(1, 1000), st.booleans()), min_size=1))
def test_what_is_learned_lies_between_what_was_seen(seen):
    known = 0
    for count, over in seen:
        known = learned_from(known, count, over=over)
        assert count <= known if not over else known <= max(count for count, _ in seen)
    assert min(count for count, _ in seen) <= known <= max(count for count, _ in seen)


def test_a_shortage_teaches_what_was_missing_or_else_somewhat_more():
    assert learned_from_shortage(Estimate(100, 0), live_bytes=100, missing_bytes=500) == 600
    assert learned_from_shortage(Estimate(100, 0), live_bytes=80, missing_bytes=0) == 125
    assert learned_from_shortage(Estimate(100, 700), live_bytes=10, missing_bytes=20) == 700, "it never shrinks"


@pytest.mark.parametrize(
    ("said", "count"),
    [
        ("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB", 2 * GIB),
        ("Tried to allocate 20.00 MiB (GPU 0; 8.00 GiB total capacity)", 20 * MIB),
        ("RESOURCE_EXHAUSTED: Out of memory allocating 17179869184 bytes.", 16 * GIB),
        ("Failed to allocate memory for requested buffer of size 1073741824", GIB),
        ("cuda:0 has 400 MiB free of 1000 MiB, 600 MiB were asked for", 0),
        ("MemoryError", 0),
    ],
)
def test_libraries_say_how_much_was_missing(said, count):
    assert missing_in(said) == count


def test_what_others_teach_takes_nothing_from_those_who_have_a_place():
    assert standing(Estimate(900), Estimate(900, 50), peak_bytes=50) == Estimate(900, 50)
    assert standing(Estimate(100), Estimate(100, 600), peak_bytes=100).expected_bytes == 100
    assert standing(Estimate(900, 50), Estimate(900, 400), peak_bytes=40).expected_bytes == 50
    assert standing(Estimate(900, 50), Estimate(900), peak_bytes=50).expected_bytes == 50, "what was learned is forgotten"
    assert standing(Estimate(900, 50), Estimate(900, 80), peak_bytes=80).expected_bytes == 80, "it holds it"
