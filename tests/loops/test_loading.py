"""From nothing to an answer: one load for everybody, no load lost, every failure told."""

import asyncio
from datetime import datetime

import pytest

from fornada.core.errors import BadRequest, Busy, Conflict, DeadlinePassed, DiskFull, LoadFailed, NeverFits, UnknownModel
from fornada.core.names import Instant, ModelName
from fornada.core.settings import FakeDeviceSettings
from tests.loops.fake_runner import Behaviour
from tests.loops.virtual import virtual
from tests.loops.world import World, now

A = ModelName("@test/a")


def soon(seconds):
    return Instant(now() + seconds)


@virtual
async def test_the_first_request_loads_the_model_and_is_answered():
    async with World() as world:
        world.put()
        assert world.state() == "stopped"
        answer = await world.answer(echo="hello")
        assert (answer["echo"], answer["load_count"]) == ("hello", 1)
        assert world.state() == "ready"
        assert world.metric("fornada_model_loads_total", outcome="ok") == 1


@virtual
async def test_fifty_callers_cause_one_load_and_all_are_answered():
    async with World() as world:
        world.put(behaviour=Behaviour(load_s=2.0))
        callers = [world.ask(echo=number) for number in range(50)]
        assert [(await caller.result())["echo"] for caller in callers] == list(range(50))
        assert len(world.keeper.processes) == 1


@virtual
async def test_a_load_goes_on_when_its_caller_leaves():
    async with World() as world:
        world.put(behaviour=Behaviour(load_s=6.0))
        caller = world.ask(echo=1)
        await asyncio.sleep(2.0)
        caller.leave()
        await asyncio.sleep(5.0)
        began = now()
        assert (await world.answer(echo=2))["load_count"] == 1
        assert now() - began < 0.1
        assert not caller.done.is_set()


@virtual
async def test_a_deadline_answers_the_caller_at_once_while_build_and_load_go_on():
    async with World() as world:
        world.put(behaviour=Behaviour(load_s=6.0))
        world.provision.build_s = 3.0
        building = world.ask(echo=1, timeout_s=1.0)
        with pytest.raises(DeadlinePassed, match=r"after 1\.0 s: @test/a was building"):
            await building.result()
        loading = world.ask(echo=1, timeout_s=4.0)
        with pytest.raises(DeadlinePassed, match="was loading"):
            await loading.result()
        assert loading.at - building.at == pytest.approx(4.0, abs=0.1)
        assert (await world.answer(echo=2))["load_count"] == 1
        assert len(world.keeper.processes) == 1


@virtual
async def test_ready_means_that_the_warm_up_has_passed():
    async with World() as world:
        world.put(behaviour=Behaviour(load_s=3.0, warmup_s=2.0))
        began = now()
        world.ask(echo=1)
        await world.until(lambda: world.node.why(A)["step"] == "warming")
        assert (world.state(), world.node.view(A).progress) == ("pending", {"phase": "warming", "text": "warm-up", "fraction": None})
        await world.until_state("ready")
        assert now() - began == pytest.approx(5.0, abs=0.1)


@virtual
async def test_why_tells_since_when_a_model_is_as_it_is():
    async with World() as world:
        world.put(behaviour=Behaviour(load_s=5.0))
        began = world.node.why(A)["since"]
        await asyncio.sleep(10.0)
        assert world.node.why(A)["since"] == began, "nothing has changed"
        asked = world.ask(echo=1)
        await asyncio.sleep(3.0)
        pending = world.node.why(A)
        assert pending["state"] == "pending" and seconds(began, pending["since"]) == pytest.approx(10.0, abs=0.5)
        await asked.result()
        await asyncio.sleep(30.0)
        ready = world.node.why(A)
        assert ready["state"] == "ready" and seconds(began, ready["since"]) == pytest.approx(15.0, abs=1.0)


def seconds(one: str, other: str) -> float:
    return (datetime.fromisoformat(other) - datetime.fromisoformat(one)).total_seconds()


@virtual
async def test_a_load_that_makes_no_progress_is_ended_and_says_so():
    async with World() as world:
        world.put(behaviour=Behaviour(never_ready=True), serving={"load_timeout_s": 10})
        began = now()
        with pytest.raises(LoadFailed, match="no progress for 10 s while loading"):
            await world.answer(echo=1)
        assert now() - began < 11


@virtual
async def test_a_load_may_take_as_long_as_it_makes_progress():
    async with World() as world:
        world.put(behaviour=Behaviour(load_s=50.0, progress_every_s=5.0), serving={"load_timeout_s": 10, "timeout_s": 100})
        assert (await world.answer(echo=1))["echo"] == 1


@virtual
async def test_a_failed_load_tells_every_caller_why_with_the_last_line_on_stderr():
    async with World() as world:
        printed = b'\x1e{"stream":"stdout","line":"hello","time":"t"}\n\x1e{"stream":"stderr","line":"OSError: no weights","time":"t"}\n'
        world.put(behaviour=Behaviour(load_s=1.0, fails="load() raised OSError", prints=printed))
        callers = [world.ask(echo=number) for number in range(5)]
        for caller in callers:
            with pytest.raises(LoadFailed, match="load\\(\\) raised OSError; last line on stderr: OSError: no weights") as refused:
                await caller.result()
            assert 0 < (refused.value.retry_after_s or 0) <= 1.0
        view = world.node.view(A)
        assert view.state == "failed"
        assert "load() raised OSError" in view.why


