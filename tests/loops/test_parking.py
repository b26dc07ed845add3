"""Instances without work are stopped, and nobody notices. The fake runner asserts that it isn't stopped at its work."""

import asyncio
import random
import signal

import pytest

from fornada.core.names import ModelName
from tests.bounds import count
from tests.loops.fake_runner import Behaviour
from tests.loops.virtual import virtual
from tests.loops.world import World, now

A = ModelName("@test/a")


def parked(world: World, name: str = "@test/a") -> bool:
    (instance,) = world.node.view(ModelName(name)).instances
    (runner,) = [runner for runner in world.keeper.runners(name) if runner.process.alive]
    assert instance["parked"] == runner.stopped
    return bool(instance["parked"])


@virtual
async def test_an_instance_without_work_is_parked_and_its_next_request_finds_it_ready():
    async with World(park_after_s=2) as world:
        world.put()
        await world.answer(echo=1)
        last = now()
        await world.until(lambda: parked(world))
        assert now() - last == pytest.approx(2.0, abs=0.2)
        assert world.state() == "ready"
        assert world.metric("fornada_instances_parked") == 1
        assert "stopped until the next request comes" in world.node.view(A).why
        assert world.node.why(A)["process"]["parked"] is True
        assert (await world.answer(echo=2, timeout_s=0.1))["echo"] == 2
        assert not parked(world)
        assert world.metric("fornada_instances_parked") == 0
        await world.until(lambda: parked(world))


@virtual
async def test_requests_that_come_together_to_a_parked_instance_are_all_answered():
    async with World(park_after_s=1) as world:
        world.put(serving={"queue": 64}, behaviour=Behaviour(ahead=8))
        await world.answer(echo=0)
        await world.until(lambda: parked(world))
        callers = [world.ask(echo=number, sleep_s=0.01, timeout_s=5.0) for number in range(40)]
        assert [(await caller.result())["echo"] for caller in callers] == list(range(40))
        (runner,) = world.keeper.runners()
        assert runner.process.signals == [signal.SIGSTOP, signal.SIGCONT]


@virtual
async def test_who_does_not_want_to_wait_is_served_by_a_parked_instance():
    async with World(park_after_s=1) as world:
        world.put()
        await world.answer(echo=0)
        await world.until(lambda: parked(world))
        assert (await world.answer(echo=1, reject_if_busy=True, timeout_s=0.1))["echo"] == 1


@virtual
async def test_nothing_that_works_is_parked():
    async with World(park_after_s=1) as world:
        world.put(serving={"concurrency": 2})
        stream = world.ask(steps=5, step_s=1.0)
        await asyncio.sleep(4.0)
        assert not parked(world)
        await stream.result()
        await world.until(lambda: parked(world))
        # Its caller leaves; the runner goes on with what can't be interrupted.
        left = world.ask(stuck_s=6.0)
        await asyncio.sleep(0.1)
        left.leave()
        await asyncio.sleep(5.0)
        assert not parked(world)
        await world.until(lambda: parked(world))


@virtual
async def test_an_author_and_an_operator_can_decline():
    async with World(park_after_s=1) as world:
        world.put(serving={"park": False})
        await world.answer(echo=1)
        await asyncio.sleep(10.0)
        assert not parked(world)
        assert world.keeper.runners()[0].assignment["rest_after_s"] == 0
    async with World(park_after_s=0) as world:
        world.put()
        await world.answer(echo=1)
        await asyncio.sleep(10.0)
        assert not parked(world)
        assert world.keeper.runners()[0].assignment["rest_after_s"] == 0


@virtual
async def test_a_runner_rests_before_it_is_stopped():
    async with World(park_after_s=10) as world:
        world.put()
        await world.answer(echo=1)
        assert world.keeper.runners()[0].assignment["rest_after_s"] == 8.0


@virtual
async def test_what_is_kept_is_parked_too():
    async with World(park_after_s=1) as world:
        world.put(serving={"min_instances": 1})
        await world.until_state("ready")
        await world.until(lambda: parked(world))
        await asyncio.sleep(1000.0)
        assert world.state() == "ready"


@virtual
async def test_an_unload_and_idleness_end_a_parked_instance_in_order():
    async with World(park_after_s=1) as world:
        world.put(serving={"idle_timeout_s": 3})
        await world.answer(echo=1)
        await world.until(lambda: parked(world))
        began = now()
        await world.node.unload(A, grace_s=None)
        assert now() - began < 0.5
        assert world.keeper.processes[-1].signals == [signal.SIGSTOP, signal.SIGCONT]
        await world.answer(echo=1)
        await world.until(lambda: parked(world))
        await world.until_state("stopped")
        assert world.keeper.processes[-1].signals == [signal.SIGSTOP, signal.SIGCONT]


@virtual
async def test_a_parked_instance_that_dies_is_loaded_again():
    async with World(park_after_s=1) as world:
        world.put()
        await world.answer(echo=1)
        await world.until(lambda: parked(world))
        world.keeper.processes[-1].runner.die(signal=9)
        await world.until(lambda: not world.node.view(A).instances)
        assert (await world.answer(echo=2, timeout_s=30.0))["echo"] == 2
        await world.until(lambda: parked(world))


@virtual
async def test_a_successor_finds_it_running_and_parks_it_again():
    async with World(park_after_s=1) as world:
        world.put()
        await world.answer(echo=1)
        await world.until(lambda: parked(world))
        keeper, catalog = await world.crash()
    async with World(keeper=keeper, catalog=catalog, clock=world.clock, park_after_s=1) as successor:
        await successor.until_state("ready")
        (process,) = keeper.adopted
        await successor.until(lambda: process.runner.stopped)
        assert successor.node.view(A).instances[0]["parked"]
        assert (await successor.answer(echo=2, timeout_s=0.1))["echo"] == 2


@virtual
async def test_what_a_predecessor_had_asked_for_is_not_parked_before_it_is_done():
    async with World(park_after_s=1) as world:
        world.put()
        await world.answer(echo=1)
        world.ask(stuck_s=5.0)
        await asyncio.sleep(0.1)
        keeper, catalog = await world.crash()
    async with World(keeper=keeper, catalog=catalog, clock=world.clock, park_after_s=1) as successor:
        await successor.until_state("ready")
        (process,) = keeper.adopted
        await successor.until(lambda: process.runner.stopped)
        assert (await successor.answer(echo=2, timeout_s=0.1))["echo"] == 2


@virtual
async def test_a_request_at_any_moment_around_the_parking_is_answered():
    chance = random.Random(7)
    async with World(park_after_s=0.5) as world:
        world.put(behaviour=Behaviour(ahead=4))
        await world.answer(echo=0)
        for number in range(count(200, long=2000)):
            await asyncio.sleep(chance.choice([0.48, 0.4999, 0.5, 0.5001, 0.52, 0.6]) + chance.uniform(-0.01, 0.01))
            callers = [world.ask(echo=number, timeout_s=5.0) for _ in range(chance.randint(1, 3))]
            assert [(await caller.result())["echo"] for caller in callers] == [number] * len(callers)
        assert len(world.keeper.processes) == 1
        assert world.keeper.processes[0].signals.count(signal.SIGSTOP) > 50, "it was hardly ever parked: this proves nothing"


@virtual
async def test_nothing_is_parked_while_a_predecessor_is_still_attached():
    async with World(park_after_s=1) as world:
        world.keeper.predecessor = True
        world.put()
        await world.answer(echo=1)
        await asyncio.sleep(10.0)
        assert not parked(world)
        world.keeper.predecessor = False
        await world.until(lambda: parked(world))
