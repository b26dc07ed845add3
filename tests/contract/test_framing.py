"""Properties of packets and frames: whole messages come out as they went in, and nothing else ever comes out."""

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fornada_sdk.api_context import Instance
from fornada_sdk.runner.attachment import Attachment, Detached
from fornada_sdk.wire.channel import pair
from fornada_sdk.wire.framing import (
    HEADER,
    HEADER_SIZE,
    MAX_PACKET,
    MAX_PAYLOAD,
    MORE,
    Assembler,
    ProtocolError,
    frame,
    frames,
    pack,
    split,
)
from fornada_sdk.wire.messages import Kind, invoke_head

IDS = st.integers(0, 2**64 - 1)
SMALL = st.tuples(st.integers(0, 255), IDS, st.binary(max_size=200), st.integers(0, 2**32 - 1), st.integers(0, 255))
SIZES = st.sampled_from([0, 1, 100, MAX_PAYLOAD - 1, MAX_PAYLOAD, MAX_PAYLOAD + 1, 3 * MAX_PAYLOAD, 200_000]) | st.integers(0, 300_000)


@given(st.lists(SMALL, max_size=50))
def test_frames_come_out_of_packets_as_they_went_in(given_):
    made = [frame(kind, id, payload, part=part, flags=flags) for kind, id, payload, part, flags in given_]
    packets = list(pack(made))
    assert all(0 < len(packet) <= MAX_PACKET for packet in packets)
    seen = [(kind, id, bytes(payload), part, flags) for packet in packets for kind, flags, part, id, payload in split(packet)]
    assert seen == given_


@given(st.lists(st.integers(HEADER_SIZE, MAX_PACKET), max_size=30))
def test_packets_are_as_few_as_their_order_allows(sizes):
    packets = list(pack([b"x" * size for size in sizes]))
    assert sum(map(len, packets)) == sum(sizes)
    assert all(len(one) + size > MAX_PACKET for one, size in zip(packets, _firsts(sizes)[1:], strict=False))


def _firsts(sizes):
    """The size of each packet's first frame."""
    firsts, room = [], -1
    for size in sizes:
        if size > room:
            firsts.append(size)
            room = MAX_PACKET
        room -= size
    return firsts


@given(st.binary(max_size=100), st.lists(SIZES, max_size=4), st.integers(0, 5))
def test_a_body_of_any_size_is_put_together_again(head, sizes, number):
    buffers = [bytes([index]) * size for index, size in enumerate(sizes)]
    made = list(frames(Kind.ITEM, Kind.PART, 7, head, buffers, part=number))
    whole = head + b"".join(buffers)
    assert all(len(each) <= MAX_PACKET for each in made)
    assert reassembled(made) == [(Kind.ITEM, number, 7, whole)]


def reassembled(made, limit=10**9):
    assembler, out = Assembler(limit), []
    for packet in pack(made):
        for kind, flags, part, id, payload in split(packet):
            if kind == Kind.PART:
                done = assembler.continued(flags, part, id, payload)
                if done is not None:
                    out.append((done[0], done[1], id, done[2]))
            elif flags & MORE:
                assembler.opened(kind, part, id, payload)
            else:
                out.append((kind, part, id, bytes(payload)))
    return out


@given(st.lists(SIZES, min_size=2, max_size=4), st.randoms(use_true_random=False))
def test_bodies_of_several_requests_may_interleave(sizes, random):
    queues = [list(frames(Kind.ANSWER, Kind.PART, id, b"", [bytes([id]) * size])) for id, size in enumerate(sizes)]
    made = []
    while any(queues):
        made.append(random.choice([queue for queue in queues if queue]).pop(0))
    assert sorted(reassembled(made)) == [(Kind.ANSWER, 0, id, bytes([id]) * size) for id, size in enumerate(sizes)]


@given(st.lists(SMALL, min_size=1, max_size=5), st.data())
def test_a_packet_that_is_cut_gives_whole_frames_and_then_a_fault(given_, data):
    packet = b"".join(frame(kind, id, payload, part=part, flags=flags) for kind, id, payload, part, flags in given_)
    cut = data.draw(st.integers(1, len(packet) - 1))
    seen, ends, at = [], [0], 0
    for _, _, payload, _, _ in given_:
        at += HEADER_SIZE + len(payload)
        ends.append(at)
    try:
        for kind, _, _, _, payload in split(packet[:cut]):
            seen.append((kind, bytes(payload)))
    except ProtocolError:
        assert cut not in ends
    else:
        assert cut in ends
    assert seen == [(kind, payload) for kind, _, payload, _, _ in given_][: len(seen)]


