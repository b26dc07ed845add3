"""What is told of swaps: evictions with their reason and for whom, waits behind them, and the share of time that they take."""

import asyncio

import pytest

from fornada.core.names import ModelName
from tests.loops.fake_runner import Behaviour
from tests.loops.virtual import virtual
from tests.loops.world import World, now

A, B, C = (ModelName(f"@test/{letter}") for letter in "abc")
REASONS = "fornada_evictions_total"


@virtual
async def test_an_eviction_is_counted_once_with_whom_it_made_room_for():
    async with World(max_resident=1) as world:
        world.put(A)
        world.put(B)
        await world.answer(A, echo=1)
        await world.answer(B, echo=1)
        assert world.metric(REASONS) == world.metric(REASONS, model=A, reason="room") == 1
        (told,) = world.node.residency()["evictions"]
        assert (told["model"], told["reason"], told["made_room_for"], told["state"]) == (A, "room", B, "ready")


@virtual
async def test_each_way_of_losing_a_place_has_its_reason():
    async with World() as world:
        for name, serving in ((A, {}), (B, {"idle_timeout_s": 5.0})):
            world.put(name, serving=serving)
            await world.answer(name, echo=1)
        await world.node.unload(A, grace_s=0.0)
        await world.node.unload(A, grace_s=0.0)
        assert world.metric(REASONS, model=A) == world.metric(REASONS, model=A, reason="operator") == 1
        await world.until_state("stopped", B)
        assert world.metric(REASONS, model=B) == world.metric(REASONS, model=B, reason="idle") == 1
        world.put(C, behaviour=Behaviour(dies_idle_after_s=1.0))
        await world.answer(C, echo=1)
        await world.until(lambda: world.metric(REASONS, model=C, reason="fault") == 1)
        assert world.metric(REASONS) == 3


@virtual
async def test_a_request_that_waits_for_its_model_is_counted_with_its_wait_and_others_are_not():
    async with World() as world:
        world.put(A, behaviour=Behaviour(load_s=3.0), serving={"concurrency": 1})
        first = [world.ask(A, sleep_s=1.0) for _ in range(2)]
        await asyncio.sleep(1.0)
        gone = world.ask(A, echo=1)
        await asyncio.sleep(0.5)
        gone.leave()
        for caller in first:
            await caller.result()
        await asyncio.gather(*(world.answer(A, sleep_s=1.0) for _ in range(3)))  # these wait in its queue
        assert world.metric("fornada_swap_wait_seconds_count", model=A) == 3
        assert world.metric("fornada_swap_wait_seconds_sum", model=A) == pytest.approx(3.0 + 3.0 + 0.5, abs=0.3)


@virtual
async def test_the_time_of_swapping_is_that_of_starts_and_stops_and_no_second_counts_twice():
    async with World() as world:
        for name in (A, B):
            world.put(name, behaviour=Behaviour(load_s=4.0))
        began = now()
        await asyncio.gather(world.answer(A, echo=1), world.answer(B, echo=1))
        took_s = now() - began
        await asyncio.sleep(10.0)
        swapped_s = world.metric("fornada_swap_seconds_total", device="cpu")
        assert 4.0 <= swapped_s <= took_s
        assert world.metric("fornada_swap_seconds_total", direction="in") == pytest.approx(swapped_s)
        assert world.metric("fornada_step_seconds_count", step="start") == 2
        assert world.metric("fornada_step_seconds_sum", step="start") == pytest.approx(2 * swapped_s, rel=0.1)
        share = world.node.residency()["swap"]["devices"]["cpu"]
        assert share == pytest.approx(swapped_s / (now() - began), rel=0.1)
        await world.node.unload(A, grace_s=0.0)
        assert world.metric("fornada_step_seconds_count", model=A, step="stop") == 1
        await asyncio.sleep(120.0)
        assert world.node.residency()["swap"]["devices"]["cpu"] == 0.0


@virtual
async def test_who_waits_is_told_with_what_for():
    async with World(max_resident=1) as world:
        world.put(A)
        world.put(B)
        busy = world.ask(A, sleep_s=30.0)
        await world.until_state("ready", A)
        waiting = world.ask(B, echo=1)
        await world.until(lambda: bool(world.node.residency()["waits"]))
        (wait,) = world.node.residency()["waits"]
        assert wait["model"] == B and wait["queued"] == 1 and "1 of 1 resident models" in wait["why"]
        (holder,) = world.node.residency()["instances"]
        assert (holder["model"], holder["step"], holder["in_flight"]) == (A, "ready", 1)
        busy.leave()
        await waiting.result()
