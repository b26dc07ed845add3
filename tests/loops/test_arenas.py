"""Long bodies in shared files: when there are any, what goes through them, and what becomes of their memory."""

import asyncio
import errno
import os
from typing import Any

import pytest

from fornada.node import arenas
from fornada_sdk.runner.answers import ok_frames
from fornada_sdk.wire.messages import Kind
from tests.harness.processes import descriptors
from tests.loops.arena_stand import LONG, MAX_BODY, some, stand
from tests.loops.virtual import virtual


@virtual
async def test_without_a_long_body_there_is_nothing():
    with stand() as both:
        await both.turn()
        before = descriptors(os.getpid())
        for number in range(1, 20):
            await both.through(number, some(3000 * number, number))
        assert both.files == {}
        assert descriptors(os.getpid()) == before


@virtual
async def test_the_first_long_body_goes_in_parts_and_all_others_through_the_file():
    with stand() as both:
        await both.turn()
        await both.through(1, some(LONG, 1))
        assert set(both.files) == {"requests", "answers"}
        assert both.blocks() == {"requests": 0, "answers": 0}
        for number in range(2, 30):
            await both.through(number, some(LONG + number, number))
        assert both.kinds.count(Kind.ARENA) == 4, "each is announced once and passed once"
        most = -(-(LONG + 30) // 65536) * 65536 // 512
        assert all(0 < blocks <= most for blocks in both.blocks().values()), "the same pages serve again and again"


@virtual
async def test_a_runner_of_an_older_release_gets_and_gives_parts():
    with stand(arenas=False) as both:
        await both.turn()
        for number in range(1, 5):
            await both.through(number, some(LONG, number))
        assert both.files == {}
        assert Kind.ARENA not in both.kinds


@virtual
async def test_what_finds_no_room_goes_in_parts():
    with stand() as both:
        await both.settled()
        bodies = {number: some(MAX_BODY, number) for number in range(10, 17)}
        sinks = {number: both.ask(number, body) for number, body in bodies.items()}
        assert len(both.link._arenas._placed) == arenas.BODIES_AT_ONCE
        for _ in range(10):
            await both.turn()
        for number, body in bodies.items():
            assert both.calls[number].raw == body
            both.answer(number, body)
            await both.turn()
            assert bytes(sinks[number].answered) == body
        await both.through(20, some(MAX_BODY, 20))
        assert set(both.link._arenas._placed) == {20}


@virtual
async def test_what_is_longer_than_the_file_goes_in_parts():
    with stand() as both:
        await both.settled()
        body = some(arenas.BODIES_AT_ONCE * MAX_BODY + 1, 3)
        both.ask(3, body)
        for _ in range(20):
            await both.turn()
        assert both.calls[3].raw == body
        assert both.link._arenas._placed == {}


@virtual
async def test_an_answer_lies_in_the_file_until_it_is_acknowledged():
    with stand() as both:
        await both.settled()
        assert both.far.arenas is not None
        both.ask(3, b"1")
        await both.turn()
        both.far.send(ok_frames(both.calls[3], some(LONG, 3), 0.0))
        assert set(both.far.arenas._lent) == {3}
        await both.turn()
        assert set(both.far.arenas._lent) == {3}
        await asyncio.sleep(0.1)  # acknowledgements wait a little for a message that they can travel with
        await both.turn()
        assert both.far.arenas._lent == {}


@virtual
async def test_memory_that_is_not_used_goes_back_to_the_kernel():
    with stand() as both:
        await both.settled()
        await asyncio.sleep(arenas.UNUSED_S * 2 + 1)
        assert both.blocks() == {"requests": 0, "answers": 0}, "also where the runner sleeps"
        await asyncio.sleep(1000)
        await both.turn()
        assert Kind.TRIM not in both.kinds
        await both.through(3, some(LONG, 3))


@virtual
async def test_a_runner_at_work_gives_back_what_it_does_not_need_itself():
    with stand() as both:
        await both.settled()
        assert both.far.arenas is not None
        kept, asked = some(LONG, 3), both.ask(3, b"1")
        both.ask(4, b"1")
        await both.turn()
        both.far.arenas.lend(77, some(LONG, 5))  # an answer that is about to be sent
        await asyncio.sleep(arenas.UNUSED_S * 2 + 1)
        before = both.blocks()["answers"]
        await both.turn()
        assert both.kinds.count(Kind.TRIM) == 1
        assert both.far.arenas._answers is not None
        assert both.far.arenas._answers.read(both.far.arenas._lent[77], LONG) == some(LONG, 5)
        both.answer(3, kept)
        await both.turn()
        assert asked.answered == kept
        assert 0 < before <= both.blocks()["answers"]
        await asyncio.sleep(1000)
        await both.turn()
        assert both.kinds.count(Kind.TRIM) == 2, "then there is peace"


@virtual
async def test_a_body_that_is_still_needed_stays_when_the_rest_goes():
    with stand() as both:
        await both.settled()
        body = some(LONG, 3)
        both.ask(3, body)
        await asyncio.sleep(arenas.UNUSED_S * 3)
        await both.turn(reads=True)
        assert both.calls[3].raw == body
        both.answer(3, b"1")
        await both.turn()
        await asyncio.sleep(arenas.UNUSED_S * 3)
        assert both.blocks()["requests"] == 0


@virtual
async def test_no_file_can_be_had(monkeypatch: pytest.MonkeyPatch):
    def none(*_: Any) -> int:
        raise OSError(errno.EMFILE, "too many")

    with stand() as both:
        await both.turn()
        with monkeypatch.context() as patch:
            patch.setattr(os, "memfd_create", none)
            for number in (1, 2, 3):
                await both.through(number, some(LONG, number))
            assert both.files == {}
        await both.through(4, some(LONG, 4))
        assert set(both.files) == {"requests", "answers"}


@virtual
async def test_no_memory_for_a_body(monkeypatch: pytest.MonkeyPatch):
    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "no space")

    with stand() as both:
        await both.settled()
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwritev", full)
            await both.through(3, some(LONG, 3))
        assert both.link._arenas._placed == {}
        assert both.far.arenas is not None
        assert len(both.link._arenas._slots) == len(both.far.arenas._slots) == 0
        await both.through(4, some(LONG, 4))


@virtual
async def test_a_file_that_the_runner_can_not_take_is_never_used(monkeypatch: pytest.MonkeyPatch):
    with stand() as both:
        await both.turn()
        both.far._receive_descriptors = lambda size: both.theirs.recv(size)  # type: ignore[method-assign]  # the kernel closes them
        for number in range(1, 5):
            await both.through(number, some(LONG, number))
        assert both.link._arenas._placed == {}


@virtual
async def test_nothing_is_offered_over_a_socket_that_is_full():
    with stand() as both:
        await both.turn()
        number = 0
        while not both.link._outbox.blocked:
            number += 1
            both.ask(number, some(60_000, number))
            await both.turn(reads=False)
        both.ask(number + 1, some(LONG, 1))
        assert both.files == {}
        for _ in range(20):
            await both.turn()
        assert both.calls[number + 1].raw == some(LONG, 1)
        await both.through(number + 2, some(LONG, 2))
        assert set(both.files) == {"requests", "answers"}
