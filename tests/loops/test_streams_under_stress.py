"""Many paced streams, slow readers, leavers and short requests over one link to one runner, while everything around them goes badly.

What must hold: every caller who stays gets all items in order and the end; every call is ended by the runner, so that its place is free
again. Who wakes whom is in docs/internals/wire.md.
"""

import asyncio
import random
import time

import pytest

from tests.bounds import count
from tests.loops.stream_stand import (
    ON_A_LOOP,
    ON_THREADS,
    Caller,
    Stand,
    busy_machine,
    held_up_now_and_then,
    in_parts,
    stand,
    stopped_now_and_then,
    tally,
)
from tests.unit.sdk.driver import starter

STREAMS = 64
ways = pytest.mark.parametrize(
    ("code", "concurrency"),
    [
        pytest.param(ON_A_LOOP, STREAMS, id="loop"),
        pytest.param(ON_THREADS, 8, id="threads"),
        pytest.param(ON_THREADS, 1, id="inline"),
    ],
)


@pytest.fixture
def start(tmp_path):
    with starter(tmp_path) as start:
        yield start


async def round_of(stand: Stand, chance: random.Random) -> list[Caller]:
    """Streams that begin spread over some ms, so that the last ones have nobody after them; short requests between them."""
    callers: list[Caller] = []
    loop = asyncio.get_running_loop()
    few = 1 if stand.link.capacity > 8 else 4  # one after the other they take longer
    for _ in range(STREAMS // few):
        keys = {"steps": chance.randrange(1, 6), "pause_s": chance.choice([0, 0.002, 0.01]) / few, "size": in_parts(chance)}
        caller = stand.ask(keys, slow_s=chance.choice([0, 0, 0, 0.005, 0.03]))
        callers.append(caller)
        if chance.random() < 0.2:
            loop.call_later(chance.random() * 0.08, caller.leave)
        if chance.random() < 0.3:
            callers.append(stand.ask({"n": len(callers)}))
        if chance.random() < 0.7:
            await asyncio.sleep(chance.random() * 0.0006)
    # Those above may all have been answered before it was their time to leave.
    callers.append(stand.ask({"steps": 5, "pause_s": 0.01, "size": in_parts(chance)}))
    loop.call_soon(callers[-1].leave)
    return callers


@pytest.mark.timeout(900)
@ways
async def test_every_stream_ends_whatever_happens_around_it(start, code: str, concurrency: int):
    chance = random.Random(count(7, long=int(time.time())))
    all_callers: list[Caller] = []
    async with stand(start, code, concurrency=concurrency) as stood:
        trouble = [
            asyncio.ensure_future(stopped_now_and_then(stood.runner, random.Random(1))),
            asyncio.ensure_future(held_up_now_and_then(random.Random(2))),
        ]
        try:
            with busy_machine(2):
                for _ in range(count(6, long=150)):
                    callers = await round_of(stood, chance)
                    await stood.all_end(callers)
                    await stood.at_rest()
                    all_callers += callers
        finally:
            for one in trouble:
                one.cancel()
            await asyncio.gather(*trouble, return_exceptions=True)
        assert not stood.ears.faults
    assert set(tally(all_callers)) == {"answered", "left"}


@pytest.mark.timeout(900)
@ways
async def test_the_last_of_a_few_streams_is_served_as_those_before_it(start, code: str, concurrency: int):
    """Nothing goes badly here, and the streams are short: it is about the moment at which they begin, and that nobody comes after."""
    chance = random.Random(count(8, long=int(time.time())))
    async with stand(start, code, concurrency=concurrency, small=False) as stood:
        for _ in range(count(300, long=20_000)):
            callers = []
            for _ in range(min(4, 2 * concurrency)):
                callers.append(stood.ask({"steps": 2, "pause_s": 0.001, "size": 5}))
                await asyncio.sleep(chance.random() * 0.0006)
            await stood.all_end(callers)
            assert set(tally(callers)) == {"answered"}
