"""Idle, unloaded, crashed, shut down: every end is bounded, and everybody who waits is told."""

import asyncio
import signal

import pytest

from fornada.core.errors import FornadaError, LoadFailed, RunnerDied, Unavailable
from fornada.core.names import ModelName
from tests.bounds import count
from tests.loops.fake_runner import Behaviour
from tests.loops.virtual import virtual
from tests.loops.world import World, now

A = ModelName("@test/a")


@virtual
async def test_an_idle_model_goes_when_its_time_is_over_counted_from_the_last_answer():
    async with World() as world:
        world.put(serving={"idle_timeout_s": 5})
        await world.answer(sleep_s=3.0)
        began = now()
        await asyncio.sleep(3.0)
        await world.answer(echo=1)
        last = now()
        await world.until_state("stopped")
        assert now() - last == pytest.approx(5.0, abs=0.2)
        assert now() - began > 8.0
        assert world.metric("fornada_evictions_total", reason="idle") == 1
        assert world.node.view(A).why == "Nothing runs: it was idle. The next request loads it."


@virtual
async def test_a_model_at_work_is_not_idle_and_scraping_keeps_nobody_awake():
    async with World() as world:
        world.put(serving={"idle_timeout_s": 1})
        world.put("@test/b", serving={"idle_timeout_s": 1})
        await world.answer("@test/b", echo=1)
        working = world.ask(sleep_s=5.0)
        for _ in range(45):
            world.telemetry.metrics.render()
            world.node.view(ModelName("@test/b"))
            await asyncio.sleep(0.1)
        assert (world.state(), world.state("@test/b")) == ("ready", "stopped")
        await working.result()


@virtual
async def test_a_request_at_any_moment_around_an_idle_end_is_answered():
    async with World() as world:
        world.put(serving={"idle_timeout_s": 1}, behaviour=Behaviour(stop_s=2.0, load_s=0.05))
        for number in range(count(60, long=200)):
            await world.answer(echo=number)
            await asyncio.sleep(0.9 + number % 30 * 0.1)
            assert (await world.answer(echo=number, timeout_s=10.0))["echo"] == number


@virtual
async def test_an_unload_answers_when_nothing_runs_and_holds_until_the_next_request():
    async with World() as world:
        world.put(serving={"min_instances": 1})
        await world.until_state("ready")
        pid = world.node.view(A).instances[0]["pid"]
        view = await world.node.unload(A, grace_s=None)
        assert (view.state, view.instances) == ("stopped", [])
        assert not world.keeper.alive
        await asyncio.sleep(10.0)
        assert world.state() == "stopped"
        assert (await world.answer(echo=1))["pid"] != pid
        assert world.state() == "ready"


@virtual
async def test_what_ignores_every_signal_is_killed_and_its_stream_ends_with_an_error():
    async with World(kill_s=1.0) as world:
        world.put(behaviour=Behaviour(ignores_sigterm=True))
        stream = world.ask(steps=10_000, step_s=0.1)
        await world.until(lambda: len(stream.items) > 3)
        began = now()
        view = await world.node.unload(A, grace_s=2.0)
        assert now() - began < 2 + 1 + 0.2
        assert view.state == "stopped"
        with pytest.raises(Unavailable, match="was stopped before the request was done"):
            await stream.result()
        assert world.keeper.processes[0].signals == [signal.SIGTERM, signal.SIGKILL]
        assert (await world.answer(echo=1))["load_count"] == 2


@virtual
async def test_an_unload_waits_for_running_work_as_long_as_its_grace():
    async with World() as world:
        world.put()
        work = world.ask(sleep_s=3.0)
        await world.until_state("ready")
        began = now()
        await world.node.unload(A, grace_s=10.0)
        assert (await work.result())["seq"] == 1
        assert now() - began < 3.2


@virtual
@pytest.mark.parametrize("after_s", [0.0, 0.5, 1.5, 2.005, 2.5, 3.5, 4.5])
async def test_an_unload_works_at_any_moment_of_a_load(after_s):
    async with World() as world:
        world.put(behaviour=Behaviour(load_s=1.0, warmup_s=1.0))
        world.provision.build_s = world.provision.fetch_s = 1.0
        caller = world.ask(echo=1)
        await asyncio.sleep(after_s)
        caller.leave()
        began = now()
        view = await world.node.unload(A, grace_s=1.0)
        assert view.state == "stopped"
        assert now() - began < 1.1
        assert (await world.answer(echo=2))["echo"] == 2


@virtual
async def test_an_unload_of_a_failed_model_is_true_already():
    async with World() as world:
        world.put(behaviour=Behaviour(fails="broken"))
        with pytest.raises(LoadFailed):
            await world.answer(echo=1)
        assert (await world.node.unload(A, grace_s=0.0)).state == "stopped"


@virtual
async def test_a_crash_is_told_to_every_caller_at_once_and_touches_no_other_model():
    async with World() as world:
        world.put(serving={"concurrency": 5})
        world.put("@test/b")
        await world.answer(echo=1)
        other = world.ask("@test/b", sleep_s=1.0)
        callers = [world.ask(sleep_s=10.0) for _ in range(4)]
        began = now()
        callers.append(world.ask(die=True))
        for caller in callers:
            with pytest.raises(RunnerDied, match="exit code 9"):
                await caller.result()
        assert now() - began < 0.1
        answer = await world.answer(echo=2)
        assert answer["load_count"] == 2
        assert (await other.result())["seq"] == 1


