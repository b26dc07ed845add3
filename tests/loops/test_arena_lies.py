"""What a hostile runner can do with the files that it shares, and with what it says about them."""

import asyncio
import fcntl
import os
import struct

import pytest

from fornada.node import arenas
from fornada_sdk.wire.arena import PLACE
from fornada_sdk.wire.framing import MAX_PACKET, STORED, ProtocolError, frame, split
from fornada_sdk.wire.messages import OK_HEAD, Kind, encode, with_head
from tests.loops.arena_stand import LONG, MAX_BODY, some, stand
from tests.loops.virtual import virtual


@virtual
async def test_neither_file_can_change_its_size_or_its_seals():
    with stand() as both:
        await both.settled()
        assert both.far.arenas is not None and both.far.arenas._requests is not None and both.far.arenas._answers is not None
        for descriptor in (both.far.arenas._answers.descriptor, *both.files.values()):
            size = os.fstat(descriptor).st_size
            for other in (0, size - 1, size + 1):
                with pytest.raises(PermissionError):
                    os.ftruncate(descriptor, other)
            with pytest.raises(PermissionError):
                fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
            with pytest.raises(PermissionError):
                os.pwrite(descriptor, b"x" * 10, size)
        requests = both.far.arenas._requests.descriptor
        assert fcntl.fcntl(requests, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
        for change in (lambda: os.pwrite(requests, b"x", 0), lambda: os.ftruncate(requests, 0)):
            with pytest.raises(OSError, match=r"Bad file descriptor|Invalid argument"):
                change()


@virtual
async def test_what_a_caller_was_given_does_not_change_any_more():
    with stand() as both:
        await both.settled()
        assert both.far.arenas is not None and both.far.arenas._answers is not None and both.far.arenas._requests is not None
        answer, body = some(LONG, 3), some(LONG, 4)
        sink = both.ask(3, body)
        await both.turn()
        call = both.calls[3]
        both.answer(3, answer)
        await both.turn()
        for descriptor in both.files.values():
            os.pwrite(descriptor, b"!" * 4 * 65536, 0)
        assert sink.answered == answer
        assert call.raw == body


# ---- runners that lie

OUTSIDE = {
    "size of nothing": PLACE.pack(0, 0),
    "more than there is": PLACE.pack(0, arenas.ANSWERS_BYTES + 1),
    "over the end": PLACE.pack(arenas.ANSWERS_BYTES - 10, 11),
    "behind the end": PLACE.pack(arenas.ANSWERS_BYTES, 1),
    "negative offset": struct.pack("<qQ", -1, 10),
    "negative size": struct.pack("<Qq", 10, -5),
    "both wrap around": PLACE.pack(2**64 - 1, 2**64 - 1),
}


@virtual
@pytest.mark.parametrize("place", OUTSIDE.values(), ids=OUTSIDE)
async def test_a_place_outside_of_the_file_ends_the_runner(place: bytes):
    with stand() as both:
        await both.settled()
        sink = both.ask(3, b"1")
        both.say(Kind.ANSWER, 3, with_head(OK_HEAD) + place)
        await both.turn(reads=False)
        assert "can't be read" in both.ears.faults[0]
        assert sink.answered is None
        assert not both.link.open


LIES = {
    "an item in the file": (Kind.ITEM, PLACE.pack(0, 10)),
    "an end in the file": (Kind.END, PLACE.pack(0, 10)),
    "a stream in the file": (Kind.STREAM, with_head(OK_HEAD) + PLACE.pack(0, 10)),
    "a booking in the file": (Kind.BOOK, PLACE.pack(0, 10)),
    "half a place": (Kind.ANSWER, with_head(OK_HEAD) + b"1234567"),
    "no place": (Kind.ANSWER, b""),
    "two bodies": (Kind.ANSWER, with_head(OK_HEAD) + b"body" + PLACE.pack(0, 10)),
    "a head longer than its payload": (Kind.ANSWER, struct.pack("<I", 500) + b"{}" + PLACE.pack(0, 10)),
    "an ARENA too many": (Kind.ARENA, encode({"requests": 4 * MAX_BODY})),
    "an ARENA of another size": (Kind.ARENA, encode({"requests": 1})),
    "an ARENA of nothing": (Kind.ARENA, encode({})),
}


@virtual
@pytest.mark.parametrize(("kind", "payload"), LIES.values(), ids=LIES)
async def test_what_the_wire_does_not_allow_ends_the_runner(kind: Kind, payload: bytes):
    with stand() as both:
        await both.settled()
        sink = both.ask(3, b"1")
        both.say(kind, 3, payload, flags=0 if kind is Kind.ARENA else STORED)
        await both.turn(reads=False)
        assert len(both.ears.faults) == 1, both.ears.faults
        assert sink.answered is None


@virtual
@pytest.mark.parametrize("arenas", [True, False])
async def test_an_answer_in_a_file_that_there_is_not_ends_the_runner(arenas: bool):
    with stand(arenas=arenas) as both:
        await both.turn()
        both.ask(3, b"1")
        both.say(Kind.ANSWER, 3, with_head(OK_HEAD) + PLACE.pack(0, 10))
        await both.turn(reads=False)
        assert "there isn't" in both.ears.faults[0]


@virtual
async def test_an_arena_that_was_never_offered_ends_the_runner():
    with stand() as both:
        await both.turn()
        both.say(Kind.ARENA, 0, encode({"requests": 4 * MAX_BODY}), flags=0)
        await both.turn(reads=False)
        assert "never offered" in both.ears.faults[0]


@virtual
async def test_answers_that_lie_over_each_other_are_each_what_was_there():
    with stand() as both:
        await both.settled()
        sinks = [both.ask(number, b"1") for number in (3, 4, 5)]
        os.pwrite(both.files["answers"], b"0123456789", 0)
        for number, place in zip((3, 4, 5), (PLACE.pack(0, 10), PLACE.pack(5, 5), PLACE.pack(0, 10)), strict=True):
            both.say(Kind.ANSWER, number, with_head(OK_HEAD) + place)
        await both.turn(reads=False)
        assert [bytes(sink.answered) for sink in sinks] == [b"0123456789", b"56789", b"0123456789"]
        assert not both.ears.faults


@virtual
async def test_the_second_answer_to_a_request_is_nobodys_and_is_not_read():
    with stand() as both:
        await both.settled()
        both.ask(3, b"1")
        for _ in range(2):
            both.say(Kind.ANSWER, 3, with_head(OK_HEAD) + PLACE.pack(0, 10))
        both.say(Kind.ANSWER, 99, with_head(OK_HEAD) + PLACE.pack(2**63, 0))
        await both.turn(reads=False)
        assert both.ears.orphans == [3, 99]
        assert not both.ears.faults


@virtual
async def test_a_runner_that_ends_a_request_twice_frees_no_other_request_s_place():
    with stand() as both:
        await both.settled()
        first, second = some(LONG, 3), some(LONG, 4)
        both.ask(3, first)
        both.ask(4, second)
        held = dict(both.link._arenas._placed)
        for _ in range(3):
            both.say(Kind.ANSWER, 3, with_head(OK_HEAD) + b"1", flags=0)
        await both.turn()
        third = some(LONG, 5)
        both.ask(5, third)
        await both.turn()
        assert both.link._arenas._placed == {4: held[4], 5: held[3]}
        assert (both.calls[4].raw, both.calls[5].raw) == (second, third)


@virtual
async def test_the_runner_refuses_a_place_where_no_request_can_be():
    """The trusted side doesn't lie; that it would be noticed costs nothing."""
    with stand() as both:
        await both.settled()
        both.ours.send(frame(Kind.INVOKE, 9, struct.pack("<If", 2, 1.0) + b"{}" + PLACE.pack(0, 2**40), flags=STORED))
        with pytest.raises(ProtocolError, match="can't be read"):
            both.far.receive(both._call, both._message)


@virtual
async def test_the_frame_of_a_stored_body_is_small():
    with stand() as both:
        await both.settled()
        both.ask(3, some(MAX_BODY, 3))
        await asyncio.sleep(0.001)
        packet = both.theirs.recv(MAX_PACKET)
        (found,) = [entry for entry in split(packet) if entry[0] == Kind.INVOKE]
        assert found[1] == STORED
        assert len(packet) < 200
