"""Instances that give their device memory back and take it again: who chooses it, who waits for it, and what becomes of what goes wrong."""

import asyncio
import signal

import pytest

from fornada.core.errors import Conflict, DeadlinePassed, ModelRaised, RunnerDied
from fornada.core.names import ModelName
from fornada.core.settings import FakeDeviceSettings
from tests.loops.fake_runner import Behaviour
from tests.loops.virtual import virtual
from tests.loops.world import World, now

MIB = 1024**2
A, B = ModelName("@test/a"), ModelName("@test/b")
FAKES = [FakeDeviceSettings(total="1000MiB", bandwidth="600MiB/s")]


def put(world: World, name: str = "@test/a", *, idle_timeout_s: float = 300.0, takes_mib: int = 600, **behaviour: object) -> None:
    acts = {"sleeps": True, "load_s": 5.0, "books": takes_mib * MIB, **behaviour}
    resources = {"device": "cuda", "device_memory": f"{takes_mib}MiB"}
    world.put(name, behaviour=Behaviour(**acts), resources=resources, serving={"idle_timeout_s": idle_timeout_s})  # type: ignore[arg-type]


def used(world: World) -> tuple[int, int]:
    """MiB of the card that are in use, and that are promised."""
    card = next(view for view in world.node.devices() if view["id"] == "cuda:0")
    return card["used_bytes"] // MIB, card["reserved_bytes"] // MIB


@virtual
async def test_a_sleeper_holds_nothing_and_both_ways_take_what_the_bandwidth_says():
    async with World(fakes=FAKES) as world:
        put(world)
        first = await world.answer(echo=1)
        began = now()
        await world.node.sleep(A)
        assert now() - began == pytest.approx(1.1, abs=0.2), "0.1 s of its own, 600 MiB at 600 MiB/s"
        assert world.state() == "asleep" and used(world) == (0, 0)
        assert "put it to sleep" in world.node.view(A).why
        began = now()
        again = await world.answer(echo=2)
        assert now() - began == pytest.approx(1.1, abs=0.2)
        assert again["pid"] == first["pid"] and used(world) == (600, 600)


@virtual
async def test_what_is_slower_to_start_than_to_wake_sleeps_for_another_ones_room():
    async with World(fakes=FAKES) as world:
        put(world)
        put(world, "@test/b")
        for number in range(3):
            for name in (A, B):
                assert (await world.answer(name, echo=number))["load_count"] == 1
                assert used(world) == (600, 600)
        assert world.metric("fornada_evictions_total", reason="room") == 5


@virtual
async def test_what_starts_faster_than_it_wakes_is_stopped():
    async with World(fakes=FAKES) as world:
        put(world, load_s=0.0)
        put(world, "@test/b", load_s=0.0)
        await world.answer(A)
        await world.answer(B)
        assert world.state() == "stopped"


@virtual
async def test_an_idle_one_sleeps_and_is_stopped_after_as_long_again():
    async with World(fakes=FAKES) as world:
        put(world, idle_timeout_s=10)
        await world.answer(A)
        began = now()
        await world.until_state("asleep")
        assert now() - began == pytest.approx(11.0, abs=0.5)
        await world.until_state("stopped")
        assert now() - began == pytest.approx(21.0, abs=0.7)


@virtual
async def test_work_in_flight_is_finished_before_it_falls_asleep_and_requests_meanwhile_wake_it():
    async with World(fakes=FAKES) as world:
        put(world, sleep_s=1.0)
        await world.answer(A)
        long = world.ask(A, sleep_s=3.0)
        await asyncio.sleep(0.5)
        slept = asyncio.ensure_future(world.node.sleep(A))
        await asyncio.sleep(0.5)
        assert not slept.done() and world.state() == "stopping"
        meanwhile = world.ask(A, echo="woken")
        first = await long.result()
        assert (await meanwhile.result())["pid"] == first["pid"]
        await slept
        assert len(world.keeper.processes) == 1


@virtual
async def test_a_caller_who_has_left_is_worked_for_to_the_end_before_it_falls_asleep():
    async with World(fakes=FAKES) as world:
        put(world)
        await world.answer(A)
        caller = world.ask(A, stuck_s=3.0)
        await asyncio.sleep(0.5)
        caller.ticket.leave()
        await world.node.sleep(A)  # the fake runner asserts that nothing is under way
        assert world.state() == "asleep"


@virtual
@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        ({"fails_to": "sleep"}, ModelRaised, "it could not give its memory back: it raised"),
        ({"dies_going_to": "sleep"}, RunnerDied, r"it ended by itself \(ended by SIGSEGV\)"),
    ],
)
async def test_a_sleep_that_fails_ends_the_process_and_the_next_request_starts_another(fault, error, words):
    async with World(fakes=FAKES) as world:
        put(world, **fault)
        await world.answer(A)
        with pytest.raises(error, match=words):
            await world.node.sleep(A)
        assert used(world) == (0, 0)
        assert (await world.answer(A))["load_count"] == 2


