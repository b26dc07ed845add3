"""One end of the keeper's conversations, over real sockets."""

import os
import socket

import pytest

from fornada_sdk.wire.channel import Channel, ChannelClosed, Message, QueueFull, pair
from fornada_sdk.wire.framing import MORE, ProtocolError, frame
from fornada_sdk.wire.messages import Kind


def channels(*, queue_bytes=1 << 26, body_bytes=1 << 26, descriptors=16):
    return tuple(Channel(end, queue_bytes=queue_bytes, body_bytes=body_bytes, descriptors=descriptors) for end in pair())


def open_files():
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture(autouse=True)
def _nothing_stays_open():
    before = open_files()
    yield
    assert open_files() == before


def test_messages_come_in_order_with_their_descriptors():
    ours, theirs = channels()
    read_end, write_end = os.pipe()
    ours.send(Kind.SPAWNED, {"instance": "ä"}, [write_end])
    ours.send(Kind.EXITED, {"instance": "ä"})
    first, second = theirs.receive()
    assert (first.kind, first.head) == (Kind.SPAWNED, {"instance": "ä"})
    assert (second.kind, second.descriptors) == (Kind.EXITED, [])
    os.write(first.descriptors[0], b"here")
    assert os.read(read_end, 10) == b"here"
    assert not os.get_inheritable(first.descriptors[0])
    for descriptor in (read_end, *first.descriptors):
        os.close(descriptor)
    ours.close()
    theirs.close()


def test_a_message_larger_than_a_packet_arrives_whole():
    ours, theirs = channels()
    read_end, write_end = os.pipe()
    head = {"padding": "x" * 20_000_000}
    ours.send(Kind.SPAWN, head, [write_end])
    messages: list[Message] = []
    while not messages:
        messages = list(theirs.receive())
        ours.flush()
    assert messages[0].head == head
    assert len(messages[0].descriptors) == 1
    assert not ours.waiting
    for descriptor in (read_end, *messages[0].descriptors):
        os.close(descriptor)
    ours.close()
    theirs.close()


def test_a_reader_that_has_stopped_costs_the_bound_and_no_wait():
    ours, theirs = channels(queue_bytes=1 << 20)
    with pytest.raises(QueueFull):
        for _ in range(100):
            ours.send(Kind.SPAWN, {"padding": "x" * 500_000})
    assert ours.waiting
    ours.close()
    theirs.close()


def test_descriptors_that_were_not_sent_are_closed():
    ours, theirs = channels(queue_bytes=100)
    read_end, write_end = os.pipe()
    with pytest.raises(QueueFull):
        ours.send(Kind.SPAWN, {"padding": "x" * 200}, [write_end])
    assert os.read(read_end, 1) == b""
    os.close(read_end)
    theirs.close()
    ours.close()


def test_what_came_before_the_end_is_still_given():
    ours, theirs = channels()
    ours.send(Kind.EXITED, {"last": True})
    ours.close()
    arriving = theirs.receive()
    assert next(arriving).head == {"last": True}
    with pytest.raises(ChannelClosed):
        next(arriving)
    with pytest.raises(ChannelClosed):
        theirs.send(Kind.EXITED, {})
    theirs.close()
    with pytest.raises(ChannelClosed):
        theirs.send(Kind.EXITED, {})


@pytest.mark.parametrize(
    "packet",
    [
        b"\x00",
        b"\xff" * 40,
        frame(Kind.EXITED, 0, b"[1]"),
        frame(Kind.EXITED, 0, b"{"),
        frame(Kind.EXITED, 0, b"\xff\xfe"),
        frame(Kind.EXITED, 0, b"[" * 60000),
        frame(Kind.PART, 0, b"{}", part=1),
        frame(Kind.EXITED, 0, b"{", flags=MORE) + frame(Kind.EXITED, 0, b"{", flags=MORE),
        b"x" * 70_000,
    ],
    ids=["short", "noise", "a list", "no JSON", "no UTF-8", "deep", "a part of nothing", "two openings", "too long"],
)
def test_noise_is_a_protocol_error(packet):
    sender, receiver = pair()
    channel = Channel(receiver, queue_bytes=1000, body_bytes=1000)
    sender.send(packet)
    with pytest.raises(ProtocolError):
        list(channel.receive())
    channel.close()
    sender.close()


def test_a_body_beyond_its_bound_is_a_protocol_error():
    ours, theirs = channels(body_bytes=100_000)
    ours.send(Kind.SPAWN, {"padding": "x" * 200_000})
    with pytest.raises(ProtocolError):
        list(theirs.receive())
    ours.close()
    theirs.close()


def test_descriptors_are_refused_where_none_are_expected():
    sender, receiver = pair()
    channel = Channel(receiver, queue_bytes=1000, body_bytes=1000)
    read_end, write_end = os.pipe()
    before = open_files()
    socket.send_fds(sender, [frame(Kind.EXITED, 0, b"{}")], [write_end] * 200)
    (message,) = channel.receive()
    assert message.descriptors == []
    assert open_files() == before
    for descriptor in (read_end, write_end):
        os.close(descriptor)
    channel.close()
    sender.close()


def test_what_came_is_given_although_the_other_side_left_something_unread():
    ours, theirs = channels()
    theirs.send(Kind.DRAIN, {})
    ours.send(Kind.EXITED, {"last": True})
    ours.close()
    arriving = theirs.receive()
    assert next(arriving).head == {"last": True}
    with pytest.raises(ChannelClosed):
        next(arriving)
    theirs.close()


def test_an_end_that_expects_nothing_tells_speech_from_the_end():
    sender, receiver = pair()
    channel = Channel(receiver, queue_bytes=1000, body_bytes=0)
    channel.hear_nothing()
    sender.send(frame(Kind.EXITED, 0, b"{}"))
    with pytest.raises(ProtocolError):
        channel.hear_nothing()
    sender.close()
    with pytest.raises(ChannelClosed):
        channel.hear_nothing()
    channel.close()
