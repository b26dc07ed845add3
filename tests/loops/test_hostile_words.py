"""What a runner says is shown to people and to other machines: nothing in it may break whoever shows it, or hold up others."""

import asyncio

import msgspec
import pytest

from fornada.core.errors import LoadFailed
from fornada.core.names import ModelName
from fornada.core.settings import FakeDeviceSettings
from fornada.node.bookings import A_SECOND, A_TURN, WAITING_MOST
from fornada_sdk.wire.framing import frame
from fornada_sdk.wire.messages import Kind, encode, with_head
from tests.loops.fake_runner import Behaviour
from tests.loops.virtual import virtual
from tests.loops.world import World, now

HALVES = [b'"\\ud800"', b'"\xed\xa0\x80"']


@virtual
@pytest.mark.parametrize("half", HALVES, ids=["escaped", "raw"])
@pytest.mark.parametrize(("kind", "name"), [(Kind.FAILED, b"reason"), (Kind.PROGRESS, b"text")], ids=["FAILED", "PROGRESS"])
async def test_half_a_character_in_what_a_runner_says_is_a_fault(kind, name, half):
    async with World() as world:
        world.put(behaviour=Behaviour(never_ready=True))
        caller = world.ask(echo=1, timeout_s=30.0)
        await asyncio.sleep(1.0)
        world.keeper.runners()[0].send(frame(kind, 0, b'{"%b":%b}' % (name, half)))
        with pytest.raises(LoadFailed, match=r"surrogates|can.t decode byte 0xed"):
            await caller.result()
        assert msgspec.json.encode(world.node.view(ModelName("@test/a")))


@virtual
@pytest.mark.parametrize("half", HALVES, ids=["escaped", "raw"])
async def test_half_a_character_on_stderr_is_shown_as_a_question_mark(half):
    async with World() as world:
        line = b'\x1e{"stream":"stderr","line":%b}\n' % half
        world.put(behaviour=Behaviour(prints=line, dies_loading=True))
        with pytest.raises(LoadFailed, match=r"\?") as refused:
            await world.answer(echo=1)
        assert refused.value.message.encode()
        assert msgspec.json.encode(world.node.view(ModelName("@test/a")))


@virtual
async def test_a_flood_of_progress_is_left_out_instead_of_taken_in():
    async with World() as world:
        world.put(behaviour=Behaviour(never_ready=True))
        caller = world.ask(echo=1, timeout_s=3000.0)
        await asyncio.sleep(1.0)
        runner = world.keeper.runners()[0]
        told = [frame(Kind.PROGRESS, 0, b'{"text":"%d"}' % number) for number in range(1000)]
        runner._socket.send(b"".join(told))
        await asyncio.sleep(0.1)
        shown = int(progress_of(world))
        assert 0 < shown < 200
        runner.send(frame(Kind.PROGRESS, 0, b'{"text":"5000"}'))
        await asyncio.sleep(0.1)
        assert progress_of(world) == "5000"
        caller.leave()


@virtual
async def test_pieces_without_bytes_reach_nobody():
    async with World() as world:
        world.put()
        await world.answer(echo=1)
        caller = world.ask(sleep_s=5.0)
        await asyncio.sleep(0.1)
        runner = world.keeper.runners()[0]
        (live,) = runner._working
        pieces = [frame(Kind.ITEM, live, b"", part=number) for number in range(1000)]
        runner._socket.send(b"".join([frame(Kind.STREAM, live, with_head(b"{}")), *pieces, frame(Kind.ITEM, live, b"{}", part=1000)]))
        await asyncio.sleep(0.1)
        assert caller.items == [{}]
        caller.leave()


def progress_of(world: World) -> str:
    progress = world.node.view(ModelName("@test/a")).progress
    assert progress is not None
    return progress["text"]


def question(number: int, *, device: str = "cuda:0", count: int = 0) -> bytes:
    return frame(Kind.BOOK, number, encode({"device": device, "bytes": count}))


@virtual
async def test_bookings_are_made_at_a_pace_and_all_that_may_wait_are_answered():
    async with World(fakes=[FakeDeviceSettings(total="1GiB")]) as world:
        world.put(resources={"device": "cuda:0", "device_memory": "64MiB"})
        await world.answer(echo=1)
        (runner,) = world.keeper.runners()
        answered = runner.bookings_answered
        began = now()
        runner._socket.send(b"".join(question(number) for number in range(1, WAITING_MOST)))
        await asyncio.sleep(0.005)
        assert len(answered) <= A_TURN
        await world.until(lambda: len(answered) == WAITING_MOST - 1, within_s=60.0)
        assert answered == list(range(1, WAITING_MOST))
        assert now() - began >= WAITING_MOST / A_SECOND * 0.9
        assert world.state() == "ready"


@virtual
async def test_who_asks_for_memory_on_and_on_is_ended():
    async with World(fakes=[FakeDeviceSettings(total="1GiB")]) as world:
        world.put(resources={"device": "cuda:0", "device_memory": "64MiB"})
        await world.answer(echo=1)
        (runner,) = world.keeper.runners()
        runner._socket.send(b"".join(question(number) for number in range(1, WAITING_MOST + A_TURN + 2)))
        await world.until(lambda: world.state() != "ready")
        assert f"more than {WAITING_MOST} bookings at a time" in world.node.view(ModelName("@test/a")).why
