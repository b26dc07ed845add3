"""A second version of a name: warm before it takes over, and a bad one leaves the old in place."""

import asyncio

import pytest

from fornada.core.errors import LoadFailed, UnknownModel
from fornada.core.names import Instant, ModelName
from tests.loops.fake_runner import Behaviour
from tests.loops.virtual import virtual
from tests.loops.world import World, now

A = ModelName("@test/a")


def soon(seconds):
    return Instant(now() + seconds)


def deploy(world, *, behaviour=None, **tables):
    version = world.put(behaviour=behaviour, **tables)
    world.catalog.changed(A)
    return version


@virtual
async def test_a_deploy_builds_at_once_and_loads_nothing():
    async with World() as world:
        world.provision.build_s = 2.0
        deploy(world)
        assert world.state() == "pending"
        await world.until_state("stopped")
        assert (world.provision.builds, world.keeper.processes) == (1, [])


@virtual
async def test_a_new_version_takes_over_when_it_is_warm_and_nobody_notices():
    async with World() as world:
        first = deploy(world)
        await world.answer(echo=1)
        going, served = True, []

        async def client():
            while going:
                served.append((await world.answer(sleep_s=0.05))["instance"])

        clients = [asyncio.ensure_future(client()) for _ in range(4)]
        await asyncio.sleep(0.5)
        second = deploy(world, behaviour=Behaviour(load_s=3.0))
        await asyncio.sleep(1.0)
        assert (world.state(), world.node.view(A).version) == ("ready", first.digest)
        assert world.node.why(A)["incoming"]["version"] == second.digest
        await world.until(lambda: world.node.view(A).version == second.digest)
        await asyncio.sleep(1.0)
        going = False
        await asyncio.gather(*clients)
        old, new = world.keeper.processes
        assert served == sorted(served, key=lambda instance: instance == new.instance)
        assert {old.instance, new.instance} == set(served)
        assert world.keeper.alive == [new]


@virtual
async def test_a_stream_of_the_old_version_ends_by_itself():
    async with World() as world:
        deploy(world)
        stream = world.ask(steps=30, step_s=0.2)
        await world.until(lambda: stream.began)
        deploy(world)
        await stream.result()
        assert len(stream.items) == 30
        assert (await world.answer(echo=1))["instance"] == world.keeper.processes[1].instance


@virtual
async def test_a_bad_version_leaves_the_old_one_serving_and_shows_why():
    async with World() as world:
        first = deploy(world)
        pid = (await world.answer(echo=1))["pid"]
        bad = deploy(world, behaviour=Behaviour(load_s=1.0, fails="cannot import name 'x'"))
        for _ in range(30):
            assert (await world.answer(echo=1))["pid"] == pid
            await asyncio.sleep(0.1)
        view = world.node.view(A)
        assert (view.state, view.version) == ("ready", first.digest)
        assert f"Version {bad.digest[:12]} was not taken: cannot import name 'x'." in view.why
        assert {entry["version"]: entry["state"] for entry in view.versions} == {first.digest: "ready", bad.digest: "failed"}
        # The label went back: after a restart of everything the old one serves.
        entry = world.catalog.entry(A)
        assert entry is not None and entry.stable.digest == first.digest


@virtual
async def test_a_load_after_a_bad_deploy_is_the_old_version_and_one_during_it_tells_what_is_wrong():
    async with World() as world:
        deploy(world)
        await world.answer(echo=1)
        deploy(world, behaviour=Behaviour(load_s=1.0, fails="broken"))
        with pytest.raises(LoadFailed, match="broken"):
            await world.node.load(A, deadline=soon(10))
        assert (await world.node.load(A, deadline=soon(10))).state == "ready"


@virtual
async def test_a_bad_version_can_be_mended_by_another_deploy():
    async with World() as world:
        deploy(world)
        await world.answer(echo=1)
        deploy(world, behaviour=Behaviour(load_s=1.0, fails="broken"))
        await asyncio.sleep(0.5)
        good = deploy(world, behaviour=Behaviour(load_s=1.0))
        await world.until(lambda: world.node.view(A).version == good.digest)
        assert (await world.answer(echo=1))["echo"] == 1
        assert len(world.keeper.alive) == 1


@virtual
async def test_where_nothing_runs_the_next_request_is_the_new_versions():
    async with World() as world:
        deploy(world)
        await world.answer(echo=1)
        await world.node.unload(A, grace_s=0.0)
        second = deploy(world)
        await world.answer(echo=1)
        assert (world.node.view(A).version, len(world.keeper.processes)) == (second.digest, 2)