@given(st.binary(max_size=2000))
def test_arbitrary_bytes_are_frames_or_a_fault(packet):
    try:
        total = sum(HEADER_SIZE + len(payload) for _, _, _, _, payload in split(packet))
    except ProtocolError:
        return
    assert total == len(packet)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ProtocolError):
        frame(1, 1, b"x" * (MAX_PAYLOAD + 1))
    with pytest.raises(ProtocolError):
        list(frames(1, 32, 1, b"x" * (MAX_PAYLOAD + 1), []))


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([("part", 1)], id="a part of nothing"),
        pytest.param([("open", 0), ("open", 0)], id="begun twice"),
        pytest.param([("open", 0), ("part", 2)], id="one left out"),
        pytest.param([("open", 0), ("part", 0)], id="the first again"),
        pytest.param([("open", 0), ("part", 1), ("part", 1)], id="one twice"),
        pytest.param([("open", 0), ("part", 1), ("last", 2), ("part", 3)], id="after the last"),
        pytest.param([("open", 0), *(("part", n) for n in range(1, 12))], id="too long"),
    ],
)
def test_parts_out_of_order_or_beyond_the_limit_are_a_fault(steps):
    assembler = Assembler(1000)
    with pytest.raises(ProtocolError):
        for what, number in steps:
            if what == "open":
                assembler.opened(Kind.ANSWER, number, 5, b"x" * 100)
            else:
                assembler.continued(0 if what == "last" else MORE, number, 5, b"x" * 100)


@given(
    st.lists(
        st.tuples(st.sampled_from(["open", "part", "last"]), st.integers(0, 3), st.integers(0, 4), st.binary(max_size=300)), max_size=40
    )
)
def test_an_assembler_never_holds_more_than_its_limit_for_a_body(steps):
    assembler = Assembler(1000)
    for what, id, number, payload in steps:
        try:
            if what == "open":
                assembler.opened(Kind.ANSWER, 0, id, payload)
            else:
                done = assembler.continued(MORE if what == "part" else 0, number, id, payload)
                assert done is None or len(done[2]) <= 1000
        except ProtocolError:
            return


# ---- the runner reads packets with code of its own, for speed: it must see the same


def heard(packets):
    """What an Attachment makes of the packets: (calls, messages), and whether it faulted."""
    ours, theirs = pair()
    attachment = Attachment(theirs, Instance(), epoch=1, body_limit=10**6, writable=lambda *_: None)
    calls, messages = [], []
    try:
        for packet in packets:
            ours.send(packet)
        ours.shutdown(socket.SHUT_WR)
        while True:
            attachment.receive(
                lambda call: calls.append((call.id, call.head, call.raw)),
                lambda kind, id, payload: messages.append((kind, id, bytes(payload))),
            )
    except Detached:
        return calls, messages, False
    except ProtocolError:
        return calls, messages, True
    finally:
        ours.close()
        attachment.close()


@given(st.lists(st.tuples(st.booleans(), IDS, st.binary(max_size=50), SIZES), max_size=5, unique_by=lambda item: item[1]))
def test_the_runner_hears_what_was_said(given_):
    said: list[bytes] = []
    calls, messages = [], []
    for is_call, id, head, size in given_:
        body = b"b" * size
        if is_call:
            said += frames(Kind.INVOKE, Kind.PART, id, invoke_head(head, 1.0), [body])
            calls.append((id, head, body))
        else:
            said += frames(Kind.STOP, Kind.PART, id, head, [body])
            messages.append((Kind.STOP, id, head + body))
    assert heard(pack(said)) == (calls, messages, False)


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=4))
def test_the_runner_hears_nothing_else_from_garbage(packets):
    heard(packets)


@given(st.integers(0, 40), st.integers(0, 2**32 - 1))
def test_an_invoke_s_head_can_not_reach_beyond_its_payload(size, claimed):
    payload = (claimed.to_bytes(4, "little") + b"\0\0\x80\x3f" + b"x" * 40)[:size]
    packet = HEADER.pack(len(payload), Kind.INVOKE, 0, 0, 1) + payload
    calls, _, faulted = heard([packet])
    assert faulted == (size < 8 or claimed > size - 8)
    assert len(calls) == (not faulted)
