"""More models than places: everybody's turn comes, nobody at work is cut off."""

import asyncio

import pytest

from fornada.core.errors import Busy
from fornada.core.names import Instant, ModelName
from fornada.core.settings import FakeDeviceSettings
from tests.bounds import count
from tests.loops.fake_runner import Behaviour
from tests.loops.virtual import virtual
from tests.loops.world import World, now

GIB = 1024**3


@virtual
async def test_three_models_asked_in_the_same_moment_are_all_served_with_one_place():
    async with World(max_resident=1) as world:
        for name in ("@test/a", "@test/b", "@test/c"):
            world.put(name)
        callers = [world.ask(name, echo=name) for name in ("@test/a", "@test/b", "@test/c")]
        assert [(await caller.result())["echo"] for caller in callers] == ["@test/a", "@test/b", "@test/c"]
        assert world.metric("fornada_evictions_total", reason="room") == 2


@virtual
async def test_a_victim_with_a_steady_stream_of_requests_is_not_revived():
    async with World(max_resident=1) as world:
        world.put("@test/a")
        world.put("@test/b")
        going = True

        async def stream():
            while going:
                await world.answer("@test/a", sleep_s=0.1)

        streams = [asyncio.ensure_future(stream()) for _ in range(3)]
        await world.until_state("ready", "@test/a")
        for _ in range(count(20, long=50)):
            began = now()
            await world.answer("@test/b", echo=1)
            assert now() - began < 4.0  # it is drained after 20 times what a swap takes here
            assert world.node.health().loop_age_s < 1.0
            await world.answer("@test/a", echo=1)
        going = False
        await asyncio.gather(*streams)


@virtual
async def test_resident_models_never_wait_for_somebody_elses_load():
    async with World() as world:
        world.put("@test/a")
        world.put("@test/b", behaviour=Behaviour(load_s=8.0))
        await world.answer("@test/a", echo=1)
        slow = world.ask("@test/b", echo=1)
        for _ in range(100):
            began = now()
            await world.answer("@test/a", echo=1)
            assert now() - began < 0.01
            await asyncio.sleep(0.05)
        await slow.result()


@virtual
async def test_a_waiting_model_is_served_although_the_resident_one_never_rests():
    async with World(max_resident=1, max_wait_s=10.0) as world:
        world.put("@test/a", serving={"concurrency": 4})
        world.put("@test/b", behaviour=Behaviour(load_s=0.5))
        ends = now() + 60

        async def client():
            while now() < ends:
                await world.answer("@test/a", sleep_s=1.0)
                await asyncio.sleep(0.01)

        clients = [asyncio.ensure_future(client()) for _ in range(4)]
        await asyncio.sleep(1.0)
        began = now()
        await world.answer("@test/b", echo=1)
        assert now() - began < 10 + 1 + 0.5
        await asyncio.gather(*clients)


@virtual
async def test_a_model_that_streams_is_drained_before_it_goes():
    async with World(max_resident=1) as world:
        world.put("@test/a")
        world.put("@test/b")
        streaming = world.ask("@test/a", steps=40, step_s=0.1)
        await world.until(lambda: len(streaming.items) > 20)
        other = world.ask("@test/b", echo=1)
        await streaming.result()
        assert [item["step"] for item in streaming.items] == list(range(40))
        assert (await other.result())["echo"] == 1
        assert other.at > streaming.at


@virtual
async def test_the_model_that_was_used_least_recently_goes():
    async with World(max_resident=2) as world:
        for name in ("@test/a", "@test/b", "@test/c"):
            world.put(name)
        await world.answer("@test/a", echo=1)
        await asyncio.sleep(0.1)
        await world.answer("@test/b", echo=1)
        await asyncio.sleep(0.1)
        await world.answer("@test/a", echo=1)
        await world.answer("@test/c", echo=1)
        assert [world.state(name) for name in ("@test/a", "@test/b", "@test/c")] == ["ready", "stopped", "ready"]


@virtual
async def test_a_model_that_is_asked_often_stays_although_another_was_used_later():
    async with World(max_resident=2) as world:
        for name in ("@test/a", "@test/b", "@test/c"):
            world.put(name)
        for _ in range(20):
            await world.answer("@test/a", echo=1)
            await asyncio.sleep(0.5)
        await world.answer("@test/b", echo=1)
        await asyncio.sleep(10.0)
        await world.answer("@test/c", echo=1)
        assert [world.state(name) for name in ("@test/a", "@test/b", "@test/c")] == ["ready", "stopped", "ready"]


@virtual
async def test_of_two_that_are_asked_alike_the_one_that_is_slow_to_start_stays():
    async with World(max_resident=2) as world:
        world.put("@test/slow", behaviour=Behaviour(load_s=20.0))
        for name in ("@test/quick", "@test/c"):
            world.put(name)
        await world.answer("@test/slow", echo=1)
        await world.answer("@test/quick", echo=1)
        await asyncio.sleep(10.0)
        await world.answer("@test/c", echo=1)
        assert [world.state(name) for name in ("@test/slow", "@test/quick", "@test/c")] == ["ready", "stopped", "ready"]


