"""A bug of ours ends the instance that it befalls: whoever waits is told, and everything else goes on."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fornada.core.errors import InternalFault, RunnerDied
from fornada.core.lifecycle import events as e
from fornada.core.names import ModelName
from tests.loops.fake_runner import Behaviour
from tests.loops.virtual import virtual
from tests.loops.world import World

A = ModelName("@test/a")
LONG = Behaviour(load_s=5.0)


@contextmanager
def broken(world: World, thing: Any, method: str, *, when: Callable[..., bool] = lambda *_, **__: True) -> Iterator[None]:
    """`method` of `thing` raises where `when` says so of its arguments."""
    world.faulty = True
    real = getattr(thing, method)

    def fails(*arguments: Any, **named: Any) -> Any:
        if when(*arguments, **named):
            raise KeyError("a bug")
        return real(*arguments, **named)

    setattr(thing, method, fails)
    try:
        yield
    finally:
        setattr(thing, method, real)


def instance(world: World):
    (found,) = world.node._models[A].instances.values()
    return found


async def goes_on(world: World) -> None:
    """It can be loaded again, and nothing of the one that failed is left."""
    await world.until(lambda: not world.keeper.alive)
    await asyncio.sleep(5.0)
    assert (await world.answer(echo=1))["echo"] == 1
    assert len(world.keeper.alive) == 1
    await world.node.unload(A, grace_s=None)
    assert not world.keeper.alive
    assert not world.node._site.room.residents()


@virtual
async def test_a_failure_while_it_becomes_ready_is_told_to_everybody_who_waits():
    async with World() as world:
        world.put()
        with broken(world, world.node._site.hosts, "loaded"):
            waiting = [world.ask(echo=number) for number in range(3)]
            for caller in waiting:
                with pytest.raises(InternalFault, match="KeyError"):
                    await caller.result()
        assert world.state() == "failed"
        assert "internal fault" in world.node.view(A).why
        assert world.node.why(A)["last_failure"]["kind"] == "internal"
        (fault,) = world.happened("internal.fault")
        assert (fault["event"], fault["task"], fault["model"]) == ("internal.fault", "life OpenToWork", A)
        assert "in _open_to_work" in fault["story"]
        await goes_on(world)


@virtual
async def test_what_can_not_happen_ends_the_instance_and_no_other():
    async with World() as world:
        world.put()
        world.put("@test/b")
        await world.answer(echo=1)
        await world.answer("@test/b", echo=1)
        world.faulty = True
        caller, other = world.ask(sleep_s=10.0), world.ask("@test/b", sleep_s=1.0)
        await asyncio.sleep(0.1)
        instance(world).tell(e.Granted())
        with pytest.raises(RunnerDied, match="IllegalTransition"):
            await caller.result()
        await other.result()
        await world.node.unload(ModelName("@test/b"), grace_s=None)
        await goes_on(world)


@pytest.mark.parametrize("method", ["release", "claim"])
@virtual
async def test_a_failure_at_the_end_leaves_nobody_waiting(method):
    async with World() as world:
        world.put()
        await world.answer(echo=1)
        caller = world.ask(sleep_s=10.0)
        await asyncio.sleep(0.1)
        with broken(world, world.node._site.hosts, "left"), broken(world, world.node._site.room, method):
            world.keeper.runners()[0].die(signal=11)
            with pytest.raises(RunnerDied):
                await caller.result()
            await asyncio.sleep(1.0)
        await goes_on(world)


@pytest.mark.parametrize("work", ["build", "fetch", "spawn", "watch"])
@virtual
async def test_work_that_can_not_even_be_begun_fails(work):
    async with World() as world:
        world.put()

        def is_it(coroutine: Any, *, name: str) -> bool:
            if not name.startswith(work):
                return False
            coroutine.close()
            return True

        with broken(world, world.node._site.tasks, "start", when=is_it):
            with pytest.raises(InternalFault if work != "watch" else Exception, match="KeyError"):
                await world.answer(echo=1, timeout_s=50.0)
        await goes_on(world)


@virtual
async def test_a_process_that_can_not_be_taken_over_is_ended():
    async with World() as world:
        world.put()
        with broken(world, world.node._site.telemetry.metrics.request_seconds, "at", when=lambda _, what: what == "runner"):
            with pytest.raises(Exception, match="KeyError"):
                await world.answer(echo=1, timeout_s=50.0)
        await goes_on(world)


@virtual
async def test_a_failure_while_a_build_runs_waits_for_it_and_then_fails():
    async with World() as world:
        world.put()
        world.provision.build_s = 5.0
        caller = world.ask(echo=1)
        await asyncio.sleep(1.0)
        world.faulty = True
        instance(world).tell(e.Granted())
        with pytest.raises(InternalFault, match="IllegalTransition"):
            await caller.result()
        world.provision.build_s = 0.0
        await goes_on(world)


@virtual
async def test_a_failure_while_a_process_is_started_waits_for_it_and_ends_it():
    async with World() as world:
        world.put(behaviour=LONG)
        caller = world.ask(echo=1)
        await world.until(lambda: instance(world).life.state.value == "spawning")
        world.faulty = True
        instance(world).tell(e.Built())
        with pytest.raises(InternalFault, match="IllegalTransition"):
            await caller.result()
        await goes_on(world)


@virtual
async def test_the_heartbeat_goes_on_and_the_log_is_not_filled():
    async with World() as world:
        world.put()
        with broken(world, world.node._site.zygotes, "turn"):
            await asyncio.sleep(60.0)
            assert world.node.health().loop_age_s < 1.0
        await asyncio.sleep(15.0)
        with broken(world, world.node._site.zygotes, "turn"):
            await asyncio.sleep(1.0)
        told = world.happened("internal.fault")
        assert 6 <= len(told) <= 9
        assert 220 <= sum(1 + fault["since_last_told"] for fault in told) <= 250
