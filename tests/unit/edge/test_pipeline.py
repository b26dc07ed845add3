"""The answers of a connection against the clock: who takes nothing of them is cut off, whatever is left."""

import pytest

from fornada.edge.server.pipeline import Pipeline
from fornada.edge.server.unsent import STALLED_S
from tests.unit.edge.test_conversation import FakeTransport


class Stand:
    """A connection that has answered, with a caller who takes what the test says."""

    def __init__(self) -> None:
        self.pipeline = Pipeline(on_close=lambda: None, on_idle=lambda: None)
        self.transport = FakeTransport()
        self.pipeline.open(self.transport)
        self.now = 0.0

    def stalled_within(self, seconds: float) -> bool:
        """The clock goes on, a tick each second."""
        for _ in range(int(seconds)):
            self.now += 1.0
            if self.pipeline.stalled(self.now):
                return True
        return False


@pytest.fixture
def stand() -> Stand:
    return Stand()


def test_who_takes_nothing_of_much_is_cut_off(stand: Stand):
    stand.transport.unsent = 100_000
    stand.pipeline.pause()
    assert not stand.stalled_within(STALLED_S)
    stand.transport.unsent = 90_000
    assert not stand.stalled_within(STALLED_S), "it takes a little"
    assert stand.stalled_within(5)


def test_who_takes_nothing_of_the_little_that_is_left_at_the_end_is_cut_off(stand: Stand):
    stand.transport.unsent = 1000  # less than a transport calls full
    assert not stand.stalled_within(10 * STALLED_S), "the next request may come"
    stand.transport.close()
    assert not stand.stalled_within(STALLED_S)
    stand.transport.unsent = 900
    assert not stand.stalled_within(STALLED_S), "it takes a little"
    assert stand.stalled_within(5)


def test_each_time_counts_by_itself(stand: Stand):
    stand.transport.unsent = 100_000
    stand.pipeline.pause()
    assert not stand.stalled_within(STALLED_S)
    stand.transport.unsent = 1000
    stand.pipeline.resume()
    assert not stand.stalled_within(5 * STALLED_S)
    stand.transport.unsent = 50_000
    stand.transport.close()
    assert not stand.stalled_within(STALLED_S), "it has been slow before, not now"
    assert stand.stalled_within(5)