@virtual
async def test_who_would_wait_beyond_the_bound_is_told_so_at_once_and_the_ready_one_serves_on():
    async with World(max_resident=1, max_wait_s=30.0) as world:
        names = [f"@test/m{number}" for number in range(5)]
        for name in names:
            world.put(name, behaviour=Behaviour(load_s=12.0), serving={"timeout_s": 300})
            await world.answer(name, echo=1)  # what a start takes is known from now on
        early = [world.ask(name, echo=1) for name in names[:4]]
        await asyncio.sleep(0.1)
        began = now()
        with pytest.raises(
            Busy, match=r"isn't ready, and would be in about \d+ s, after older wishes for memory; the bound is 30 s"
        ) as refused:
            await world.answer("@test/m4", echo=1)
        assert now() - began < 0.1
        assert refused.value.retry_after_s and refused.value.retry_after_s > 1.0
        assert (await early[0].result())["echo"] == 1


@virtual
async def test_a_pinned_model_stays_and_who_waits_for_its_place_is_refused_after_the_bound():
    async with World(max_resident=1, max_wait_s=5.0) as world:
        world.put("@test/a", serving={"idle_timeout_s": 1})
        world.put("@test/b")
        await world.answer("@test/a", echo=1)
        await world.node.pin(ModelName("@test/a"), pinned=True)
        await asyncio.sleep(10.0)
        assert world.state("@test/a") == "ready"
        began = now()
        loading = asyncio.ensure_future(world.node.load(ModelName("@test/b"), deadline=Instant(now() + 60)))
        with pytest.raises(
            Busy, match=r"waited for room \(1 of 1 resident models \(max_resident\); @test/a is kept loaded\) for 5 s"
        ) as refused:
            await world.answer("@test/b", echo=1)
        assert 5.0 <= now() - began <= 5.5
        assert refused.value.retry_after_s
        with pytest.raises(Busy):
            await loading
        await world.node.pin(ModelName("@test/a"), pinned=False)
        assert (await world.answer("@test/b", echo=1))["echo"] == 1


@virtual
async def test_who_waits_for_a_pinned_model_has_its_place_as_soon_as_it_is_unpinned():
    async with World(max_resident=1) as world:
        world.put("@test/a")
        world.put("@test/b")
        await world.answer(echo=1)
        await world.node.pin(ModelName("@test/a"), pinned=True)
        waiting = world.ask("@test/b", echo=2)
        await asyncio.sleep(0.3)
        assert not waiting.done.is_set()
        await world.node.pin(ModelName("@test/a"), pinned=False)
        began = now()
        assert (await waiting.result())["echo"] == 2
        assert now() - began < 0.2


@virtual
async def test_the_bound_of_a_wait_counts_from_the_end_of_building_and_fetching():
    async with World(max_resident=1, max_wait_s=2.0) as world:
        world.put("@test/a", serving={"timeout_s": 100})
        world.put("@test/b", serving={"timeout_s": 100})
        await world.answer("@test/a", echo=1)
        world.provision.build_s = 20.0
        assert (await world.answer("@test/b", echo=1))["echo"] == 1


@virtual
async def test_models_take_device_memory_only_where_it_is_free():
    async with World(fakes=[FakeDeviceSettings(total="10GiB", release_delay_ms=3000)]) as world:
        world.put("@test/a", behaviour=Behaviour(books=7 * GIB), resources={"device_memory": "7GiB"})
        world.put("@test/b", behaviour=Behaviour(books=6 * GIB), resources={"device_memory": "6GiB"})
        for _ in range(5):
            assert (await world.answer("@test/a", echo=1))["echo"] == 1
            began = now()
            assert (await world.answer("@test/b", echo=1))["echo"] == 1
            assert now() - began >= 3.0
        assert not world.happened("model.failed")


@virtual
async def test_a_frozen_device_refuses_with_the_missing_amount_and_does_not_hang():
    async with World(fakes=[FakeDeviceSettings(total="10GiB")], max_wait_s=5.0) as world:
        world.put("@test/a", behaviour=Behaviour(books=7 * GIB), resources={"device_memory": "7GiB"})
        world.put("@test/b", behaviour=Behaviour(books=6 * GIB), resources={"device_memory": "6GiB"})
        await world.answer("@test/a", echo=1)
        view = world.node.view(ModelName("@test/a"))
        assert (view.declared_bytes, view.peak_bytes, view.instances[0]["resident_bytes"]) == (7 * GIB,) * 3
        world.node.patch_device("cuda:0", {"frozen": True})
        with pytest.raises(Busy, match="3 GiB are missing"):
            await world.answer("@test/b", echo=1)
        world.node.patch_device("cuda:0", {"clear": True})
        assert (await world.answer("@test/b", echo=1))["echo"] == 1


@virtual
async def test_memory_of_a_process_that_died_is_free_for_the_next_one_at_once():
    async with World(fakes=[FakeDeviceSettings(total="10GiB")]) as world:
        world.put("@test/a", behaviour=Behaviour(books=7 * GIB), resources={"device_memory": "7GiB"})
        world.put("@test/b", behaviour=Behaviour(books=6 * GIB), resources={"device_memory": "6GiB"})
        await world.answer("@test/a", echo=1)
        world.keeper.processes[0].signal(9)
        began = now()
        await world.answer("@test/b", echo=1)
        assert now() - began < 1.0


@virtual
async def test_two_models_with_queues_take_turns_without_starving_either():
    async with World(max_resident=1) as world:
        world.put("@test/a")
        world.put("@test/b")
        waits = []
        ends = now() + 30

        async def client(name):
            while now() < ends:
                began = now()
                await world.answer(name, sleep_s=0.05)
                waits.append(now() - began)

        await asyncio.gather(*(client(name) for name in ["@test/a", "@test/b"] * 3))
        assert max(waits) < 3.0
        assert len(waits) > 100
