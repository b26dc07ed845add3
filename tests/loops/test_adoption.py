"""A control plane that was killed: its successor finds every process, and every process goes on."""

import asyncio
import signal

import pytest

from fornada.core.errors import LoadFailed
from fornada.core.names import ModelName
from fornada.core.settings import FakeDeviceSettings
from tests.loops.fake_runner import Behaviour
from tests.loops.virtual import virtual
from tests.loops.world import World, now

A = ModelName("@test/a")
GIB = 1024**3


async def successor(world, **settings):
    keeper, catalog = await world.crash()
    keeper.behaviours = world.keeper.behaviours
    return World(keeper=keeper, catalog=catalog, **settings)


@virtual
async def test_ready_models_keep_their_process_and_serve_on():
    async with World() as world:
        world.put()
        world.put("@test/b")
        before = [await world.answer(name, echo=1) for name in ("@test/a", "@test/b")]
        async with await successor(world) as after:
            began = now()
            again = [await after.answer(name, echo=1) for name in ("@test/a", "@test/b")]
            assert now() - began < 0.1
            assert [(answer["pid"], answer["instance"], answer["load_count"]) for answer in again] == [
                (answer["pid"], answer["instance"], answer["load_count"]) for answer in before
            ]
            assert after.node.view(A).instances[0]["loads"] == 1
            assert after.keeper.processes == []


@virtual
async def test_why_says_of_an_adopted_process_what_it_said_before():
    async with World() as world:
        world.put()
        await world.answer(echo=1)
        before = world.node.why(A)["process"]
        assert "python" in before["alone_because"]
        async with await successor(world) as after:
            assert after.node.why(A)["process"] == before


@virtual
async def test_a_load_goes_on_under_the_successor():
    async with World() as world:
        world.put(behaviour=Behaviour(load_s=5.0, warmup_s=1.0))
        world.ask(echo=1)
        await asyncio.sleep(2.0)
        async with await successor(world) as after:
            began = now()
            assert (await after.answer(echo=2))["load_count"] == 1
            assert now() - began == pytest.approx(4.1, abs=0.2)
            assert after.keeper.processes == []


@virtual
@pytest.mark.parametrize("after_s", [0.0, 0.01, 0.03, 0.045, 0.3, 0.7])
async def test_a_control_plane_that_ends_in_the_midst_of_a_load_begins_nothing_more(after_s):
    async with World() as world:
        world.provision.build_s = world.provision.fetch_s = 0.02
        world.put(behaviour=Behaviour(load_s=0.5, warmup_s=0.2))
        world.ask(echo=1)
        await asyncio.sleep(after_s)
        keeper, catalog = await world.crash()
        began = len(keeper.adopted)
        await asyncio.sleep(100.0)
        assert world.keeper.processes == [] and [process.signals for process in keeper.adopted] == [[]] * began
        async with World(keeper=keeper, catalog=catalog) as after:
            assert (await after.answer(echo=2))["echo"] == 2
            assert len(after.keeper.adopted) + len(after.keeper.processes) == 1


@virtual
async def test_a_control_plane_that_ends_makes_room_for_nobody_any_more():
    fakes = [FakeDeviceSettings(total="10GiB")]
    async with World(fakes=fakes) as world:
        world.put(behaviour=Behaviour(books=7 * GIB), resources={"device_memory": "7GiB"})
        world.put("@test/b", resources={"device_memory": "6GiB"})
        pid = (await world.answer(echo=1))["pid"]
        await world.node.pin(A, pinned=True)
        world.ask("@test/b", echo=1)
        await asyncio.sleep(0.1)
        await world.node.pin(A, pinned=False)
        async with await successor(world, fakes=fakes) as after:
            await asyncio.sleep(5.0)
            assert signal.SIGTERM not in after.keeper.adopted[0].signals
            assert (await after.answer(echo=2))["pid"] == pid


@virtual
async def test_requests_of_the_dead_control_plane_are_cancelled_counted_and_free_their_places():
    async with World() as world:
        world.put(serving={"concurrency": 20})
        await world.answer(echo=1)
        lost = [world.ask(sleep_s=30.0) for _ in range(15)] + [world.ask(steps=1000, step_s=0.1) for _ in range(5)]
        await asyncio.sleep(1.0)
        async with await successor(world) as after:
            began = now()
            assert (await after.answer(echo=2))["echo"] == 2
            assert now() - began < 0.5
            await asyncio.sleep(1.0)
            assert after.metric("fornada_requests_orphaned_total") >= 20
            runner = after.keeper.adopted[0].runner
            assert not runner.kept or len(runner.kept) == 1
        assert not any(caller.answered for caller in lost)


@virtual
async def test_an_answer_that_nobody_acknowledged_is_acknowledged_by_the_successor():
    async with World() as world:
        world.put()
        await world.answer(echo=1)
        working = world.ask(sleep_s=0.5)
        await asyncio.sleep(0.1)
        keeper, catalog = await world.crash()
        await asyncio.sleep(1.0)
        async with World(keeper=keeper, catalog=catalog) as after:
            await after.answer(echo=2)
            await asyncio.sleep(0.1)
            assert after.keeper.adopted[0].runner.kept == {}
            assert after.metric("fornada_requests_orphaned_total") >= 1
        assert not working.done.is_set()


