"""Items of jobs beside requests that somebody waits for, at the same model and on the same device."""

import asyncio
from typing import Any

import pytest

from fornada.core.errors import Busy
from fornada.core.names import ModelName
from fornada.core.requests import Priority
from tests.loops.virtual import virtual
from tests.loops.world import Caller, World, now


def item(world: World, **asked: Any) -> Caller:
    return world.ask(account="batch", priority=Priority.JOB, **asked)


def most(world: World, model: str) -> int:
    return world.node.job_room.places(ModelName(model), item_s=1.0).most


@virtual
async def test_an_item_gives_its_place_to_whoever_waits():
    async with World() as world:
        world.put()
        await world.answer(echo=0)
        job = item(world, sleep_s=30.0)
        await asyncio.sleep(1)
        began = now()
        assert (await world.answer(echo=1))["echo"] == 1
        assert now() - began < 1.0, "the request waited for the item"
        with pytest.raises(Busy, match="gave way"):
            await job.result()


@virtual
async def test_only_as_many_give_way_as_have_to_and_those_that_came_last():
    async with World() as world:
        world.put(serving={"concurrency": 3})
        await world.answer(echo=0)
        jobs = [item(world, sleep_s=30.0, echo=number) for number in range(2)]
        assert (await world.answer(echo=1))["echo"] == 1  # there was a place for it
        jobs.append(item(world, sleep_s=30.0, echo=2))
        assert (await world.answer(echo=3))["echo"] == 3
        with pytest.raises(Busy):
            await jobs[2].result()
        assert [(await job.result())["echo"] for job in jobs[:2]] == [0, 1]


@virtual
async def test_all_items_leave_a_batch_to_whoever_comes():
    async with World() as world:
        world.put(serving={"max_batch": 8})
        await world.answer(echo=0)
        await asyncio.sleep(20)
        assert most(world, "@test/a") == 8
        jobs = [item(world, sleep_s=30.0, echo=number) for number in range(5)]
        await asyncio.sleep(1)
        assert (await world.answer(echo=1, sleep_s=0.5))["echo"] == 1
        for job in jobs:
            with pytest.raises(Busy, match="gave way"):
                await job.result()
        assert most(world, "@test/a") == 0, "there is one lane, and it is for whoever comes next"


@virtual
async def test_an_item_that_is_all_but_done_is_let_go_on():
    async with World(job_delay_s=0.5) as world:
        world.put()
        for _ in range(8):
            await world.answer(sleep_s=1.0)
        job = item(world, sleep_s=1.0, echo="job")
        await asyncio.sleep(0.7)
        assert (await world.answer(echo="request"))["echo"] == "request"
        assert (await job.result())["echo"] == "job"


@virtual
async def test_a_request_of_low_priority_gives_way_to_nobody():
    async with World() as world:
        world.put()
        await world.answer(echo=0)
        overdue = world.ask(account="batch", priority=Priority.LOW, sleep_s=5.0, echo="overdue")
        await asyncio.sleep(0.1)
        await world.answer(echo=1)
        assert (await overdue.result())["echo"] == "overdue"


@virtual
async def test_places_are_left_to_those_who_ask_and_given_back_in_a_lull():
    async with World() as world:
        world.put(serving={"concurrency": 4})
        await world.answer(echo=0)
        await asyncio.sleep(20)
        assert most(world, "@test/a") == 4
        for _ in range(20):
            caller = world.ask(sleep_s=0.2)
            assert most(world, "@test/a") == 2
            await caller.result()
        await asyncio.sleep(20)
        assert most(world, "@test/a") == 4


@virtual
async def test_items_are_no_traffic_that_others_leave_places_to():
    async with World() as world:
        world.put(serving={"concurrency": 4})
        await world.answer(echo=0)
        await asyncio.sleep(20)
        jobs = [item(world, sleep_s=1.0) for _ in range(4)]
        assert most(world, "@test/a") == 4
        for job in jobs:
            await job.result()


@virtual
async def test_a_model_is_not_loaded_for_a_job_into_memory_that_others_ask_for():
    async with World(max_resident=1) as world:
        world.put()
        world.put("@test/b")
        assert most(world, "@test/b") == 1
        await world.answer(echo=0)
        await world.ask("@test/b", account="batch", priority=Priority.JOB, echo=0).result()
        for _ in range(10):
            await world.answer(echo=0)
            assert most(world, "@test/b") == 0
            await asyncio.sleep(0.5)
        await asyncio.sleep(20)
        assert most(world, "@test/b") == 1, "nobody asks any more"
