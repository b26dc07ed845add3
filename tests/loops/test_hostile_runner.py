"""A runner that breaks the wire's rules is killed, its callers are told, and nobody else notices."""

import asyncio
import signal
import struct

import pytest

from fornada.core.errors import LoadFailed, RunnerDied
from fornada.core.names import ModelName
from fornada.core.settings import FakeDeviceSettings
from fornada_sdk.wire.framing import HEADER, MAX_PACKET, MORE, frame
from fornada_sdk.wire.messages import STREAM_WINDOW, Kind, encode, with_head
from tests.loops.fake_runner import Behaviour
from tests.loops.virtual import virtual
from tests.loops.world import World, now

A = ModelName("@test/a")
LIVE = (1 << 40) + 2  # the second request of the first control plane: the one that is at work below
DEEP = b"[" * 100_000

NONSENSE = {
    "a second READY": frame(Kind.READY, 0, encode({"pipelining": 1})),
    "a second HELLO": frame(Kind.HELLO, 0, encode({"wire": 1})),
    "PROGRESS after READY": frame(Kind.PROGRESS, 0, encode({"phase": "loading"})),
    "FAILED after READY": frame(Kind.FAILED, 0, encode({"reason": "no"})),
    "a head that is no JSON": frame(Kind.ANSWER, LIVE, with_head(b"{nonsense")),
    "a head without end": frame(Kind.ANSWER, LIVE, with_head(b'{"message":' + DEEP[:50_000])),
    "a head longer than its payload": frame(Kind.ANSWER, LIVE, struct.pack("<I", 500) + b"{}"),
    "an answer without a head": frame(Kind.ANSWER, LIVE, b"x"),
    "a status that nobody knows": frame(Kind.ANSWER, LIVE, with_head(encode({"status": "splendid"}))),
    "an item before its stream": frame(Kind.ITEM, LIVE, b"{}"),
    "an end before its stream": frame(Kind.END, LIVE, b"{}"),
    "a part of nothing": frame(Kind.PART, LIVE, b"x", part=1),
    "a part out of order": frame(Kind.ANSWER, LIVE, b"x", flags=MORE) + frame(Kind.PART, LIVE, b"x", part=7),
    "a body that begins twice": frame(Kind.ANSWER, LIVE, b"x", flags=MORE) * 2,
    "a message of ours": frame(Kind.INVOKE, LIVE, b"x"),
    "a kind that there isn't": frame(99, 0, b""),
    "half a header": b"\1\2\3",
    "a length that lies": HEADER.pack(5000, Kind.ITEM, 0, 0, LIVE) + b"x",
    "a model that listens to somebody who doesn't speak": frame(Kind.TAKEN, LIVE, struct.pack("<I", 0)),
    "no number of bytes that it has taken": frame(Kind.TAKEN, LIVE, b"x"),
    "a booking of nothing": frame(Kind.BOOK, 1, encode({"device": 7})),
    "a head that is no object": frame(Kind.BOOK, 1, b"[1,2]"),
    "JSON without bottom": frame(Kind.BOOK, 1, DEEP[:60_000]),
    "a booking of more than there can be": frame(Kind.BOOK, 1, encode({"device": "cuda:0", "bytes": 10**4000})),
}


@virtual
@pytest.mark.parametrize("nonsense", NONSENSE.values(), ids=NONSENSE)
async def test_nonsense_on_the_wire_ends_the_runner_and_nothing_else(nonsense):
    async with World() as world:
        world.put(serving={"concurrency": 4})
        world.put("@test/b")
        await world.answer(echo=1)
        caller = world.ask(sleep_s=30.0)
        other = world.ask("@test/b", sleep_s=1.0)
        await asyncio.sleep(0.1)
        began = now()
        runner = world.keeper.runners("@test/a")[0]
        assert LIVE in runner._working
        runner._socket.send(nonsense)
        with pytest.raises(RunnerDied):
            await caller.result()
        assert now() - began < 0.1
        assert world.keeper.processes[0].signals == [signal.SIGKILL]
        (fault,) = world.happened("instance.fault")
        assert fault["reason"]
        assert (await world.answer(echo=2))["load_count"] == 2
        assert (await other.result())["seq"] == 1


@virtual
@pytest.mark.parametrize("hello", [{"wire": 99}, {"wire": "1"}, {"instance": "another"}, {"state": "dancing"}])
async def test_a_greeting_that_makes_no_sense_is_a_failed_load(hello):
    async with World() as world:
        world.put(behaviour=Behaviour(never_ready=True, hello=hello))
        with pytest.raises(LoadFailed, match=r"it speaks version|another instance|its state is"):
            await world.answer(echo=1)
        assert world.keeper.processes[0].signals == [signal.SIGKILL]


@virtual
async def test_numbers_of_requests_that_can_not_be_are_passed_over():
    async with World() as world:
        world.put(behaviour=Behaviour(hello={"in_flight": [-1, 2**70, "x", None], "booked": {"cuda:0": "much"}}))
        assert (await world.answer(echo=1))["echo"] == 1


