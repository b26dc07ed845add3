"""A model with more to do than one instance can: further ones come into free room, share its line, and go again."""

import asyncio
import signal

import pytest

from fornada.core.errors import FornadaError, Unavailable
from fornada.core.names import ModelName
from fornada.core.settings import FakeDeviceSettings
from tests.loops.fake_runner import Behaviour
from tests.loops.test_adoption import successor
from tests.loops.virtual import virtual
from tests.loops.world import World, now

A = ModelName("@test/a")
GIB = 1024**3
ELASTIC = {"max_instances": 3, "idle_timeout_s": 5, "queue": 200}


def device(total: int, *others: int) -> list[FakeDeviceSettings]:
    return [FakeDeviceSettings(total=f"{count}GiB") for count in (total, *others)]


def wishing(gib: int) -> dict:
    return {"resources": {"device": "cuda", "device_memory": f"{gib}GiB"}, "behaviour": Behaviour(books=gib * GIB)}


def states(world: World, name: str = "@test/a") -> list[str]:
    return [instance["state"] for instance in world.node.view(ModelName(name)).instances]


def ready(world: World, name: str = "@test/a") -> int:
    return states(world, name).count("ready")


async def flood(world: World, *, requests: int = 30, sleep_s: float = 1.0) -> list:
    """The first answer, and the callers of what waits behind it."""
    await world.answer(echo=0)
    return [world.ask(echo=number, sleep_s=sleep_s) for number in range(requests)]


@virtual
async def test_instances_come_with_the_queue_share_its_work_and_go_when_it_is_over():
    async with World() as world:
        world.put(serving=ELASTIC)
        callers = await flood(world)
        took_s = await world.until(lambda: ready(world) == 3, within_s=5.0)
        answers = [await caller.result() for caller in callers]
        assert [answer["echo"] for answer in answers] == list(range(30))
        counts = sorted(len([answer for answer in answers if answer["pid"] == pid]) for pid in {answer["pid"] for answer in answers})
        assert len(counts) == 3 and counts[0] >= 7, (counts, took_s)
        assert [caller.at for caller in callers] == sorted(caller.at for caller in callers), (
            "they are served in the order in which they came"
        )
        assert world.metric("fornada_model_loads_total", outcome="ok") == 3
        await world.until(lambda: ready(world) == 1, within_s=12.0)
        assert world.state() == "ready" or world.state() == "stopping"
        await world.until_state("stopped", within_s=12.0)


@virtual
async def test_one_instance_is_the_most_unless_the_model_says_otherwise():
    async with World() as world:
        world.put(serving={"queue": 200})
        callers = await flood(world)
        for caller in callers:
            await caller.result()
        assert len(world.keeper.processes) == 1


@virtual
async def test_nobody_goes_for_a_second_instance():
    async with World(fakes=device(8)) as world:
        world.put(serving=ELASTIC, **wishing(3))
        world.put("@test/idle", serving={"idle_timeout_s": 10_000}, **wishing(3))
        await world.answer("@test/idle", echo=1)
        for caller in await flood(world):
            await caller.result()
        assert len(world.keeper.runners("@test/a")) == 1 and world.state("@test/idle") == "ready"
        assert world.metric("fornada_evictions_total") == 0


@virtual
async def test_a_further_instance_is_the_first_to_go_when_somebody_wants_the_room():
    async with World(fakes=device(8)) as world:
        world.put(serving=ELASTIC | {"idle_timeout_s": 10_000}, **wishing(3))
        world.put("@test/b", **wishing(3))
        for caller in await flood(world):
            await caller.result()
        assert ready(world) == 2
        assert (await world.answer("@test/b", echo=1))["echo"] == 1
        assert world.state() == "ready" and ready(world) == 1 and ready(world, "@test/b") == 1
        assert world.metric("fornada_evictions_total", reason="room") == 1
        assert world.room.charged().keys() == {"cuda:0"}


@virtual
async def test_instances_spread_over_devices():
    async with World(fakes=device(8, 8)) as world:
        world.put(serving=ELASTIC | {"max_instances": 2}, **wishing(5))
        for caller in await flood(world):
            await caller.result()
        assert sorted(instance["device"] for instance in world.node.view(A).instances) == ["cuda:0", "cuda:1"]


@virtual
@pytest.mark.parametrize("which", ["first", "further"])
async def test_the_death_of_one_costs_nobody_but_its_own_callers_anything(which):
    async with World() as world:
        world.put(serving=ELASTIC | {"max_instances": 2})
        callers = await flood(world)
        await world.until(lambda: ready(world) == 2)
        await asyncio.sleep(0.1)
        world.keeper.processes[0 if which == "first" else 1].runner.die(signal=signal.SIGKILL)
        await asyncio.sleep(0.05)
        assert world.state() == "ready", "another one serves"
        results = await asyncio.gather(*(caller.result() for caller in callers), return_exceptions=True)
        lost = [result for result in results if isinstance(result, FornadaError)]
        assert len(lost) == 1, lost
        assert ready(world) == 2, "one came in its place"