@virtual
async def test_a_process_that_ended_meanwhile_is_forgotten_and_nothing_is_blamed_on_the_model():
    async with World() as world:
        world.put()
        await world.answer(echo=1)
        world.keeper.processes[0].signal(9)
        keeper, catalog = await world.crash()
        async with World(keeper=keeper, catalog=catalog) as after:
            assert after.state() == "stopped"
            assert after.keeper.adopted[0].forgotten
            assert (await after.answer(echo=1))["load_count"] == 2


@virtual
async def test_a_process_whose_model_is_gone_is_ended():
    async with World() as world:
        world.put()
        await world.answer(echo=1)
        keeper, catalog = await world.crash()
        catalog.changed = lambda name: None
        catalog.forget("@test/a")
        async with World(keeper=keeper, catalog=catalog) as after:
            await after.until(lambda: not after.keeper.alive)
            assert after.keeper.adopted[0].signals == [15]


@virtual
async def test_an_old_version_serves_until_the_stable_one_is_ready_across_a_restart():
    async with World() as world:
        first = world.put()
        await world.answer(echo=1)
        second = world.put(behaviour=Behaviour(load_s=3.0))
        async with await successor(world) as after:
            assert (await after.answer(echo=1))["load_count"] == 1
            assert after.node.view(A).version == first.digest
            await after.until(lambda: after.node.view(A).version == second.digest)
            assert (await after.answer(echo=1))["load_count"] == 2


@pytest.mark.parametrize("stable_runs", [True, False], ids=["stable runs", "stable doesn't run"])
@virtual
async def test_an_older_version_that_was_loaded_by_its_digest_stays_and_takes_nobody_s_place(stable_runs):
    async with World() as world:
        older = world.put()
        newer = world.catalog.deploy("@test/a")
        if stable_runs:
            assert (await world.answer(echo=1))["echo"] == 1
        pid = (await world.answer(version=older.digest, echo=1))["pid"]
        async with await successor(world) as after:
            await asyncio.sleep(20.0)
            assert after.node.view(A).version == newer.digest
            assert (await after.answer(version=older.digest, echo=1))["pid"] == pid
            assert (await after.answer(echo=1))["pid"] != pid
            await asyncio.sleep(20.0)
            assert (await after.answer(version=older.digest, echo=1))["pid"] == pid


@virtual
async def test_a_load_that_failed_meanwhile_backs_off_under_the_successor_too():
    async with World() as world:
        world.put(behaviour=Behaviour(load_s=2.0, fails="broken"))
        world.ask(echo=1)
        await asyncio.sleep(1.0)
        async with await successor(world) as after:
            with pytest.raises(LoadFailed, match="broken"):
                await after.answer(echo=1)
            assert after.state() == "failed"


@virtual
async def test_device_memory_of_adopted_processes_is_counted_and_comes_back():
    fakes = [FakeDeviceSettings(total="10GiB")]
    async with World(fakes=fakes) as world:
        world.put(behaviour=Behaviour(books=7 * GIB), resources={"device_memory": "7GiB"})
        world.put("@test/b", behaviour=Behaviour(books=6 * GIB), resources={"device_memory": "6GiB"})
        await world.answer(echo=1)
        async with await successor(world, fakes=fakes) as after:
            await after.answer(echo=1)
            assert after.node.devices()[1]["used_bytes"] == 7 * GIB
            assert (await after.answer("@test/b", echo=1))["echo"] == 1
            assert after.node.devices()[1]["used_bytes"] == 6 * GIB


@virtual
async def test_models_that_are_to_be_there_come_up_with_the_node():
    async with World() as world:
        world.put(serving={"min_instances": 1})
        await world.until_state("ready")
        await world.node.drain(1.0)
        async with World(catalog=world.catalog) as after:
            await after.until_state("ready", within_s=1.0)


@virtual
@pytest.mark.parametrize("turned", [False, True], ids=["old first", "new first"])
@pytest.mark.parametrize("bad", [False, True], ids=["good", "bad"])
async def test_a_deploy_that_was_under_way_goes_on_whichever_process_is_found_first(bad, turned):
    async with World() as world:
        old = world.put()
        await world.answer(echo=1)
        new = world.put(behaviour=Behaviour(load_s=5.0, fails="no weights" if bad else ""))
        world.catalog.changed(new.model)
        await asyncio.sleep(1.0)
        after = await successor(world)
        if turned:
            after.keeper.adopted = list(reversed(after.keeper.adopted))
        async with after:
            assert len(after.keeper.adopted) == 2
            began = now()
            assert (await after.answer(echo=2))["load_count"] == 1
            assert now() - began < 0.1, "the old version serves on"
            await asyncio.sleep(10.0)
            serving = after.node.view(A).version
            assert serving == (old if bad else new).digest
            assert (await after.answer(echo=3))["load_count"] == (1 if bad else 2)
            assert len(after.keeper.alive) == 1