@virtual
async def test_loads_that_fail_back_off_and_requests_meanwhile_are_told_when_to_come_back():
    async with World() as world:
        world.put(behaviour=Behaviour(load_s=0.1, fails="broken"))
        began = now()
        while now() - began < 60:
            with pytest.raises(LoadFailed):
                await world.answer(echo=1)
            await asyncio.sleep(0.2)
        # At 0, 1, 3, 7, 15, 31 seconds and what the loads themselves take.
        assert len(world.keeper.processes) == 6
        assert world.node.why(A)["load_attempts"] == 6
        await world.node.reset(A)
        with pytest.raises(LoadFailed, match="broken"):
            await world.answer(echo=1)
        assert world.keeper.processes[-1].launch.assignment["load_attempt"] == 1


@virtual
async def test_a_model_that_fails_twice_loads_the_third_time():
    async with World() as world:
        world.put(behaviour=lambda launch: Behaviour(fails="not yet" if launch.assignment["load_attempt"] <= 2 else ""))
        for _ in range(2):
            with pytest.raises(LoadFailed):
                await world.answer(echo=1)
            await asyncio.sleep(5.0)
        assert (await world.answer(echo=1))["load_count"] == 1


@virtual
async def test_other_models_do_not_feel_a_crash_loop():
    async with World() as world:
        world.put("@test/bad", behaviour=Behaviour(fails="broken"))
        world.put("@test/good")
        await world.answer("@test/good", echo=1)
        for _ in range(50):
            world.ask("@test/bad", echo=1)
            began = now()
            await world.answer("@test/good", echo=1)
            assert now() - began < 0.01
            await asyncio.sleep(0.2)


@virtual
async def test_an_environment_that_can_not_be_built_is_a_failed_load():
    async with World() as world:
        version = world.put()
        world.provision.fails[version.digest] = LoadFailed("no wheel for numpy 9")
        with pytest.raises(LoadFailed, match="no wheel for numpy 9"):
            await world.answer(echo=1)
        world.provision.fails[version.digest] = DiskFull("/data/environments is full")
        await asyncio.sleep(2.0)
        with pytest.raises(DiskFull, match="is full"):
            await world.answer(echo=1)
        del world.provision.fails[version.digest]
        await asyncio.sleep(3.0)
        assert (await world.answer(echo=1))["load_count"] == 1


@virtual
async def test_a_spawn_that_the_keeper_refuses_is_a_failed_load():
    async with World() as world:
        world.put()
        world.keeper.refuses = "no processes left"
        with pytest.raises(LoadFailed, match="no processes left"):
            await world.answer(echo=1)
        world.keeper.refuses = ""
        await asyncio.sleep(2.0)
        assert (await world.answer(echo=1))["load_count"] == 1


@virtual
async def test_who_needs_a_device_that_is_not_there_is_told_at_once_and_for_good():
    async with World() as world:
        world.put(resources={"device": "cuda:3"})
        with pytest.raises(NeverFits, match="asks for the device 'cuda:3'; this node has: cpu") as refused:
            await world.answer(echo=1)
        assert refused.value.retry_after_s is None
        assert world.state() == "failed"


@virtual
async def test_device_memory_that_runs_out_while_loading_says_both_numbers():
    async with World(fakes=[FakeDeviceSettings(total="4GiB")]) as world:
        world.put(behaviour=Behaviour(books=6 * 1024**3), resources={"device_memory": "1GiB"})
        with pytest.raises(NeverFits, match="needs 6 GiB of device memory, the largest such device has 4 GiB"):
            await world.answer(echo=1)
        assert world.devices.views(charged={}, now=Instant(now()))[1]["used_bytes"] == 0


@virtual
async def test_an_operator_can_load_and_is_told_what_prevents_it():
    async with World() as world:
        world.put(behaviour=Behaviour(load_s=1.0))
        world.put("@test/bad", behaviour=Behaviour(fails="broken"))
        assert (await world.node.load(A, deadline=soon(10))).state == "ready"
        with pytest.raises(LoadFailed, match="broken"):
            await world.node.load(ModelName("@test/bad"), deadline=soon(10))
        with pytest.raises(UnknownModel):
            await world.node.load(ModelName("@test/none"), deadline=soon(10))


@virtual
async def test_an_operator_who_waits_too_long_is_told_and_the_load_goes_on():
    async with World() as world:
        world.put(behaviour=Behaviour(load_s=5.0))
        with pytest.raises(DeadlinePassed, match="was loading"):
            await world.node.load(A, deadline=soon(1))
        await world.until_state("ready", within_s=5)


@virtual
async def test_a_load_that_another_operator_takes_back_says_so():
    async with World() as world:
        world.put(behaviour=Behaviour(load_s=5.0))
        loading = asyncio.ensure_future(world.node.load(A, deadline=soon(60)))
        await asyncio.sleep(1.0)
        assert (await world.node.unload(A, grace_s=0.0)).state == "stopped"
        with pytest.raises(Conflict, match="unloaded while it was being loaded"):
            await loading


