"""Callers who leave, wherever they are, and streams that are read slowly."""

import asyncio
import itertools

import pytest

from fornada.core.errors import DeadlinePassed, ModelRaised, OutOfDeviceMemory, RunnerDied
from fornada.core.names import ModelName
from tests.loops.fake_runner import Behaviour
from tests.loops.virtual import virtual
from tests.loops.world import World, now

A = ModelName("@test/a")


@virtual
async def test_who_leaves_the_queue_frees_its_place_in_it():
    async with World() as world:
        world.put(serving={"queue": 1})
        await world.answer(echo=1)
        working = world.ask(sleep_s=1.0)
        leaving = world.ask(echo="never")
        leaving.leave()
        staying = world.ask(echo="here")
        await working.result()
        assert (await staying.result())["echo"] == "here"
        assert not leaving.done.is_set()
        assert {"echo": "never"} not in world.keeper.runners()[0].seen


@virtual
async def test_who_leaves_while_the_model_works_stops_it_within_two_steps():
    async with World() as world:
        world.put()
        stream = world.ask(steps=50, step_s=0.2)
        await world.until(lambda: len(stream.items) == 5)
        stream.leave()
        began = now()
        assert (await world.answer(echo=1))["echo"] == 1
        assert now() - began < 0.2
        assert world.keeper.runners()[0].steps <= 7
        assert not stream.done.is_set()


@virtual
async def test_who_leaves_what_was_sent_ahead_is_never_worked_on():
    async with World() as world:
        world.put(behaviour=Behaviour(ahead=16))
        await world.answer(echo=1)
        working = world.ask(sleep_s=1.0)
        ahead = [world.ask(echo=number) for number in range(5)]
        await asyncio.sleep(0.1)
        for caller in ahead[:4]:
            caller.leave()
        await working.result()
        assert (await ahead[4].result())["echo"] == 4
        assert [asked.get("echo") for asked in world.keeper.runners()[0].seen] == [1, None, 4]


@virtual
async def test_leaving_twice_or_after_the_answer_does_nothing():
    async with World() as world:
        world.put()
        caller = world.ask(echo=1)
        await caller.result()
        caller.leave()
        caller.leave()
        gone = world.ask(sleep_s=1.0)
        gone.leave()
        gone.leave()
        assert (await world.answer(echo=2))["echo"] == 2


@virtual
async def test_a_stream_arrives_item_by_item_as_it_is_made():
    async with World() as world:
        world.put()
        await world.answer(echo=1)
        arrivals = []
        stream = world.ask(steps=10, step_s=0.2)
        for number in range(10):
            await world.until(lambda number=number: len(stream.items) > number)  # type: ignore[misc]
            arrivals.append(now())
        await stream.result()
        gaps = [after - before for before, after in itertools.pairwise(arrivals)]
        assert min(gaps) > 0.15


@virtual
async def test_a_slow_reader_holds_its_own_stream_up_and_nobodys_memory():
    async with World() as world:
        world.put(serving={"concurrency": 2})
        await world.answer(echo=1)
        slow = world.ask(steps=100, pad=20_000, takes=False)
        await asyncio.sleep(1.0)
        held = len(slow.items)
        assert held < 20
        assert (await world.answer(echo=2))["echo"] == 2
        while not slow.done.is_set():
            slow.ticket.taken(20_100)
            await asyncio.sleep(0.05)
        await slow.result()
        assert len(slow.items) == 100


@virtual
async def test_items_larger_than_a_packet_and_than_the_window_arrive_whole():
    async with World() as world:
        world.put()
        stream = world.ask(steps=3, pad=400_000)
        await stream.result()
        assert [len(item["pad"]) for item in stream.items] == [400_000] * 3


@virtual
async def test_a_crash_in_the_middle_of_a_stream_is_an_error_at_its_end():
    async with World() as world:
        world.put()
        stream = world.ask(steps=10, step_s=0.1, die_at=5)
        with pytest.raises(RunnerDied):
            await stream.result()
        assert (len(stream.items), stream.began) == (5, True)


@virtual
async def test_a_deadline_in_the_middle_of_a_stream_is_an_error_at_its_end():
    async with World() as world:
        world.put()
        await world.answer(echo=1)
        stream = world.ask(steps=100, step_s=0.1, timeout_s=1.0)
        with pytest.raises(DeadlinePassed):
            await stream.result()
        assert 9 <= len(stream.items) <= 11
        assert (await world.answer(echo=2))["echo"] == 2


@virtual
async def test_an_error_of_model_code_reaches_its_caller_alone():
    async with World() as world:
        world.put(serving={"concurrency": 4})
        await world.answer(echo=1)
        raising, full, fine = world.ask(raises="KeyError: 'x'"), world.ask(oom="6 GiB of 4 GiB"), world.ask(echo=7)
        with pytest.raises(ModelRaised, match="KeyError"):
            await raising.result()
        with pytest.raises(OutOfDeviceMemory, match="6 GiB of 4 GiB"):
            await full.result()
        assert (await fine.result())["echo"] == 7
        assert world.metric("fornada_request_seconds_count", stage="runner") == 4