@virtual
@pytest.mark.parametrize("fault", [{"fails_to": "wake"}, {"dies_going_to": "wake"}])
async def test_who_waits_for_a_wake_that_fails_is_answered_by_the_next_process(fault):
    async with World(fakes=FAKES) as world:
        put(world, **fault)
        await world.answer(A)
        await world.node.sleep(A)
        assert (await world.answer(A, echo=1))["load_count"] == 2
        assert used(world) == (600, 600)


@virtual
async def test_a_sleep_that_the_device_does_not_confirm_is_not_believed_and_not_tried_again():
    async with World(fakes=FAKES) as world:
        put(world)
        await world.answer(A)
        world.node.patch_device("cuda:0", {"frozen": True})
        with pytest.raises(ModelRaised, match=r"600 MiB before, 600 MiB 5 s after"):
            await world.node.sleep(A)
        assert not world.keeper.alive
        (told,) = world.happened("instance.sleep_failed")
        assert "600 MiB before" in told["reason"]
        world.node.patch_device("cuda:0", {"clear": True})
        await world.answer(A)
        with pytest.raises(Conflict, match="its last sleep failed"):
            await world.node.sleep(A)


@virtual
@pytest.mark.parametrize(("way", "there"), [("sleep", "asleep"), ("wake", "ready")])
async def test_a_step_that_never_ends_ends_with_the_process(way, there):
    async with World(fakes=FAKES) as world:
        put(world, sleep_s=1e6 if way == "sleep" else 0.1, wake_s=1e6 if way == "wake" else 0.1)
        await world.answer(A)
        slept = asyncio.ensure_future(world.node.sleep(A))
        if way == "wake":
            await slept
            assert (await world.answer(A, echo=1, timeout_s=600))["load_count"] == 2
        else:
            with pytest.raises(
                ModelRaised, match=r"failed to fall asleep and was stopped: it was still falling asleep after 30 s \(drain_s\)"
            ):
                await slept
            assert world.state() == "stopped"
        assert "failed (it was still" in world.node.view(A).why or way == "wake"
        await world.answer(A)
        with pytest.raises(Conflict, match="its last sleep failed"):  # it isn't tried a second time
            await world.node.sleep(A)


@virtual
async def test_who_hangs_on_its_way_to_sleep_keeps_nobody_waiting_for_its_room_beyond_a_drain():
    async with World(fakes=FAKES, drain_s=10.0) as world:
        put(world, sleep_s=1e6)
        put(world, "@test/b")
        await world.answer(A)
        began = now()
        await world.answer(B)
        assert now() - began == pytest.approx(10.0 + 5.0, abs=1.0), "then B loads"
        assert "its sleep failed (it was still falling asleep after 10 s" in world.node.view(A).why


@virtual
async def test_who_waits_for_a_step_that_takes_long_is_told_which():
    async with World(fakes=FAKES) as world:
        put(world, wake_s=50.0)
        await world.answer(A)
        await world.node.sleep(A)
        with pytest.raises(DeadlinePassed, match=r"@test/a was waking$"):
            await world.answer(A, timeout_s=20)


@virtual
async def test_a_parked_one_goes_on_before_it_is_asked_to_sleep():
    async with World(fakes=FAKES, park_after_s=1) as world:
        put(world)
        await world.answer(A)
        (runner,) = world.keeper.runners()
        await world.until(lambda: runner.stopped)
        await world.node.sleep(A)
        assert runner.process.signals == [signal.SIGSTOP, signal.SIGCONT]
        await world.answer(A)


@virtual
async def test_an_unload_and_a_removal_reach_it_asleep():
    async with World(fakes=FAKES) as world:
        for removed in (False, True):
            put(world)
            world.catalog.changed(A)
            await world.answer(A)
            await world.node.sleep(A)
            if removed:
                world.catalog.forget("@test/a")
            else:
                await world.node.unload(A, grace_s=1.0)
            await world.until(lambda: not world.keeper.alive)
            assert used(world) == (0, 0)


@virtual
@pytest.mark.parametrize(("seconds", "state"), [(0.05, "falling"), (0.6, "asleep"), (5.0, "asleep"), (5.05, "waking"), (5.6, "waking")])
async def test_a_successor_finds_it_where_it_is(seconds, state):
    async with World(fakes=FAKES) as world:
        put(world)
        first = await world.answer(A)
        began = now()
        slept = asyncio.ensure_future(world.node.sleep(A))
        await asyncio.sleep(min(seconds, 5.0))
        if seconds > 5.0:
            await slept
            world.ask(A)
            await asyncio.sleep(began + seconds - now())
        slept.cancel()
        (runner,) = world.keeper.runners()
        assert runner.state == state
        keeper, catalog = await world.crash()
    async with World(fakes=FAKES, keeper=keeper, catalog=catalog) as successor:
        await successor.until_state("ready" if state == "waking" else "asleep")
        assert used(successor) == ((600, 600) if state == "waking" else (0, 0))
        await asyncio.sleep(5.0)
        assert not successor.happened("ledger.corrected")
        assert (await successor.answer(A))["pid"] == first["pid"]
        assert used(successor) == (600, 600)