@virtual
async def test_an_unload_ends_them_all_and_a_request_brings_one_back():
    async with World() as world:
        world.put(serving=ELASTIC)
        callers = await flood(world)
        await world.until(lambda: ready(world) == 3)
        await world.node.unload(A, grace_s=0.0)
        assert not world.keeper.alive and states(world) == []
        results = await asyncio.gather(*(caller.result() for caller in callers), return_exceptions=True)
        assert any(isinstance(result, Unavailable) for result in results)
        await asyncio.sleep(10.0)
        assert not world.keeper.alive
        assert (await world.answer(echo=1))["echo"] == 1 and len(world.keeper.alive) == 1


@virtual
async def test_a_new_version_takes_over_from_all_of_them():
    async with World() as world:
        old = world.put(serving=ELASTIC)
        callers = await flood(world)
        await world.until(lambda: ready(world) == 3)
        new = world.catalog.deploy("@test/a", serving=ELASTIC)
        assert [(await caller.result())["echo"] for caller in callers] == list(range(30)), "nobody is lost by it"
        await world.until(lambda: all(i["version"] == new.digest for i in world.node.view(A).instances), within_s=60.0)
        assert old.digest != new.digest and world.state() == "ready"


@virtual
async def test_a_removed_model_leaves_nothing():
    async with World() as world:
        world.put(serving=ELASTIC)
        callers = await flood(world)
        await world.until(lambda: ready(world) == 3)
        world.catalog.forget("@test/a")
        await asyncio.gather(*(caller.result() for caller in callers), return_exceptions=True)
        await world.until(lambda: not world.keeper.alive and not world.room.holders(), within_s=60.0)


@virtual
async def test_a_successor_finds_all_of_them_and_ends_what_is_superfluous():
    async with World(fakes=device(16)) as world:
        world.put(serving=ELASTIC, **wishing(3))
        callers = await flood(world, requests=60)
        await world.until(lambda: ready(world) == 3)
        pids = {process.pid for process in world.keeper.alive}
        for caller in callers:
            caller.leave()
        async with await successor(world, fakes=device(16)) as after:
            await after.until(lambda: ready(after) == 3, within_s=5.0)
            assert {process.pid for process in after.keeper.alive} == pids
            assert {instance["pid"] for instance in after.node.view(A).instances} == pids
            assert sum(charges.device.bytes for _, charges in after.room.holders()["cuda:0"]) == 9 * GIB
            assert (await after.answer(echo=1))["echo"] == 1
            await after.until(lambda: ready(after) == 1, within_s=15.0)


@virtual
async def test_as_many_as_min_instances_asks_for_are_there_and_stay():
    async with World(fakes=device(8)) as world:
        world.put(serving={"min_instances": 2, "max_instances": 2, "idle_timeout_s": 1}, **wishing(3))
        await world.until(lambda: ready(world) == 2, within_s=5.0)
        await asyncio.sleep(30.0)
        assert ready(world) == 2 and len(world.keeper.processes) == 2
        world.put("@test/b", **wishing(3))
        caller = world.ask("@test/b", echo=1)
        await asyncio.sleep(5.0)
        assert ready(world) == 2 and not caller.done.is_set(), "who is kept goes for nobody"
        caller.leave()


@virtual
async def test_a_further_instance_that_fails_to_come_harms_nobody_and_is_not_tried_at_once():
    async with World() as world:
        world.put(serving=ELASTIC, behaviour=lambda launch: Behaviour(fails="" if launch.assignment["load_attempt"] == 1 else "no"))
        callers = await flood(world)
        assert [(await caller.result())["echo"] for caller in callers] == list(range(30))
        assert world.state() == "ready" and ready(world) == 1
        assert len(world.keeper.processes) <= 1 + 2 + 2, "two at once, and once more after half a minute"


@virtual
async def test_a_parked_instance_goes_on_when_the_line_wants_it():
    async with World(park_after_s=1.0) as world:
        world.put(serving=ELASTIC | {"max_instances": 2, "idle_timeout_s": 100})
        for caller in await flood(world):
            await caller.result()
        await world.until(lambda: world.metric("fornada_instances_parked") == 2, within_s=20.0)
        began = now()
        both = [world.ask(echo=number, sleep_s=1.0) for number in range(2)]
        pids = {(await caller.result())["pid"] for caller in both}
        assert len(pids) == 2 and now() - began < 1.5
