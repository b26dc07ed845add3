"""What an instance has shown of how often it is asked and how long its steps take."""

# Instants are plain numbers here.
# mypy: disable-error-code="arg-type"

import pytest

from fornada.core.names import Instant
from fornada.core.policy.ladder import UNKNOWN
from fornada.node.worth import Asked, Worth

WALL = 1_700_000_000.0


def started(worth: Worth, at: float, took_s: float) -> None:
    worth.granted(at)
    worth.opened(at + took_s)


def test_who_never_started_is_unknown_and_nobody_waits_for_its_start():
    worth = Worth(0.0)
    assert (worth.ladder, worth.start_s) == (UNKNOWN, 0.0)


def test_a_start_is_measured_from_the_grant_and_the_newest_count_most():
    worth = Worth(0.0)
    started(worth, 10.0, 4.0)
    assert worth.start_s == pytest.approx(4.0)
    started(worth, 100.0, 2.0)
    assert worth.ladder.start_s == worth.start_s == pytest.approx(3.0)


def test_who_was_there_already_teaches_no_start():
    worth = Worth(0.0)
    worth.opened(50.0)
    assert worth.ladder is UNKNOWN


def test_a_grant_that_came_to_nothing_is_forgotten():
    worth = Worth(0.0)
    worth.granted(1.0)
    worth.released(2.0, answered_at=0.0)
    worth.opened(500.0)
    assert worth.ladder is UNKNOWN


def test_a_step_down_begins_with_the_last_answer():
    worth = Worth(0.0)
    started(worth, 0.0, 1.0)
    worth.closed(10.0)
    worth.released(31.0, answered_at=30.0)
    assert worth.ladder.stop_s == pytest.approx(0.5)


def test_the_rate_follows_the_requests():
    asked = Asked(0.0)
    assert asked.rate(10.0, WALL) == 0.0
    for number in range(100):
        asked.count += 1
        asked.at = Instant(10.0 + number)
    busy = asked.rate(110.0, WALL)
    assert 0.3 < busy < 1.2
    assert asked.rate(110.0, WALL) == pytest.approx(busy)
    assert asked.rate(700.0, WALL) < busy / 50