@virtual
async def test_what_the_model_answers_and_what_it_refuses_comes_back_as_it_is():
    async with World() as world:
        world.put()
        with pytest.raises(BadRequest, match="no such key"):
            await world.answer(bad="no such key")
        big = await world.ask(big=3_000_000).result()
        assert len(big) == 3_000_000
        assert (await world.ask(body=b"x" * 3_000_000).result())["size"] == 3_000_000


@virtual
async def test_a_queue_has_a_bound_and_who_does_not_want_to_wait_need_not():
    async with World() as world:
        world.put(serving={"queue": 3})
        await world.answer(echo=1)
        callers = [world.ask(sleep_s=1.0) for _ in range(4)]
        with pytest.raises(Busy, match="3 requests waiting"):
            await world.answer(echo=1)
        with pytest.raises(Busy, match="asked not to wait"):
            await world.ask(echo=1, reject_if_busy=True).result()
        for caller in callers:
            await caller.result()
        assert (await world.ask(echo=1, reject_if_busy=True).result())["echo"] == 1


@virtual
async def test_who_does_not_want_to_wait_for_a_load_is_refused_and_the_load_begins():
    async with World() as world:
        world.put()
        with pytest.raises(Busy, match="has to be loaded first"):
            await world.ask(echo=1, reject_if_busy=True).result()
        await world.until_state("ready", within_s=1.0)
        assert (await world.ask(echo=1, reject_if_busy=True).result())["echo"] == 1


@virtual
async def test_the_bound_of_a_queue_holds_while_a_model_loads():
    async with World() as world:
        world.put(serving={"queue": 3}, behaviour=Behaviour(load_s=1.0))
        callers = [world.ask(echo=number) for number in range(5)]
        for caller in callers[3:]:
            with pytest.raises(Busy):
                await caller.result()
        assert [(await caller.result())["echo"] for caller in callers[:3]] == [0, 1, 2]


@virtual
async def test_what_is_sent_ahead_counts_as_queued():
    async with World() as world:
        world.put(serving={"queue": 6}, behaviour=Behaviour(ahead=64))
        await world.answer(echo=1)
        callers = [world.ask(sleep_s=0.1) for _ in range(7)]
        await asyncio.sleep(0.02)
        (instance,) = world.node.view(A).instances
        assert (instance["in_flight"], instance["queued"]) == (1, 6)
        with pytest.raises(Busy):
            await world.answer(echo=1)
        for caller in callers:
            await caller.result()


@virtual
async def test_a_request_waits_in_the_queue_no_longer_than_its_deadline():
    async with World() as world:
        world.put()
        slow = world.ask(sleep_s=10.0)
        await world.until_state("ready")
        began = now()
        with pytest.raises(DeadlinePassed):
            await world.ask(echo=1, timeout_s=1.0).result()
        assert 1.0 <= now() - began <= 1.1
        await slow.result()


@virtual
async def test_a_request_at_the_runner_is_answered_at_its_deadline_and_cancelled_there():
    async with World() as world:
        world.put()
        await world.answer(echo=1)
        began = now()
        with pytest.raises(DeadlinePassed, match="while the model worked on the request"):
            await world.ask(sleep_s=30.0, timeout_s=1.0).result()
        await world.answer(echo=2)
        assert now() - began < 1.2


@virtual
async def test_code_that_can_not_be_interrupted_keeps_its_place_but_its_caller_is_answered():
    async with World() as world:
        world.put()
        await world.answer(echo=1)
        began = now()
        with pytest.raises(DeadlinePassed):
            await world.ask(stuck_s=5.0, timeout_s=1.0).result()
        assert now() - began < 1.1
        await world.answer(echo=2)
        assert 5.0 <= now() - began <= 5.2


@virtual
async def test_the_runner_is_started_with_what_the_spec_says_and_nothing_of_our_environment():
    async with World() as world:
        env = {"MODE": "fast", "CUDA_VISIBLE_DEVICES": "1"}
        world.put(resources={"threads": 3, "memory": "64MiB"}, settings={"hold_mib": 3}, env=env, serving={"max_batch": 4})
        await world.answer(echo=1)
        launch = world.keeper.processes[0].launch
        assert launch.argv[0] == "/environments/x/bin/python" and launch.argv[-1] == "/sdk"
        assert {key: launch.env[key] for key in ("OMP_NUM_THREADS", "MODEL_MEMORY_BYTES", "MODE", "CUDA_VISIBLE_DEVICES")} == {
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": "3",
            "MODEL_MEMORY_BYTES": str(64 * 1024**2),
            "MODE": "fast",
        }
        assert launch.env["HOME"] == launch.cwd == launch.assignment["scratch"]
        assert launch.assignment["settings"] == {"hold_mib": 3}
        assert launch.limits.memory_bytes == 64 * 1024**2
        assert launch.assignment["device"] == {"id": "cpu", "kind": "cpu", "memory_bytes": 0}
