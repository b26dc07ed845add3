"""What a model leaves on disk is bounded as a sum, and whoever waits for it is told why it ended."""

import asyncio
import os
from typing import Any

import pytest

from fornada.core.errors import LoadFailed, RunnerDied
from fornada.core.names import ModelName
from fornada.node.disk_use import FILES_MOST
from tests.loops.fake_runner import Behaviour
from tests.loops.virtual import virtual
from tests.loops.world import World

A, B = ModelName("@test/a"), ModelName("@test/b")
MIB = 1024**2
DECLARED: Any = {"resources": {"scratch": "8MiB"}}
SOON_S = 11.0
"""A disk that others use as well may hide that somebody writes."""


def scratch_of(world, model="@test/a"):
    (runner,) = world.keeper.runners(model)
    return runner.assignment["scratch"]


def write(folder, name, size):
    with open(os.path.join(folder, name), "wb") as file:
        file.write(os.urandom(1024) * (size // 1024))


@virtual
async def test_many_files_that_hold_too_much_together_end_their_instance_alone():
    async with World() as world:
        world.put(**DECLARED)
        world.put("@test/b", **DECLARED)
        await world.answer(echo=1)
        await world.answer("@test/b", echo=1)
        caller, other = world.ask(sleep_s=60.0), world.ask("@test/b", sleep_s=20.0)
        folder = scratch_of(world)
        for number in range(4):
            write(folder, f"{number}", 4 * MIB)
        with pytest.raises(RunnerDied, match=r"its scratch holds 16 MiB, and \[resources\] scratch in model.toml allows 8 MiB"):
            await caller.result()
        await other.result()
        assert "its scratch holds 16 MiB" in world.node.view(A).why
        assert len(world.happened("instance.fault")) == 1
        await world.until(lambda: not os.path.exists(folder))
        assert (await world.answer(echo=2))["echo"] == 2


@virtual
async def test_as_much_as_was_declared_may_stay_and_many_files_may_not():
    async with World() as world:
        world.put(**DECLARED)
        await world.answer(echo=1)
        folder = scratch_of(world)
        write(folder, "all", 8 * MIB)
        await asyncio.sleep(3 * SOON_S)
        assert world.state() == "ready"
        write(folder, "first", 1024)
        for number in range(FILES_MOST + 1):
            os.link(os.path.join(folder, "first"), os.path.join(folder, f"{number}"))
        # A look at so many files takes real time, and the rest after it many times as much: on a busy machine seconds.
        await world.until(lambda: world.state() != "ready", within_s=200)
        assert "files" in world.node.view(A).why


@virtual
async def test_what_is_open_and_has_no_name_counts():
    async with World() as world:
        world.put(**DECLARED)
        await world.answer(echo=1)
        path = os.path.join(scratch_of(world), "nameless")
        write(*os.path.split(path), 16 * MIB)
        descriptor = os.open(path, os.O_RDONLY)
        os.unlink(path)
        await world.until(lambda: world.state() != "ready", within_s=2 * SOON_S)
        os.close(descriptor)
        assert "open files without a name" in world.node.view(A).why


@virtual
async def test_a_load_that_fills_the_disk_fails_for_it():
    async with World() as world:
        world.put(behaviour=Behaviour(load_s=60.0), **DECLARED)
        caller = world.ask()
        await world.until(lambda: bool(world.keeper.alive))
        await asyncio.sleep(1.0)
        write(scratch_of(world), "weights", 16 * MIB)
        with pytest.raises(LoadFailed, match="could not be loaded: its scratch holds 16 MiB"):
            await caller.result()


@virtual
async def test_an_adopted_instance_is_watched_as_well():
    first = World()
    async with first:
        first.put(**DECLARED)
        await first.answer(echo=1)
        keeper, catalog = await first.crash()
    (process,) = keeper.adopted
    async with World(keeper=keeper, catalog=catalog) as world:
        await world.until_state("ready")
        folder = os.path.join(world.node._site.scratch, process.instance)
        os.mkdir(folder)
        write(folder, "much", 16 * MIB)
        await world.until(lambda: world.state() != "ready", within_s=2 * SOON_S)