@virtual
async def test_a_runner_can_not_make_us_hold_more_of_a_stream_than_the_window():
    async with World() as world:
        world.put()
        await world.answer(echo=1)
        caller = world.ask(sleep_s=30.0, takes=False)
        await asyncio.sleep(0.1)
        runner = world.keeper.runners()[0]
        runner.send(frame(Kind.STREAM, LIVE, with_head(b"{}")))
        item = encode({"x": "y" * 50_000})
        for number in range(STREAM_WINDOW // len(item) + 3):
            runner.send(frame(Kind.ITEM, LIVE, item, part=number))
        with pytest.raises(RunnerDied, match="have not been taken yet"):
            await caller.result()
        assert len(caller.items) * len(item) < STREAM_WINDOW + len(item)


@virtual
async def test_a_runner_can_not_fill_our_memory_with_bodies_that_never_end():
    async with World() as world:
        world.put()
        await world.answer(echo=1)
        caller = world.ask(sleep_s=1000.0, timeout_s=900.0)
        await asyncio.sleep(0.1)
        runner = world.keeper.runners()[0]
        chunk = b"x" * (MAX_PACKET - HEADER.size)
        runner.send(frame(Kind.ANSWER, LIVE, chunk, flags=MORE))
        part = 0
        while world.keeper.processes[0].alive and part < 5000:
            part += 1
            runner.send(frame(Kind.PART, LIVE, chunk, part=part, flags=MORE))
            await asyncio.sleep(0)
        with pytest.raises(RunnerDied, match=r"unfinished messages|body of more than"):
            await caller.result()


@virtual
async def test_bodies_without_bytes_that_never_end_count_too():
    async with World() as world:
        world.put()
        await world.answer(echo=1)
        runner = world.keeper.runners()[0]
        opened = 0
        while world.keeper.processes[0].alive and opened < 2_000_000:
            opened += 3000
            runner._socket.send(b"".join(frame(Kind.ANSWER, number, flags=MORE) for number in range(opened, opened + 3000)))
            await asyncio.sleep(0)
        (fault,) = world.happened("instance.fault")
        assert "unfinished messages" in fault["reason"]


@virtual
async def test_a_message_that_is_no_answer_is_never_read_into_memory_as_long_as_an_answer():
    async with World() as world:
        world.put()
        await world.answer(echo=1)
        runner = world.keeper.runners()[0]
        chunk = b"[" + b"{}," * 20_000
        runner.send(frame(Kind.BOOK, 1, chunk, flags=MORE))
        part = 0
        while world.keeper.processes[0].alive and part < 100:
            part += 1
            runner.send(frame(Kind.PART, 1, chunk, part=part, flags=MORE))
            await asyncio.sleep(0)
        (fault,) = world.happened("instance.fault")
        assert part < 50
        assert "of more than" in fault["reason"]


@virtual
@pytest.mark.parametrize("kind", [Kind.BOOK, Kind.STREAM, Kind.ANSWER], ids=str)
async def test_a_runner_that_asks_and_asks_and_never_reads_is_ended(kind):
    async with World() as world:
        world.put()
        await world.answer(echo=1)
        runner = world.keeper.runners()[0]
        runner._loop.remove_reader(runner._socket.fileno())
        payload = encode({"device": "x" * 10_000, "bytes": 1}) if kind is Kind.BOOK else with_head(b"{}")
        count = MAX_PACKET // (len(payload) + HEADER.size)
        number = 1 << 50
        while world.keeper.processes[0].alive and number < (1 << 50) + 4_000_000:
            runner._socket.setblocking(True)
            runner._socket.send(b"".join(frame(kind, number + at, payload) for at in range(count)))
            number += count
            await asyncio.sleep(0)
        (fault,) = world.happened("instance.fault")
        assert ("bookings at a time" if kind is Kind.BOOK else "doesn't read") in fault["reason"]


@virtual
async def test_a_delay_beyond_any_number_is_as_long_as_delays_can_be():
    async with World(fakes=[FakeDeviceSettings()]) as world:
        world.put(resources={"device": "cuda:0"})
        await world.answer(echo=1)
        runner = world.keeper.runners()[0]
        runner._booked = asyncio.get_running_loop().create_future()
        runner.send(frame(Kind.BOOK, 1, encode({"device": "cuda:0", "bytes": 1, "release_delay_s": 10**400})))
        assert (await runner._booked)["ok"]
        assert world.devices.held(world.keeper.processes[0].instance, "cuda:0") == 1


@virtual
@pytest.mark.parametrize("load_s", [10**400, float("nan"), float("inf"), -1, "long", None], ids=str)
async def test_a_load_time_that_makes_no_sense_is_none(load_s):
    async with World() as world:
        world.put(behaviour=Behaviour(never_ready=True, hello={"state": "ready", "load_s": load_s}))
        world.ask(echo=1)
        await asyncio.sleep(0.5)
        assert world.state() == "ready"
        (ready,) = world.happened("instance.ready")
        assert ready["load_s"] is None


@virtual
async def test_answers_that_nobody_asked_for_do_not_flood_the_log():
    async with World() as world:
        world.put()
        await world.answer(echo=1)
        runner = world.keeper.runners()[0]
        runner._socket.send(b"".join(frame(Kind.ANSWER, number, with_head(b"{}")) for number in range(1000, 2000)))
        await asyncio.sleep(0.1)
        assert world.metric("fornada_requests_orphaned_total") == 1000
        assert len(world.happened("request.orphaned")) < 20


@virtual
async def test_a_runner_that_closes_its_end_and_lives_on_is_ended():
    async with World() as world:
        world.put()
        await world.answer(echo=1)
        caller = world.ask(sleep_s=30.0)
        await asyncio.sleep(0.1)
        runner = world.keeper.runners()[0]
        runner._loop.remove_reader(runner._socket.fileno())
        runner._socket.shutdown(2)
        began = now()
        with pytest.raises(RunnerDied, match="closed its end of the wire"):
            await caller.result()
        assert now() - began < 2.0


@virtual
async def test_answers_that_nobody_asked_for_are_counted_and_acknowledged():
    async with World() as world:
        world.put()
        await world.answer(echo=1)
        runner = world.keeper.runners()[0]
        for id in (7, 8, 2**63):
            runner._finish(id, Kind.ANSWER, with_head(b"{}"), b"1")
        await asyncio.sleep(0.1)
        assert world.metric("fornada_requests_orphaned_total") == 3
        assert {7, 8, 2**63} <= runner.acked
        assert (await world.answer(echo=2))["echo"] == 2


@virtual
async def test_a_long_answer_that_nobody_asked_for_is_counted_and_never_held():
    async with World() as world:
        world.put()
        await world.answer(echo=1)
        runner = world.keeper.runners()[0]
        chunk = b"x" * (MAX_PACKET - HEADER.size)
        runner.send(frame(Kind.ANSWER, 7, with_head(b"{}") + chunk[:-6], flags=MORE))
        for part in range(1, 6000):  # more than a runner may ever have unfinished
            runner.send(frame(Kind.PART, 7, chunk, part=part, flags=MORE))
            await asyncio.sleep(0)
        runner.send(frame(Kind.PART, 7, chunk, part=6000))
        await asyncio.sleep(1.0)
        assert world.keeper.processes[0].alive
        assert world.metric("fornada_requests_orphaned_total") == 1
        assert 7 in runner.acked
        assert (await world.answer(echo=2))["load_count"] == 1


@virtual
async def test_a_long_answer_to_a_caller_who_has_left_frees_its_place():
    async with World() as world:
        world.put()
        await world.answer(echo=1)
        caller = world.ask(stuck_s=1.0, big=1_000_000)
        await asyncio.sleep(0.1)
        caller.ticket.leave()
        await asyncio.sleep(0.1)
        runner = world.keeper.runners()[0]
        runner.cancelled.remove(LIVE)  # it goes on all the same
        await asyncio.sleep(2.0)
        assert LIVE in runner.acked
        assert world.metric("fornada_requests_orphaned_total") == 0
        assert (await world.answer(echo=2))["load_count"] == 1


@virtual
@pytest.mark.parametrize(
    "nonsense",
    [
        frame(Kind.ANSWER, LIVE + 1, b"x", flags=MORE) * 2,
        frame(Kind.ANSWER, LIVE + 1, b"x", flags=MORE) + frame(Kind.PART, LIVE + 1, b"x", part=2),
        frame(Kind.ANSWER, LIVE + 1, b"x", flags=MORE) + frame(Kind.BOOK, LIVE + 1, b"x", flags=MORE),
        frame(Kind.BOOK, LIVE + 1, b"x", flags=MORE) + frame(Kind.ANSWER, LIVE + 1, b"x", flags=MORE),
    ],
    ids=["begins twice", "out of order", "another begins", "begins in another"],
)
async def test_what_is_thrown_away_keeps_the_rules_too(nonsense):
    async with World() as world:
        world.put()
        await world.answer(echo=1)
        world.keeper.runners()[0]._socket.send(nonsense)
        await asyncio.sleep(0.1)
        (fault,) = world.happened("instance.fault")
        assert f"request {LIVE + 1}" in fault["reason"]


@virtual
async def test_an_answer_that_begins_before_its_request_is_no_answer():
    async with World() as world:
        world.put()
        await world.answer(echo=1)
        runner = world.keeper.runners()[0]
        runner.send(frame(Kind.ANSWER, LIVE, with_head(b"{}"), flags=MORE))
        await asyncio.sleep(0.1)
        caller = world.ask(sleep_s=30.0)
        await asyncio.sleep(0.1)
        runner.send(frame(Kind.PART, LIVE, b"1", part=1))
        with pytest.raises(RunnerDied):
            await caller.result()
        (fault,) = world.happened("instance.fault")
        assert "before it was asked" in fault["reason"]