@virtual
async def test_who_waits_for_a_load_of_the_old_version_is_served_by_whichever_is_ready():
    async with World() as world:
        deploy(world, behaviour=Behaviour(load_s=5.0))
        callers = [world.ask(echo=number) for number in range(3)]
        await asyncio.sleep(1.0)
        deploy(world, behaviour=Behaviour(load_s=1.0))
        assert [(await caller.result())["echo"] for caller in callers] == [0, 1, 2]
        assert now() < 1005.0


@virtual
async def test_both_versions_share_one_place_among_the_resident_models():
    async with World(max_resident=1) as world:
        deploy(world)
        await world.answer(echo=1)
        second = deploy(world)
        await world.until(lambda: world.node.view(A).version == second.digest)
        assert world.metric("fornada_evictions_total") == world.metric("fornada_evictions_total", reason="deploy") == 1


@virtual
async def test_a_caller_may_insist_on_a_version():
    async with World() as world:
        first = deploy(world)
        second = deploy(world)
        answers = [await world.answer(echo=1, version=version.digest) for version in (first, second)]
        assert [answer["instance"] for answer in answers] == [process.instance for process in world.keeper.processes]
        with pytest.raises(UnknownModel):
            await world.answer(echo=1, version="f" * 64)


@virtual
async def test_a_removed_model_is_drained_and_its_queue_is_told():
    async with World() as world:
        deploy(world)
        working, waiting = world.ask(sleep_s=2.0), world.ask(echo=1)
        await world.until_state("ready")
        world.catalog.forget("@test/a")
        with pytest.raises(UnknownModel, match="has been removed"):
            await waiting.result()
        with pytest.raises(UnknownModel):
            await world.answer(echo=1)
        await working.result()
        await world.until(lambda: not world.keeper.alive)
        await world.until(lambda: '"@test/a"' not in world.telemetry.metrics.render().decode())
        deploy(world)
        assert (await world.answer(echo=1))["load_count"] == 2
        assert world.metric("fornada_model_loads_total", model="@test/a") == 1


@virtual
async def test_fifty_deploys_under_load_cost_no_request():
    async with World() as world:
        deploy(world)
        world.put("@test/untouched")
        pid = (await world.answer("@test/untouched", echo=1))["pid"]
        going = True

        async def client():
            while going:
                await world.answer(sleep_s=0.03)

        clients = [asyncio.ensure_future(client()) for _ in range(3)]
        for number in range(50):
            bad = number % 5 == 4
            deploy(world, digest=f"{number + 16:x}" * 32, behaviour=Behaviour(load_s=0.2, fails="broken" if bad else ""))
            await asyncio.sleep(0.1 * (number % 8))
        await asyncio.sleep(2.0)
        going = False
        await asyncio.gather(*clients)
        assert (await world.answer("@test/untouched", echo=1))["pid"] == pid
        assert len(world.keeper.alive) == 2


def restarted(world: World) -> World:
    """A node over the same catalogue, after everything of the old one has ended."""
    after = World(catalog=world.catalog)
    after.keeper.behaviours = world.keeper.behaviours
    return after


@virtual
async def test_a_deploy_that_a_restart_of_everything_interrupts_goes_on_beside_who_served():
    async with World() as world:
        first = deploy(world)
        await world.answer(echo=1)
        second = deploy(world, behaviour=Behaviour(load_s=3.0))
        await asyncio.sleep(1.0)
    async with restarted(world) as after:
        assert after.keeper.processes == [], "nothing is loaded before it is asked for"
        assert after.node.view(A).version == first.digest
        await after.answer(echo=1)
        assert after.node.view(A).version == first.digest, "what is not proven yet answers nobody"
        await after.until(lambda: after.node.view(A).version == second.digest)
        await after.answer(echo=1)
    async with restarted(after) as last:
        await last.answer(echo=1)
        assert last.node.view(A).version == second.digest
        assert len(last.keeper.processes) == 1


@virtual
async def test_a_bad_version_is_found_out_after_a_restart_of_everything_too():
    async with World() as world:
        first = deploy(world)
        await world.answer(echo=1)
        deploy(world, behaviour=Behaviour(load_s=3.0, fails="broken"))
        await asyncio.sleep(1.0)
    async with restarted(world) as after:
        for _ in range(20):
            await after.answer(echo=1)
            await asyncio.sleep(0.3)
        entry = after.catalog.entry(A)
        assert entry is not None and entry.stable.digest == first.digest, "the label has gone back"


@virtual
async def test_a_version_that_took_over_where_nothing_ran_serves_after_a_restart_too():
    async with World() as world:
        deploy(world)
        await world.answer(echo=1)
        await world.node.unload(A, grace_s=None)
        second = deploy(world)
    async with restarted(world) as after:
        await after.answer(echo=1)
        assert after.node.view(A).version == second.digest
        assert len(after.keeper.processes) == 1
