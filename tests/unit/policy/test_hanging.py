"""When a process counts as hung."""

# Instants are plain numbers here.
# mypy: disable-error-code="arg-type,dict-item"

from collections.abc import Mapping

import hypothesis.strategies as st
from hypothesis import given

from fornada.core.names import NEVER, Instant
from fornada.core.policy.hanging import LEAST_S, LOOKS, Bounds, Held, look

ONE = Bounds(lanes=1, most=1, timeout_s=60.0, cancel_s=30.0)


def left(request, sent_at=0.0):
    return Held(request, sent_at, waited_for=False)


def waited_for(request, sent_at=0.0):
    return Held(request, sent_at, waited_for=True)


def watch(held, bounds, *, now=0.0):
    """Looks as often as it is asked to, while nothing changes: (when it was found to hang, what was seen then)."""
    since: Mapping[int, Instant] = {}
    for _ in range(10_000):
        seen = look(held, since, bounds, now=now)
        if seen.hung or seen.again_at == NEVER:
            break
        assert now < seen.again_at <= now + max(bounds.cancel_s / LOOKS, LEAST_S)
        since, now = seen.since, seen.again_at
    return now, seen


def test_a_request_that_was_given_up_has_cancel_s_to_give_its_place_back():
    now, seen = watch([left(7)], ONE, now=60.0)
    assert (now, seen.hung, seen.others) == (90.0, (7,), False)


def test_who_leaves_early_ends_nothing_that_takes_no_longer_than_the_author_allows():
    assert watch([left(7)], Bounds(1, 1, timeout_s=600.0, cancel_s=30.0), now=1.0)[0] == 600.0


def test_what_a_caller_waits_for_never_hangs_nor_what_is_queued_behind_it():
    held = [waited_for(1), left(2)]
    assert all(not look(held, {2: 0.0}, ONE, now=now).hung for now in (100.0, 1e6))
    assert look([waited_for(1)], {}, ONE, now=1e6).again_at == NEVER


def test_what_has_its_turn_only_now_is_counted_from_now():
    seen = look([waited_for(1), left(2)], {}, ONE, now=0.0)
    seen = look([left(2)], seen.since, ONE, now=500.0)
    assert not seen.hung
    assert watch([left(2)], ONE, now=500.0)[0] == 530.0


def test_others_are_those_who_may_still_be_answered():
    beside = Bounds(lanes=2, most=2, timeout_s=60.0, cancel_s=30.0)
    assert watch([left(1), waited_for(2)], beside, now=60.0)[1].others
    assert not watch([left(1), waited_for(2)], ONE, now=60.0)[1].others, "it waits behind what hangs"
    batches = Bounds(lanes=1, most=8, timeout_s=60.0, cancel_s=30.0)
    assert watch([left(1), waited_for(2)], batches, now=60.0)[1].others, "it may be in the same batch"


HELD = st.lists(st.builds(Held, st.integers(0, 50), st.floats(0, 1e4), st.booleans()), max_size=12, unique_by=lambda held: held.request)
BOUNDS = st.builds(Bounds, st.integers(1, 4), st.integers(4, 16), st.floats(0.1, 1e3), st.floats(0.1, 1e3))


@given(held=HELD, bounds=BOUNDS, now=st.floats(1e4, 2e4))
def test_only_what_was_given_up_is_ever_found_to_hang_and_only_after_both_bounds(held, bounds, now):
    began = now
    by_id = {one.request: one for one in held}
    now, seen = watch(held, bounds, now=now)
    assert all(not by_id[request].waited_for for request in seen.hung)
    assert all(now >= by_id[request].sent_at + bounds.timeout_s and now - began >= bounds.cancel_s * 0.999 for request in seen.hung)
    surely = [one for one in held[: bounds.lanes] if not one.waited_for]
    assert bool(seen.hung) == bool(surely), "what surely runs for nobody is found in the end"
