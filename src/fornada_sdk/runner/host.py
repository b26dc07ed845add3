"""A process that several instances share: models without code, of one account, environment and release. One thread.

    keeper -- JOIN --> a Member: its own channel to the keeper, its own output, control planes of its own
    keeper gone    --> the end of the process: the last member has left, or nobody would ever end it
    SIGTERM        --> every member is to stop

It waits for all channels at once. A member has SLICE_S, then the next one has its turn; one member is loaded between two rounds.
"""

from __future__ import annotations

import collections
import gc
import os
import select
import signal
import socket
import sys
import time
from types import FrameType

from fornada_sdk.runner import engines
from fornada_sdk.runner.assignment import read_assignment
from fornada_sdk.runner.capture import Output, redirect
from fornada_sdk.runner.heap import trimmer
from fornada_sdk.runner.member import Member
from fornada_sdk.runner.session import TERM_GRACE_S
from fornada_sdk.wire.channel import Channel, ChannelClosed, Message
from fornada_sdk.wire.framing import ProtocolError
from fornada_sdk.wire.messages import Kind


class Host:
    """`serve` returns when the keeper has closed the channel over which members come, or after SIGTERM."""

    def __init__(self, keeper: Channel) -> None:
        self._keeper = keeper
        self._epoll = select.epoll()
        self._epoll.register(keeper.fileno(), select.EPOLLIN)
        self._wake_read, self._wake_write = os.pipe()
        for end in (self._wake_read, self._wake_write):
            os.set_blocking(end, False)
        self._epoll.register(self._wake_read, select.EPOLLIN)
        self._members: dict[int, Member] = {}
        """By the descriptor that is readable when the member has something to do."""
        self._farewells: dict[int, Channel] = {}
        """Members' channels of which leave was taken, until the keeper closes them too."""
        self._joining: collections.deque[Message] = collections.deque()
        self._busy: collections.deque[int] = collections.deque()
        """Members that have more to do than their last turn was long."""
        self._closing: set[int] = set()
        """Members that go by the clock, if nothing happens before."""
        self._prepared: set[str] = set()
        """Engines whose library is there."""
        self._at_hand: Member | None = None
        self._nobody = Output(os.open(os.devnull, os.O_WRONLY), owns=True)
        self._dismissed = False
        self._terminated = False
        self._trim = trimmer()

    def serve(self, messages: list[Message]) -> None:
        """`messages` have come already."""
        self._hear_signals()
        self._joining.extend(messages)
        while not self._dismissed and not (self._terminated and not self._members):
            events = self._epoll.poll(self._patience_s())
            ready = dict.fromkeys([fd for fd, _ in events if not self._own(fd)])
            ready.update(dict.fromkeys(self._busy))
            ready.update(dict.fromkeys(self._closing))
            self._busy.clear()
            for fd in ready:
                self._turn(fd)
            if self._joining:
                self._join(self._joining.popleft())

    # ---- what happens

    def _own(self, fd: int) -> bool:
        """Deals with what is no member's."""
        if fd == self._keeper.fileno():
            try:
                self._joining.extend(self._keeper.receive())
            except (ChannelClosed, ProtocolError):
                self._dismissed = True
        elif fd == self._wake_read:
            if signal.SIGTERM in os.read(fd, 4096):
                self._terminate()
        elif fd in self._farewells:
            self._epoll.unregister(fd)
            self._farewells.pop(fd).close()
        else:
            return False
        return True

    def _patience_s(self) -> float | None:
        if self._busy or self._joining:
            return 0.0
        if not self._closing:
            return None
        now = time.monotonic()
        waits = [self._members[fd].leaves_in_s(now) for fd in self._closing]
        return min((wait_s for wait_s in waits if wait_s is not None), default=None)

    def _turn(self, fd: int) -> None:
        member = self._members.get(fd)
        if member is None:
            return  # it has left in this round
        self._take(member)
        if member.turn():
            self._busy.append(fd)
        self._see_whether_it_leaves(fd, member)

    def _join(self, message: Message) -> None:
        if message.kind != Kind.JOIN or len(message.descriptors) != 2:
            sys.stderr.write(f"fornada: a message of kind {message.kind} with {len(message.descriptors)} descriptors from the keeper\n")
            for descriptor in message.descriptors:
                os.close(descriptor)
            return
        channel, output = message.descriptors
        try:
            assignment = read_assignment(message.head)
        except ValueError as error:
            sys.stderr.write(f"fornada: {error}\n")
            os.close(output)
            self._farewell(Channel(socket.socket(fileno=channel), queue_bytes=0, body_bytes=0))
            return
        self._prepare(assignment.engine)
        member = Member(assignment, channel, output)
        fd = member.session.fileno()
        self._members[fd] = member
        self._epoll.register(fd, select.EPOLLIN)
        self._take(member)
        if self._terminated:
            member.session.stop(TERM_GRACE_S)
        member.load()
        self._see_whether_it_leaves(fd, member)

    def _prepare(self, engine: str) -> None:
        """The library is everybody's. What it made need not be looked at by the collector whenever a member leaves."""
        if engine in self._prepared:
            return
        self._prepared.add(engine)
        try:
            engines.prepare(engine)
        except BaseException:  # noqa: BLE001 - any library's; the member's own load comes upon it again, and tells
            return
        if not self._members:
            gc.collect()
            gc.freeze()  # later it would keep what members leave behind

    def _take(self, member: Member) -> None:
        """From here on what is printed is this member's."""
        if self._at_hand is not member:
            self._at_hand = member
            redirect(member.output)

    def _see_whether_it_leaves(self, fd: int, member: Member) -> None:
        wait_s = member.leaves_in_s(time.monotonic())
        if wait_s is None:
            self._closing.discard(fd)
        elif wait_s > 0:
            self._closing.add(fd)
        else:
            self._part(fd, member)

    def _part(self, fd: int, member: Member) -> None:
        del self._members[fd]
        self._closing.discard(fd)
        if fd in self._busy:
            self._busy.remove(fd)
        self._epoll.unregister(fd)
        self._at_hand = None
        redirect(self._nobody)
        farewell = member.leave()
        if farewell is not None:
            self._farewell(farewell)
        # Its weights go with their last reference, which may stand in a cycle; then the allocator is asked for what it keeps.
        del member
        gc.collect()
        self._trim()

    def _farewell(self, channel: Channel) -> None:
        channel.leave()
        self._farewells[channel.fileno()] = channel
        self._epoll.register(channel.fileno(), select.EPOLLIN)

    # ---- signals

    def _hear_signals(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, _noted)
        # The handler waits until this thread is back from C code; here the number of a signal is written at once.
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)

    def _terminate(self) -> None:
        self._terminated = True
        for fd, member in list(self._members.items()):
            member.session.stop(TERM_GRACE_S)
            self._closing.add(fd)


def _noted(number: int, frame: FrameType | None) -> None:
    """The number has been written to the wakeup descriptor."""
