"""Instances that share a process, from the node's side: who is told to share, and what a common death is for each."""

import asyncio
from typing import Any

from fornada.core.names import ModelName
from tests.loops.fake_runner import Behaviour
from tests.loops.virtual import virtual
from tests.loops.world import World

A, B = ModelName("@test/a"), ModelName("@test/b")


def launches(world: World, model: str) -> list[Any]:
    return [process.launch for process in world.keeper.processes if process.launch.assignment["model"] == model]


def crash(world: World, *, code: int | None = None, signal: int | None = None, over_memory: bool = False) -> None:
    """The shared process dies, by default of a SIGSEGV: in this world each fake has one of its own."""
    signal = 11 if code is None and signal is None else signal
    for process in world.keeper.alive:
        process.runner.die(code=code, signal=signal, over_memory=over_memory, with_host=bool(process.launch.host))


async def two(world: World, **more: Any) -> None:
    for model in (A, B):
        world.put(model, engine="onnx", **more)
        await world.answer(model, echo=1)


@virtual
async def test_members_are_spawned_under_one_name_with_the_process_s_bounds_and_home():
    async with World(packed_memory="300MiB") as world:
        await two(world)
        (first,), (second,) = launches(world, A), launches(world, B)
        assert first.host == second.host == first.assignment["host"] == first.memo["host"] != ""
        assert first.cwd == second.cwd and first.cwd.endswith(f"{first.host}/home") and first.env["HOME"] == first.cwd
        assert first.limits == second.limits and first.limits.memory_bytes == 300 * 1024**2
        # The walls around the process let it write below its home and nowhere else.
        assert [each.assignment["scratch"] for each in (first, second)] == [f"{each.cwd}/{each.instance}" for each in (first, second)]
        assert [path.name for path in world.node._site.scratch.iterdir()] == [first.host]
        assert world.node.view(A).instances[0]["host"] == first.host
        process = world.node.why(A)["process"]
        assert (process["host"], process["others"], process["alone_because"]) == (first.host, 1, "")


@virtual
async def test_code_of_one_s_own_gets_a_process_of_one_s_own():
    async with World() as world:
        world.put(A)
        await world.answer(A, echo=1)
        assert launches(world, A)[0].host == "" and "host" not in launches(world, A)[0].memo
        assert "python" in world.node.why(A)["process"]["alone_because"]


@virtual
async def test_a_common_death_is_a_crash_for_who_worked_and_no_failure_for_who_rested():
    async with World() as world:
        await two(world)
        caller = world.ask(A, sleep_s=100)
        await asyncio.sleep(1)
        crash(world)
        await asyncio.sleep(1)
        assert "SIGSEGV" in str(caller.refused)
        assert world.node.why(A)["last_failure"]["kind"] == "crash"
        assert world.node.why(B)["last_failure"] is None and world.node.view(B).state == "stopped"
        await world.answer(A, echo=1)
        await world.answer(B, echo=1)
        assert launches(world, A)[1].host == launches(world, B)[1].host != launches(world, A)[0].host


@virtual
async def test_a_process_that_exits_with_code_0_is_as_dead_as_any_other():
    async with World() as world:
        await two(world)
        caller = world.ask(A, sleep_s=100)
        await asyncio.sleep(1)
        crash(world, code=0)
        await asyncio.sleep(1)
        assert "exit code 0, which the node had not asked it to" in str(caller.refused)
        assert world.node.why(B)["last_failure"] is None, "who rested is blamed"
        await world.answer(A, echo=1)
        assert launches(world, A)[1].host != launches(world, A)[0].host, "seated in a process that is dead"


@virtual
async def test_too_much_memory_of_all_together_is_told_as_that():
    async with World() as world:
        await two(world)
        caller = world.ask(A, sleep_s=100)
        await asyncio.sleep(1)
        crash(world, signal=9, over_memory=True)
        await asyncio.sleep(1)
        assert "raise [node] packed_memory" in str(caller.refused)


@virtual
async def test_who_worked_through_two_deaths_is_alone_until_a_reset():
    async with World() as world:
        await two(world)
        for _ in range(2):
            world.ask(A, sleep_s=100)
            await asyncio.sleep(1)
            crash(world)
            await asyncio.sleep(1)
            await world.answer(A, echo=1)
            await world.answer(B, echo=1)
        assert launches(world, A)[-1].host == "" and launches(world, B)[-1].host != ""
        crash(world)  # of its own process: nobody else's business
        await asyncio.sleep(1)
        await world.node.reset(A)
        await world.answer(A, echo=1)
        await world.answer(B, echo=1)
        assert launches(world, A)[-1].host == launches(world, B)[-1].host != ""


@virtual
async def test_who_waited_for_its_load_is_loaded_again_without_having_failed():
    async with World() as world:
        world.put(A, engine="onnx", behaviour=Behaviour(load_s=10))
        caller = world.ask(A, echo=1)
        await asyncio.sleep(1)
        (instance,) = [instance for instance in world.node._instances() if instance.runner is not None]
        instance.runner.heard = False  # type: ignore[union-attr] # as if its host had never come to it
        crash(world)
        await asyncio.sleep(1)
        assert (await caller.result())["echo"] == 1
        assert world.node.why(A)["last_failure"] is None and len(launches(world, A)) == 2


@virtual
async def test_a_successor_puts_newcomers_beside_the_adopted():
    async with World() as world:
        await two(world)
        host = launches(world, A)[0].host
        keeper, catalog = await world.crash()
        async with World(keeper=keeper, catalog=catalog) as after:
            catalog.put("@test/c", engine="onnx")
            await after.answer("@test/c", echo=1)
            assert launches(after, "@test/c")[0].host == host
            assert after.node.why(ModelName("@test/c"))["process"]["others"] == 2


@virtual
async def test_a_growth_that_is_told_counts_as_its_memory():
    async with World() as world:
        await two(world)
        (instance,) = [instance for instance in world.node._instances() if instance.model == A]
        assert instance.runner is not None
        instance.runner.grown_bytes = 4096
        view = world.node.view(A)
        assert view.instances[0]["resident_bytes"] == 4096 and view.peak_bytes == 4096
        assert instance.runner.pid  # and never that of the whole process