@virtual
async def test_an_end_that_nobody_wanted_says_so_even_when_it_looks_orderly():
    async with World() as world:
        world.put()
        await world.answer(echo=1)
        caller = world.ask(sleep_s=10.0)
        await asyncio.sleep(0.1)
        world.keeper.runners()[0].die(code=0)
        with pytest.raises(RunnerDied, match="exit code 0, which the node had not asked it to: model code called exit"):
            await caller.result()
        await asyncio.sleep(0.1)
        assert "model code called exit" in world.node.why(A)["last_failure"]["reason"]
        assert [entry["how"] for entry in world.happened("instance.ended")] == ["exit code 0"]
        assert world.node.why(A)["last_failure"]["past"] is False
        await world.answer(echo=1)
        assert world.node.why(A)["last_failure"]["past"] is True, "it has been ready since"


@virtual
async def test_five_callers_who_all_crash_a_model_that_takes_one_at_a_time_are_told_soon():
    async with World() as world:
        world.put()
        await world.answer(echo=1)
        began = now()
        callers = [world.ask(die=True) for _ in range(5)]
        for caller in callers:
            with pytest.raises(RunnerDied):
                await caller.result()
        assert now() - began < 1.0
        assert (await world.answer(echo=2))["echo"] == 2


@virtual
async def test_who_only_waited_in_line_is_served_by_the_next_process():
    async with World() as world:
        world.put()
        slow = world.ask(sleep_s=1.0)
        await slow.result()
        dying = world.ask(die=True)
        waiting = [world.ask(echo=number) for number in range(3)]
        with pytest.raises(RunnerDied):
            await dying.result()
        assert [(await caller.result())["echo"] for caller in waiting] == [0, 1, 2]


@virtual
async def test_a_process_that_is_killed_from_outside_comes_back_only_where_somebody_wants_it():
    async with World() as world:
        world.put("@test/kept", serving={"min_instances": 1})
        world.put("@test/b")
        await world.answer("@test/b", echo=1)
        await world.until_state("ready", "@test/kept")
        for process in world.keeper.alive:
            process.signal(signal.SIGKILL)
        await asyncio.sleep(5.0)
        assert (world.state("@test/kept"), world.state("@test/b")) == ("ready", "stopped")


@virtual
async def test_a_model_that_keeps_dying_idle_backs_off():
    async with World() as world:
        world.put(serving={"min_instances": 1}, behaviour=Behaviour(dies_idle_after_s=0.1))
        world.catalog.changed(A)
        await asyncio.sleep(60.0)
        assert 5 < len(world.keeper.processes) <= 12
        await world.until_state("failed")
        assert "ended by SIGSEGV" in world.node.view(A).why


@virtual
async def test_min_instances_comes_back_after_a_failed_load_when_the_back_off_is_over():
    async with World() as world:
        world.put(
            serving={"min_instances": 1}, behaviour=lambda launch: Behaviour(fails="" if launch.assignment["load_attempt"] > 3 else "no")
        )
        await world.until_state("ready", within_s=10.0)
        assert now() > 7.0


@virtual
async def test_a_shut_down_lets_accepted_work_finish_and_refuses_the_rest():
    async with World() as world:
        world.put(serving={"concurrency": 2})
        await world.answer(echo=1)
        working = [world.ask(sleep_s=3.0) for _ in range(5)]
        stream = world.ask("@test/a", steps=10, step_s=0.3)
        await asyncio.sleep(0.01)
        began = now()
        draining = asyncio.ensure_future(world.node.drain(30.0))
        await asyncio.sleep(0.1)
        assert not world.node.health().accepting and world.node.health().draining
        with pytest.raises(Unavailable, match="shutting down") as refused:
            await world.answer(echo=1)
        assert refused.value.retry_after_s
        await draining
        for caller in [*working, stream]:
            await caller.result()
        assert len(stream.items) == 10
        assert now() - began < 13
        assert not world.keeper.alive


@virtual
async def test_a_shut_down_of_an_idle_node_takes_no_time():
    async with World() as world:
        world.put()
        await world.answer(echo=1)
        began = now()
        await world.node.drain(30.0)
        assert now() - began < 0.2


@virtual
async def test_a_shut_down_ends_in_time_whatever_the_models_do():
    async with World(kill_s=1.0) as world:
        world.put(behaviour=Behaviour(ignores_sigterm=True))
        endless = world.ask(steps=10**6, step_s=0.1)
        loading = world.ask("@test/a", echo=1)
        await world.until(lambda: endless.began)
        began = now()
        await world.node.drain(5.0)
        assert now() - began < 5 + 1 + 0.2
        for caller in (endless, loading):
            with pytest.raises(FornadaError):
                await caller.result()
        assert not world.keeper.alive


@virtual
async def test_everything_that_an_instance_had_is_given_back():
    async with World() as world:
        world.put(behaviour=lambda launch: Behaviour(load_s=0.01, fails="no" if launch.assignment["load_attempt"] % 4 == 0 else ""))
        for _ in range(count(30, long=200)):
            try:
                await world.answer(echo=1)
            except LoadFailed:
                await world.node.reset(A)
            await world.node.unload(A, grace_s=1.0)
        assert all(process.forgotten for process in world.keeper.processes)
        await asyncio.sleep(0.1)
        assert world.node.why(A)["residents"] == []


@virtual
async def test_who_waits_when_an_operator_unloads_is_refused_and_nothing_loads_again():
    async with World() as world:
        world.put(behaviour=Behaviour(load_s=5.0))
        waiting = world.ask(echo=1)
        await asyncio.sleep(1.0)
        await world.node.unload(A, grace_s=0.0)
        with pytest.raises(Unavailable, match="an operator unloaded the model"):
            await waiting.result()
        await asyncio.sleep(30.0)
        assert world.state() == "stopped"
        assert (await world.answer(echo=2))["echo"] == 2, "the next request loads it"
