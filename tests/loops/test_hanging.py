"""Processes that go on with what nobody waits for any more."""

import asyncio
import signal

import pytest

from fornada.core.errors import DeadlinePassed, RunnerDied
from fornada.core.names import ModelName
from tests.loops.fake_runner import Behaviour
from tests.loops.virtual import VirtualLoop, virtual
from tests.loops.world import World, now

A = ModelName("@test/a")
FOR_EVER = 1e6
ENDS = "fornada_evictions_total"


async def timed_out(caller):
    with pytest.raises(DeadlinePassed):
        await caller.result()


@virtual
async def test_a_model_that_heeds_no_deadline_is_killed_after_cancel_s_and_replaced_for_who_waits():
    async with World() as world:
        world.put(serving={"timeout_s": 10.0})
        await world.answer(echo=1)
        began = now()
        stuck = world.ask(stuck_s=FOR_EVER)
        await timed_out(stuck)
        assert now() - began < 10.1, "its caller is told at once"
        behind = world.ask(echo=2, timeout_s=100.0)
        assert (await behind.result())["load_count"] == 2
        assert 40 <= now() - began < 41, "timeout_s and cancel_s"
        assert world.keeper.processes[0].signals == [signal.SIGKILL]
        (told,) = world.happened("instance.hung")
        assert (told["given_up_s"], told["others"], len(told["requests"])) == (30.0, False, 1)
        assert world.metric(ENDS, model=A, reason="hung") == 1


@virtual
async def test_who_hangs_up_at_once_ends_nothing_that_the_author_gives_more_time():
    async with World() as world:
        world.put(serving={"timeout_s": 300.0})
        await world.answer(echo=1)
        world.ask(stuck_s=200.0).leave()
        assert (await world.answer(echo=2))["load_count"] == 1
        assert not world.happened("instance.hung")


@virtual
async def test_what_is_slow_while_its_caller_waits_is_left_alone():
    async with World(cancel_s=1.0) as world:
        world.put(serving={"timeout_s": 5.0})
        await world.answer(echo=1)
        slow = world.ask(stuck_s=100.0, echo="slow", timeout_s=200.0)
        behind = world.ask(echo="never")
        await timed_out(behind)
        assert (await slow.result())["load_count"] == 1
        assert not world.happened("instance.hung")


@virtual
async def test_a_model_that_gives_its_place_back_late_but_in_time_lives_on():
    async with World() as world:
        world.put(serving={"timeout_s": 10.0})
        await world.answer(echo=1)
        await timed_out(world.ask(stuck_s=35.0))
        assert (await world.answer(echo=2, timeout_s=100.0))["load_count"] == 1
        await asyncio.sleep(100.0)
        assert not world.happened("instance.hung")


@virtual
async def test_others_in_the_same_process_are_answered_if_they_can_be_and_refused_so_that_they_may_try_again():
    async with World(drain_s=20.0) as world:
        world.put(serving={"timeout_s": 10.0, "concurrency": 3})
        await world.answer(echo=1)
        began = now()
        await timed_out(world.ask(stuck_s=FOR_EVER))
        quick, slow = (world.ask(sleep_s=seconds, timeout_s=300.0) for seconds in (45.0, 200.0))
        assert (await quick.result())["load_count"] == 1
        with pytest.raises(RunnerDied, match="it hung: it went on for 30 s with a request that nobody waited for"):
            await slow.result()
        assert 60 <= now() - began < 61, "timeout_s, cancel_s and drain_s"
        assert world.keeper.processes[0].signals == [signal.SIGKILL]
        assert (await world.answer(echo=2))["load_count"] == 2


@virtual
async def test_what_was_sent_ahead_behind_a_request_that_hangs_is_answered_by_the_next_process():
    async with World() as world:
        world.put(serving={"timeout_s": 10.0}, behaviour=Behaviour(ahead=16))
        await world.answer(echo=1)
        began = now()
        stuck = world.ask(stuck_s=FOR_EVER)
        behind = [world.ask(echo=number, timeout_s=300.0) for number in range(3)]
        await timed_out(stuck)
        for caller in behind:
            assert (await caller.result())["load_count"] == 2
        assert 40 <= now() - began < 41


