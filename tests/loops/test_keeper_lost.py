"""The keeper has gone: this control plane is about to end, says so to everybody who waits, and blames no model."""

import asyncio

import pytest

from fornada.core.errors import Unavailable
from fornada.core.names import Instant, ModelName
from tests.loops.fake_runner import Behaviour
from tests.loops.virtual import virtual
from tests.loops.world import World, now

A = ModelName("@test/a")
LONG = 100.0


def lose_the_keeper(world: World) -> None:
    """As KeeperClient does it: who waits for a process is told first."""
    world.keeper.go()
    world.node.keeper_lost("gone")


def nobody_is_blamed(world: World) -> None:
    """The log says once what it was."""
    assert [told["reason"] for told in world.happened("node.keeper_lost")] == ["gone"]
    assert not world.happened("model.failed")
    assert not world.happened("internal.fault")
    assert world.node.why(A)["last_failure"] is None


@virtual
@pytest.mark.parametrize("moment", ["a build", "a spawn"])
async def test_who_waits_for_a_model_that_is_coming_up_is_told_at_once(moment: str):
    async with World() as world:
        world.put()
        if moment == "a build":
            world.provision.build_s = 5.0
        callers = [world.ask(echo=number) for number in range(3)]
        loading = asyncio.create_task(world.node.load(A, deadline=Instant(now() + LONG)))
        await asyncio.sleep(0.005)
        lose_the_keeper(world)
        for waiting in [*(caller.result() for caller in callers), loading]:
            with pytest.raises(Unavailable, match="has lost the process that starts its models") as refused:
                await waiting
            assert refused.value.retry_after_s is not None
        await asyncio.sleep(10.0)
        nobody_is_blamed(world)


@virtual
async def test_what_runs_is_answered_while_it_is_heard_and_nothing_new_is_taken():
    async with World() as world:
        world.put(serving={"concurrency": 2})
        await world.answer(echo=1)
        working = world.ask(sleep_s=1.0)
        await asyncio.sleep(0.1)
        lose_the_keeper(world)
        with pytest.raises(Unavailable, match="has lost"):
            await world.answer(echo=2)
        await working.result()
        nobody_is_blamed(world)


@virtual
async def test_a_model_that_is_to_be_kept_is_not_tried_again_and_again():
    async with World() as world:
        world.put(serving={"min_instances": 1}, behaviour=Behaviour(load_s=1.0))
        await world.until_state("pending")
        lose_the_keeper(world)
        builds = world.provision.builds
        await asyncio.sleep(10.0)
        assert world.provision.builds == builds
        nobody_is_blamed(world)


@virtual
async def test_a_drain_waits_for_no_end_that_nobody_would_hear_of():
    async with World(drain_s=60.0) as world:
        world.put(behaviour=Behaviour(ignores_sigterm=True))
        await world.answer(echo=1)
        lose_the_keeper(world)
        began = now()
        await world.node.drain(60.0)
        assert now() - began < 1.0
