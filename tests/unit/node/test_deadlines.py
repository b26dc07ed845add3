"""One timer for all deadlines."""

import asyncio

from fornada.core.names import Instant
from fornada.node.deadlines import TICKS_A_SECOND, Wheel
from fornada.node.faults import Faults
from fornada.telemetry import Log
from tests.loops.virtual import VirtualClock, virtual

TICK_S = 1 / TICKS_A_SECOND


class Item:
    tick = 0

    def __init__(self, deadline):
        self.deadline = deadline
        self.expired_at = []

    def expire(self, now):
        self.expired_at.append(now)


def wheel(faults=None):
    return Wheel(
        now=VirtualClock().now, loop=asyncio.get_running_loop(), faults=faults or Faults(Log(clock=VirtualClock()), now=VirtualClock().now)
    )


@virtual
async def test_everything_expires_once_at_its_deadline_and_a_tick_later_at_most():
    hold, now = wheel(), VirtualClock().now()
    items = [Item(Instant(now + seconds)) for seconds in (5.0, 0.001, 0.5, 0.5, 61.3, 0.0)]
    for item in items:
        hold.add(item, item.deadline, now)
    await asyncio.sleep(100.0)
    for item in items:
        (at,) = item.expired_at
        assert item.deadline <= at <= item.deadline + TICK_S + 0.002


@virtual
async def test_what_is_taken_out_never_expires():
    hold, now = wheel(), VirtualClock().now()
    items = [Item(Instant(now + 1.0)) for _ in range(10)]
    for item in items:
        hold.add(item, item.deadline, now)
    for item in items[:9]:
        hold.discard(item)
        hold.discard(item)
    await asyncio.sleep(2.0)
    assert [len(item.expired_at) for item in items] == [0] * 9 + [1]


@virtual
async def test_an_earlier_deadline_that_comes_later_is_not_missed():
    hold, now = wheel(), VirtualClock().now()
    late, early = Item(Instant(now + 50.0)), Item(Instant(now + 0.1))
    hold.add(late, late.deadline, now)
    hold.add(early, early.deadline, now)
    await asyncio.sleep(1.0)
    assert (len(early.expired_at), len(late.expired_at)) == (1, 0)


@virtual
async def test_an_empty_wheel_wakes_nobody_and_one_without_end_does_no_harm():
    hold, now = wheel(), VirtualClock().now()
    forever = Item(Instant(float("inf")))
    hold.add(forever, forever.deadline, now)
    hold.discard(forever)
    hold.close()
    await asyncio.sleep(1e6)
    assert forever.expired_at == []


@virtual
async def test_something_may_be_put_in_while_something_expires():
    hold, now = wheel(), VirtualClock().now()
    second = Item(Instant(now + 0.2))

    class First(Item):
        def expire(self, now):
            super().expire(now)
            hold.add(second, second.deadline, now)

    first = First(Instant(now + 0.1))
    hold.add(first, first.deadline, now)
    await asyncio.sleep(1.0)
    assert (len(first.expired_at), len(second.expired_at)) == (1, 1)


@virtual
async def test_one_that_fails_costs_the_others_of_its_bucket_nothing(tmp_path):
    class Failing(Item):
        def expire(self, now):
            super().expire(now)
            raise KeyError("a bug")

    log = Log(clock=VirtualClock(), file=tmp_path / "log")
    hold, now = wheel(Faults(log, now=VirtualClock().now)), VirtualClock().now()
    items = [(Failing if number % 2 else Item)(Instant(now + 1.0)) for number in range(10)]
    later = Item(Instant(now + 2.0))
    for item in [*items, later]:
        hold.add(item, item.deadline, now)
    await asyncio.sleep(3.0)
    assert [len(item.expired_at) for item in [*items, later]] == [1] * 11
    (told,) = (tmp_path / "log").read_text().splitlines()
    assert "a bug" in told and "Traceback" in told
    log.close()