@virtual
async def test_of_a_batch_that_hangs_those_are_refused_that_may_be_in_it():
    async with World() as world:
        world.put(serving={"timeout_s": 10.0, "max_batch": 2}, behaviour=Behaviour(ahead=16))
        await world.answer(echo=1)
        batch = [world.ask(stuck_s=FOR_EVER) for _ in range(2)]
        behind = world.ask(echo=3, timeout_s=300.0)
        for caller in batch:
            await timed_out(caller)
        assert (await behind.result())["load_count"] == 2


@virtual
async def test_an_unload_of_what_hangs_is_not_undone_by_those_who_wait_behind_it():
    async with World(drain_s=100.0) as world:
        world.put(serving={"timeout_s": 10.0}, behaviour=Behaviour(ahead=16))
        await world.answer(echo=1)
        stuck = world.ask(stuck_s=FOR_EVER)
        behind = world.ask(echo=2, timeout_s=300.0)
        await timed_out(stuck)
        await world.node.unload(A, grace_s=None)
        with pytest.raises(RunnerDied, match="it hung"):
            await behind.result()
        assert world.state() == "stopped"
        assert (world.metric(ENDS, model=A, reason="operator"), world.metric(ENDS, model=A, reason="hung")) == (1, 0), "it left once"


@virtual
async def test_what_gives_its_place_back_at_the_last_moment_is_heard_so_that_nothing_runs_twice():
    async with World(cancel_s=32.0) as world:
        world.put(serving={"timeout_s": 10.0}, behaviour=Behaviour(ahead=16))
        await world.answer(echo=1)
        await asyncio.sleep(1024.0 - now())  # sums of instants are exact from here on
        stuck = world.ask(stuck_s=FOR_EVER)
        behind = world.ask(echo=2, timeout_s=300.0)
        stuck.leave()
        await asyncio.sleep(1.0)
        (runner,) = world.keeper.runners()
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)

        def gives_back():
            runner.gives_back()
            loop.busy_until(1056.0)

        # In the turn of the loop in which the watchdog looks, and before it: the answer lies unread in the socket then.
        loop.call_at(1056.0 - 1e-10, gives_back)
        assert (await behind.result())["load_count"] == 1
        assert [asked.get("echo") for asked in runner.seen] == [1, None, 2]
        assert not world.happened("instance.hung")


@virtual
async def test_a_hung_process_of_a_predecessor_is_found_by_its_successor():
    async with World() as world:
        world.put(serving={"timeout_s": 10.0})
        await world.answer(echo=1)
        world.ask(stuck_s=FOR_EVER)
        await asyncio.sleep(1.0)
        keeper, catalog = await world.crash()
        async with World(keeper=keeper, catalog=catalog, cancel_s=5.0) as heir:
            began = now()
            assert (await heir.answer(echo=2, timeout_s=100.0))["load_count"] == 2
            assert 10 <= now() - began < 12
            assert len(heir.happened("instance.hung")) == 1


@virtual
async def test_what_may_wait_behind_a_request_of_a_predecessor_that_still_answers_is_not_blamed():
    async with World() as world:
        world.put(serving={"timeout_s": 10.0})
        await world.answer(echo=1)
        world.node.expect_predecessor(there=True)
        await timed_out(world.ask(stuck_s=200.0))
        await asyncio.sleep(100.0)
        world.node.expect_predecessor(there=False)
        await asyncio.sleep(29.0)
        assert not world.happened("instance.hung")
        await asyncio.sleep(12.0)
        assert len(world.happened("instance.hung")) == 1, "from then on it counts"


@virtual
async def test_a_node_with_cancel_s_0_ends_nothing():
    async with World(cancel_s=0.0) as world:
        world.put(serving={"timeout_s": 10.0})
        await world.answer(echo=1)
        await timed_out(world.ask(stuck_s=1000.0))
        assert (await world.answer(echo=2, timeout_s=2000.0))["load_count"] == 1
