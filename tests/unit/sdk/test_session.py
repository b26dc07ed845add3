"""The runner's conversations by themselves: who is told what when another thread is at the inbox at the same moment."""

import collections
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from fornada_sdk.runner.assignment import Assignment
from fornada_sdk.runner.call import Call
from fornada_sdk.runner.session import Session
from fornada_sdk.wire.channel import Channel
from fornada_sdk.wire.channel import pair as sockets
from fornada_sdk.wire.framing import frame
from fornada_sdk.wire.messages import Kind
from tests.unit.sdk.driver import Plane


class TakenMeanwhile(collections.deque[Call]):
    """Another thread takes what lies here, at the very moment in which the next call comes."""

    def append(self, call: Call) -> None:
        self.clear()
        super().append(call)


class FakeInstance:
    """What an attachment and HELLO read of an Instance."""

    pid = 1


INSTANCE: Any = FakeInstance()


@pytest.fixture
def attached() -> Iterator[tuple[Session, socket.socket]]:
    """A session, and the control plane's end of its one attachment."""
    keeper, far_keeper = sockets()
    ours, theirs = sockets()
    channel = Channel(far_keeper, queue_bytes=1 << 16, body_bytes=1 << 16, descriptors=1)
    session = Session(channel, Assignment("i", "m", "python", "/"), INSTANCE)
    near = Channel(keeper, queue_bytes=1 << 16, body_bytes=1 << 16)
    near.send(Kind.ATTACH, {"epoch": 1}, [theirs.detach()])
    session.poll(1)
    yield session, ours
    near.close()
    session.close_in_child()
    ours.close()


def ask(sock: socket.socket, number: int) -> None:
    for part in Plane.invocation(number):
        sock.send(part)


def test_who_runs_the_calls_is_told_of_each_that_comes_whatever_is_taken_meanwhile(attached):
    session, sock = attached
    told = []
    session.on_calls = lambda: told.append(len(session.inbox))
    session.inbox = TakenMeanwhile()
    ask(sock, 1)
    session.poll(1)
    ask(sock, 2)
    session.poll(1)  # the first is taken while the second comes: the inbox is no longer than before
    assert told == [1, 1]


def test_nobody_is_told_of_calls_where_none_came(attached):
    session, sock = attached
    told = []
    session.on_calls = lambda: told.append(True)
    ask(sock, 1)
    session.poll(1)
    sock.send(frame(Kind.CANCEL, 7))
    session.poll(1)
    assert told == [True]


def test_calls_that_came_before_anybody_could_be_told_are_told_of_with_the_next(attached):
    session, sock = attached
    ask(sock, 1)
    session.poll(1)
    told = []
    session.on_calls = lambda: told.append(len(session.inbox))
    sock.send(frame(Kind.CANCEL, 7))
    session.poll(1)
    assert told == [1]
