"""The ledger: what models are charged, what is learned of them, and what comes of a shortage."""

import asyncio

import pytest

from fornada.core.errors import Busy, NeverFits, OutOfDeviceMemory
from fornada.core.names import ModelName
from fornada.core.settings import FakeDeviceSettings
from fornada.node.memory_use import Held
from tests.loops.fake_runner import Behaviour
from tests.loops.virtual import virtual
from tests.loops.world import World

A, B, C = (ModelName(f"@test/{name}") for name in "abc")
MIB = 1024**2
GIB = 1024**3
CARD = [FakeDeviceSettings(total="1000MiB")]


def on_card(mib):
    return {"device": "cuda", "device_memory": f"{mib}MiB"}


def charged(world, device="cuda:0"):
    """Model -> (MiB, why)"""
    view = next(view for view in world.node.devices() if view["id"] == device)
    assert view["reserved_bytes"] == sum(holder["bytes"] for holder in view["holders"])
    return {holder["model"]: (holder["bytes"] // MIB, holder["because"]) for holder in view["holders"]}


@virtual
async def test_what_is_declared_is_charged_before_the_first_byte_and_what_was_measured_after_it():
    async with World(fakes=CARD) as world:
        world.put(behaviour=Behaviour(books=50 * MIB, load_s=5.0), resources=on_card(900))
        caller = world.ask(echo=1)
        await asyncio.sleep(0.005)
        assert charged(world) == {A: (900, "declared")}
        await caller.result()
        assert charged(world) == {A: (50, "learned")}
        await world.node.unload(A, grace_s=None)
        assert charged(world) == {}
        assert world.node.why(A)["memory"]["expected"]["device"] == {"declared_bytes": 900 * MIB, "learned_bytes": 50 * MIB}


@virtual
async def test_a_shortage_teaches_evicts_and_the_second_try_is_the_caller_s_answer():
    async with World(fakes=CARD) as world:
        world.put(behaviour=Behaviour(books=600 * MIB), resources=on_card(100))
        world.put(B, behaviour=Behaviour(books=500 * MIB), resources=on_card(500))
        await world.answer(B, echo=1)
        assert (await world.answer(echo=2))["echo"] == 2
        assert (world.state(B), charged(world)) == ("stopped", {A: (600, "learned")})
        assert len(world.keeper.runners(A)) == 2
        assert not world.happened("model.failed")
        await world.answer(B, echo=3)
        await world.answer(echo=4)
        assert len(world.keeper.runners(A)) == 3, "600 MiB are planned at once"


@virtual
async def test_a_shortage_that_comes_again_fails_with_both_numbers_and_backs_off():
    async with World(fakes=CARD) as world:
        world.put(
            behaviour=Behaviour(fails="CUDA out of memory. Tried to allocate 200.00 MiB", fails_because_of="memory"), resources=on_card(100)
        )
        with pytest.raises(OutOfDeviceMemory, match=r"Tried to allocate.*200 MiB are needed, 1000 MiB is what it has") as refused:
            await world.answer(echo=1)
        assert refused.value.retry_after_s and len(world.keeper.runners()) == 2
        with pytest.raises(OutOfDeviceMemory):
            await world.answer(echo=1)
        assert len(world.keeper.runners()) == 2, "it backs off"
        await asyncio.sleep(1.1)
        with pytest.raises(OutOfDeviceMemory):
            await world.answer(echo=1)
        assert len(world.keeper.runners()) == 3, "one try after each back-off"


@virtual
async def test_what_can_t_ever_fit_is_told_so_and_a_reset_forgets_what_was_learned():
    async with World(fakes=CARD) as world:
        world.put(behaviour=Behaviour(books=1500 * MIB), resources=on_card(100))
        with pytest.raises(NeverFits, match=r"needs 1\.5 GiB of device memory, the largest such device has 1000 MiB"):
            await world.answer(echo=1)
        world.keeper.behaviours[A] = Behaviour(books=100 * MIB)
        with pytest.raises(NeverFits):
            await world.answer(echo=1)
        await world.node.reset(A)
        assert (await world.answer(echo=1))["echo"] == 1


@virtual
async def test_what_one_gave_back_is_another_s_even_if_what_was_learned_is_forgotten():
    async with World(fakes=CARD) as world:
        world.put(behaviour=Behaviour(books=50 * MIB), resources=on_card(900))
        world.put(B, behaviour=Behaviour(books=700 * MIB), resources=on_card(700))
        await world.answer(echo=1)
        await world.answer(B, echo=1)
        await world.node.reset(A)
        assert charged(world) == {A: (50, "learned"), B: (700, "learned")}
        keeper, catalog = await world.crash()
        async with World(keeper=keeper, catalog=catalog, fakes=CARD) as after:
            assert charged(after) == {A: (50, "learned"), B: (700, "learned")}


@virtual
async def test_a_reset_of_one_that_hasn_t_been_heard_yet_is_no_promise_to_it_either():
    async with World(fakes=CARD) as world:
        world.put(behaviour=Behaviour(books=50 * MIB), resources=on_card(900))
        world.put(B, behaviour=Behaviour(books=700 * MIB), resources=on_card(700))
        await world.answer(echo=1)
        await world.answer(B, echo=1)
        keeper, catalog = await world.crash()
        heard = World(keeper=keeper, catalog=catalog, fakes=CARD)
        await heard.__aenter__()
        await heard.node.reset(A)
        keeper, catalog = await heard.crash()
        heard._folder.cleanup()
        async with World(keeper=keeper, catalog=catalog, fakes=CARD) as after:
            assert charged(after) == {A: (50, "learned"), B: (700, "learned")}
            await after.node.reset(A)
            await after.answer(echo=2)
            await after.node.unload(A, grace_s=None)
            await after.node.reset(A)
            assert after.node.why(A)["memory"]["expected"]["device"] == {"declared_bytes": 900 * MIB, "learned_bytes": 0}


@virtual
async def test_nobody_tries_again_what_somebody_wants_gone():
    async with World(fakes=CARD) as world:
        world.put(behaviour=Behaviour(load_s=1.0, fails="CUDA out of memory", fails_because_of="memory"), resources=on_card(100))
        caller = world.ask(echo=1)
        await asyncio.sleep(0.5)
        unload = asyncio.ensure_future(world.node.unload(A, grace_s=0.0))
        await asyncio.sleep(5.0)
        assert unload.done() and world.state() == "stopped"
        assert caller.refused is not None and len(world.keeper.runners()) == 1


@virtual
async def test_a_process_that_was_ended_for_its_memory_while_it_loaded_is_tried_once_more():
    async with World() as world:
        world.put(behaviour=Behaviour(load_s=1.0), resources={"memory": "64MiB"})
        caller = world.ask(echo=1)
        await asyncio.sleep(0.5)
        world.keeper.runners()[0].die(signal=9, over_memory=True)
        assert (await caller.result())["echo"] == 1
        world.put(B, behaviour=Behaviour(load_s=1.0), resources={"memory": "64MiB"})
        caller = world.ask(B, echo=1)
        for number in range(2):
            await asyncio.sleep(0.5)
            world.keeper.runners(B)[number].die(signal=9, over_memory=True)
        with pytest.raises(OutOfDeviceMemory, match="used more memory than it may"):
            await caller.result()


@virtual
async def test_a_model_grows_into_what_nobody_else_was_promised_and_not_beyond():
    async with World(fakes=CARD) as world:
        world.put(behaviour=Behaviour(books=700 * MIB), resources=on_card(500))
        world.put(B, behaviour=Behaviour(load_s=3.0), resources=on_card(400))
        slow = world.ask(B, echo=1)
        await asyncio.sleep(0.1)
        assert charged(world) == {B: (400, "declared")}, "promised, and not a byte of it taken yet"
        other = world.ask(echo=2)
        await asyncio.sleep(1.0)
        assert world.keeper.runners(A)[0].process.alive is False, "500 MiB fit beside it, 700 don't"
        assert (await slow.result())["echo"] == 1
        assert (await other.result())["echo"] == 2


@virtual
async def test_host_memory_is_charged_wherever_a_model_runs_and_by_what_it_holds():
    async with World(host="1GiB", fakes=CARD) as world:
        for name in (A, B):
            world.put(name, resources={"memory": "400MiB", "device": "cuda" if name == B else "cpu"})
        slow = world.put("@test/slow", behaviour=Behaviour(load_s=5.0), resources={"memory": "600MiB"})
        await world.answer(A, echo=1)
        await world.answer(B, echo=1)
        assert charged(world, "cpu") == {A: (17 + 64, "learned"), B: (17 + 64, "learned")}
        process = world.keeper.processes[0]
        world.host_use[process.pid] = Held(300 * MIB, 350 * MIB)
        await asyncio.sleep(4.1)
        assert charged(world, "cpu")[A] == (350 + 64, "learned")
        assert world.node.view(A).peak_bytes == 350 * MIB
        loading = world.ask(slow.model, echo=1)
        assert (await loading.result())["echo"] == 1
        assert world.state(A) == "stopped", "600 and 64 MiB of slack don't fit beside 414 and 81"


@virtual
async def test_a_bound_beyond_what_there_is_is_no_need_the_first_process_has_everything_and_what_it_took_is_planned_then():
    async with World(host="512MiB") as world:
        for name in (A, B):
            world.put(name, resources={"memory": "2GiB"}, behaviour=Behaviour(load_s=5.0))
        await world.answer(A, echo=1)
        assert charged(world, "cpu") == {A: (17 + 64, "learned")}
        loading = world.ask(B, echo=1)
        await asyncio.sleep(3.0)
        assert charged(world, "cpu") == {B: (512, "declared")}, "of B nothing is known yet"
        await loading.result()
        await world.answer(A, echo=1)
        assert charged(world, "cpu") == dict.fromkeys((A, B), (17 + 64, "learned")), "both are known, and fit"
        launches = [process.launch for process in world.keeper.processes]
        assert {launch.limits.memory_bytes for launch in launches} == {(512 + 64) * MIB}, "no process may take more than there is"
        assert {launch.assignment["resources"]["memory_bytes"] for launch in launches} == {(512 + 64) * MIB}


@virtual
async def test_a_bound_beyond_what_others_leave_of_the_host_is_no_need_either():
    """On a machine on which anything else runs nobody would ever have all that is there for models."""
    async with World(host="512MiB", max_wait_s=5.0) as world:
        world.others_leave(400 * MIB)
        for name in (A, B):
            world.put(name, resources={"memory": "2GiB"}, behaviour=Behaviour(load_s=5.0))
        await world.answer(A, echo=1)
        loading = world.ask(B, echo=1)
        await asyncio.sleep(3.0)
        assert charged(world, "cpu") == {B: (417, "declared")}, "those and what A held then"
        await loading.result()
        world.others_leave(100 * MIB)
        world.put(C, resources={"memory": "2GiB"})
        refused = world.ask(C, echo=1)
        with pytest.raises(Busy, match=r"256 MiB needed.*other programs hold too much"):
            await refused.result()
        await world.answer(A, echo=1)


@virtual
async def test_who_really_takes_more_of_the_host_than_there_is_is_told_both_numbers_after_one_try():
    async with World(host="512MiB") as world:
        world.put(resources={"memory": "2GiB"}, behaviour=Behaviour(fails="no memory", fails_because_of="memory"))
        with pytest.raises(NeverFits, match="needs 2 GiB of host memory, this node has 512 MiB for models"):
            await world.answer(echo=1)
        assert len(world.keeper.runners(A)) == 1


@virtual
async def test_what_was_learned_is_known_to_the_next_control_plane_and_peaks_fade_slowly():
    async with World(fakes=CARD) as world:
        world.put(behaviour=Behaviour(books=400 * MIB), resources=on_card(900))
        await world.answer(echo=1)
        await world.node.unload(A, grace_s=None)
        world.keeper.behaviours[A] = Behaviour(books=200 * MIB)
        await world.answer(echo=1)
        assert charged(world) == {A: (400, "learned")}
        keeper, catalog = await world.crash()
        async with World(keeper=keeper, catalog=catalog, fakes=CARD) as after:
            await after.answer(echo=2)
            assert charged(after) == {A: (400, "learned")}
            await after.node.unload(A, grace_s=None)
            assert after.node.why(A)["memory"]["expected"]["device"]["learned_bytes"] == 350 * MIB


@virtual
async def test_a_fault_of_the_card_moves_who_can_and_fails_who_can_t():
    async with World(fakes=[*CARD, *CARD], max_wait_s=2.0) as world:
        world.put(A, behaviour=Behaviour(books=100 * MIB), resources=on_card(100))
        await world.answer(A, echo=1)
        (first,) = charged(world) or charged(world, "cuda:1")
        assert first == A
        working = world.ask(A, sleep_s=30.0)
        await asyncio.sleep(0.1)
        view = world.node.patch_device("cuda:0", {"xid": 79})
        assert (view["state"], view["fence"]) == ("fenced", "XID 79: it has fallen off the bus")
        with pytest.raises(Exception, match="XID 79"):
            await working.result()
        await world.until_state("ready", A)
        assert (charged(world), charged(world, "cuda:1")) == ({}, {A: (100, "learned")})
        assert world.catalog.fenced == {"cuda:0": "XID 79: it has fallen off the bus"}
        keeper, catalog = await world.crash()
        async with World(keeper=keeper, catalog=catalog, fakes=[*CARD, *CARD]) as after:
            assert [view["state"] for view in after.node.devices()] == ["ok", "fenced", "ok"]
            after.node.patch_device("cuda:0", {"unfence": True})
            assert after.catalog.fenced == {}


@virtual
async def test_a_request_that_runs_out_of_device_memory_is_worked_on_once_more_by_a_process_with_more():
    async with World(fakes=CARD) as world:
        world.put(behaviour=Behaviour(books=300 * MIB), resources=on_card(300))
        world.put(B, behaviour=Behaviour(books=500 * MIB), resources=on_card(500))
        await world.answer(B, echo=1)
        await world.answer(A, echo=1)
        beside = world.ask(A, sleep_s=1.0)
        short = world.ask(A, oom="CUDA out of memory. Tried to allocate 300.00 MiB", oom_loads=1, echo="at last")
        assert (await short.result())["echo"] == "at last"
        await beside.result()
        assert (world.state(B), charged(world)) == ("stopped", {A: (600, "learned")})
        assert len(world.keeper.runners(A)) == 2


@virtual
async def test_a_second_shortage_and_one_that_more_would_not_help_are_told_with_both_numbers():
    async with World(fakes=CARD) as world:
        world.put(behaviour=Behaviour(books=300 * MIB), resources=on_card(300))
        await world.answer(echo=1)
        with pytest.raises(OutOfDeviceMemory, match=r"300 MiB were planned for it on cuda:0, 1\.5 GiB are needed, 1000 MiB is what it has"):
            await world.answer(oom="CUDA out of memory. Tried to allocate 1.20 GiB")
        assert len(world.keeper.runners()) == 1, "more than there is would help, so nothing is tried and nothing learned"
        assert charged(world) == {A: (300, "learned")}
        with pytest.raises(OutOfDeviceMemory, match="600 MiB were planned for it on cuda:0"):
            await world.answer(oom="CUDA out of memory. Tried to allocate 300.00 MiB")
        assert len(world.keeper.runners()) == 2
        assert (await world.answer(echo=2))["echo"] == 2
        world.put(B)
        await world.answer(B, echo=1)
        with pytest.raises(OutOfDeviceMemory, match="512 MiB is what it may take of the host's memory"):
            await world.answer(B, oom="MemoryError")
        assert len(world.keeper.runners(B)) == 1


@virtual
async def test_a_book_that_a_bug_made_wrong_is_right_again_within_seconds():
    async with World(fakes=CARD) as world:
        world.put(behaviour=Behaviour(books=300 * MIB), resources=on_card(300))
        world.put(B, behaviour=Behaviour(books=300 * MIB), resources=on_card(300))
        await world.answer(A, echo=1)
        room = world.room
        (resident,) = room.residents()
        room.release(resident)
        ghost = world.devices.book("ghost", "cuda:0", 500 * MIB, release_delay_s=0.0, now=world.clock.now())
        assert (ghost, charged(world)) == ("", {})
        await asyncio.sleep(5.0)
        assert charged(world) == {A: (300, "learned")}
        assert world.node.devices()[1]["used_bytes"] == 300 * MIB
        assert [len(event["entries"]) for event in world.happened("ledger.corrected")] == [2]
        await world.node.unload(A, grace_s=None)
        room.claim(resident, "cuda:0")
        await asyncio.sleep(5.0)
        assert charged(world) == {}


@virtual
async def test_what_a_full_disk_could_not_take_is_written_once_there_is_room():
    """A peak or a fence that only memory has is gone with the control plane: the next one would over-commit a card, or place on a broken one."""
    async with World(fakes=[FakeDeviceSettings(total="1000MiB")] * 2) as world:
        world.put(behaviour=Behaviour(books=300 * MIB), resources=on_card(50))
        world.catalog.full = True
        await world.answer(echo=1)
        world.node.patch_device("cuda:1", {"xid": 79})
        await asyncio.sleep(10.0)
        assert not world.catalog.measured and not world.catalog.fenced
        lost = [*world.happened("ledger.peak_lost"), *world.happened("device.fence_lost"), *world.happened("device.fenced")]
        assert len(lost) == 3, "each is told once"
        world.catalog.full = False
        await asyncio.sleep(5.0)
        assert [peak.device_bytes for peak in world.catalog.measured.values()] == [300 * MIB]
        assert world.catalog.fenced == {"cuda:1": "XID 79: it has fallen off the bus"}
        world.catalog.full = True
        world.node.patch_device("cuda:1", {"unfence": True})
        world.catalog.full = False
        await asyncio.sleep(5.0)
        assert world.catalog.fenced == {}
