"""A timer that is over holds nothing: the loop keeps it until its time has come."""

import functools
import gc
import weakref

import pytest

from fornada.keeper.loop import Timer


class Thing:
    """Holds the timer that is about it."""

    timer: Timer


@pytest.fixture(autouse=True)
def nobody_looks_for_rings():
    gc.disable()
    yield
    gc.enable()


def test_what_a_cancelled_timer_would_have_called_is_let_go_of_at_once():
    thing = Thing()
    thing.timer = timer = Timer(functools.partial(print, thing))
    left = weakref.ref(thing)
    timer.cancel()
    timer.call()
    del thing
    assert timer.cancelled and left() is None
