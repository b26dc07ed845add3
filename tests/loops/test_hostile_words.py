"""What a runner says is shown to people and to other machines: nothing in it may break whoever shows it, or hold up others."""

import asyncio

import msgspec
import pytest

from fornada.core.errors import LoadFailed
from fornada.core.names import ModelName
from fornada_sdk.wire.framing import frame
from fornada_sdk.wire.messages import Kind, with_head
from tests.loops.fake_runner import Behaviour
from tests.loops.virtual import virtual
from tests.loops.world import World

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
        with pytest.raises(LoadFailed, match="surrogates"):
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
