"""JSON messages with descriptors over one non-blocking SEQPACKET socket: how the keeper talks to everybody.

Sending never waits: what the socket doesn't take stands in a queue with a bound, and whoever watches the socket calls
`flush` when it can be written again. A reader that has stopped reading therefore costs its bound and nothing else.
"""

import array
import collections
import errno
import os
import select
import socket
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Union

from fornada_sdk.wire.framing import MAX_PACKET, MORE, Assembler, ProtocolError, frames, split
from fornada_sdk.wire.messages import Kind, decode, encode

SOCKET_BYTES = 4 * 1024 * 1024
"""What a socket pair may hold in flight: an answer of a few MiB leaves its sender in one go."""
DESCRIPTORS_MOST = 64
"""In one message; the kernel's own bound (SCM_MAX_FD) is 253."""

_TRUNCATED = int(socket.MSG_TRUNC)
"""A number: what is counted together here is an enum there, and takes five functions of Python's for each `&`."""
_SO_SNDBUFFORCE = 32
_SO_RCVBUFFORCE = 33
# Passing: kernel memory, or descriptors in flight that the other side hasn't taken out of its socket yet.
_STARVED = frozenset([errno.ENOBUFS, errno.ENOMEM, errno.ETOOMANYREFS])


class ChannelClosed(Exception):
    """The other side has gone."""


class ChannelLeft(ChannelClosed):
    """The other side has said that nothing more comes, and is still there: this is no death."""


class QueueFull(Exception):
    """The other side doesn't read: what waits for it has reached its bound."""


class Message(NamedTuple):
    """One message. The descriptors belong to the receiver; fewer than the sender gave if this process may open no more."""

    kind: int
    head: dict[str, Any]
    descriptors: list[int]


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected SEQPACKET sockets with large buffers, both closed by exec. Raises OSError."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in ends:
        widen(end)
    return ends


def widen(sock: socket.socket, size: int = SOCKET_BYTES) -> None:
    """Raises the socket's buffers to `size` bytes, or as far as an ordinary user may (net.core.wmem_max)."""
    for force, usual in ((_SO_SNDBUFFORCE, socket.SO_SNDBUF), (_SO_RCVBUFFORCE, socket.SO_RCVBUF)):
        try:
            sock.setsockopt(socket.SOL_SOCKET, force, size)
        except PermissionError:
            sock.setsockopt(socket.SOL_SOCKET, usual, size)


class Channel:
    """One end of a conversation. Owns the socket, and the descriptors in its queue."""

    def __init__(self, sock: socket.socket, *, queue_bytes: int, body_bytes: int, descriptors: int = 0) -> None:
        """`queue_bytes` bounds what waits to be sent, `body_bytes` one received message. With `descriptors` 0 whatever
        descriptors the other side attaches are closed by the kernel: it can't fill our table."""
        sock.setblocking(False)
        self._sock = sock
        self._queue: collections.deque[tuple[bytes, tuple[int, ...]]] = collections.deque()
        self._queued = 0
        self._queue_bytes = queue_bytes
        self._assembler = Assembler(body_bytes)
        self._ancillary = socket.CMSG_SPACE(descriptors * 4) if descriptors else 0
        self._held: list[int] = []
        self.starved = False
        """The kernel refused for want of memory: the socket may look writable all the time, so try again by the clock."""

    def fileno(self) -> int:
        """-1 after `close`."""
        return self._sock.fileno()

    @property
    def waiting(self) -> bool:
        """Something is still to be sent."""
        return bool(self._queue)

    def send(self, kind: Kind, head: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Queues a message and sends what can be sent. The descriptors are the channel's from here on, also if it raises.

        Raises QueueFull, ChannelClosed.
        """
        attached = tuple(descriptors)
        body = encode(head)
        if self._sock.fileno() < 0 or self._queued + len(body) > self._queue_bytes:
            _close_all(attached)
            if self._sock.fileno() < 0:
                raise ChannelClosed("closed here")
            raise QueueFull(f"{self._queued} bytes wait already")
        for packet in frames(kind, Kind.PART, 0, b"", [body]):
            self._queue.append((packet, attached))
            self._queued += len(packet)
            attached = ()
        self.flush()

    def flush(self) -> None:
        """Sends as much as the socket takes. Raises ChannelClosed."""
        self.starved = False
        while self._queue:
            packet, descriptors = self._queue[0]
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
            try:
                self._sock.sendmsg([packet], ancillary, socket.MSG_NOSIGNAL)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _STARVED:
                    self.starved = True
                    return
                raise ChannelClosed(error.strerror or str(error)) from None
            self._queue.popleft()
            self._queued -= len(packet)
            _close_all(descriptors)

    def receive(self) -> Iterator[Message]:
        """The messages that have arrived, without waiting. Take them all; one that came before the fault is still given.

        Raises ChannelClosed at the end of the conversation, ProtocolError for anything but the wire's messages.
        """
        while True:
            try:
                packet, ancillary, flags, _ = self._sock.recvmsg(MAX_PACKET, self._ancillary, socket.MSG_CMSG_CLOEXEC)
            except BlockingIOError:
                return
            except ConnectionResetError:
                continue  # told once, where the other side left something of ours unread: what it had sent is still there
            except OSError as error:
                if error.errno in _STARVED:
                    return
                raise ChannelClosed(error.strerror or str(error)) from None
            for level, kind, data in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    numbers = array.array("i")
                    numbers.frombytes(data[: len(data) - len(data) % numbers.itemsize])
                    self._held.extend(numbers)
            if not packet:
                raise ChannelClosed("closed by the other side")
            if flags & _TRUNCATED:
                raise ProtocolError(f"a packet of more than {MAX_PACKET} bytes")
            for kind, more, part, request, payload in split(packet):
                whole = self._whole(kind, more, part, request, payload)
                if whole is not None:
                    held, self._held = self._held, []
                    yield Message(whole[0], whole[1], held)

    def hear_nothing(self) -> None:
        """For an end whose other side has nothing to say.

        Raises ChannelClosed at the end (ChannelLeft where it was said goodbye to), ProtocolError if it spoke.
        """
        try:
            packet = self._sock.recv(1)
        except BlockingIOError:
            return
        except OSError as error:
            raise ChannelClosed(error.strerror or str(error)) from None
        if packet:
            raise ProtocolError("it has nothing to say here")
        if self._hung_up():
            raise ChannelClosed("closed by the other side")
        raise ChannelLeft("the other side has taken its leave")

    def leave(self) -> None:
        """Says that nothing more comes from here. What is still to be sent is dropped; the other side's close is the answer."""
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it has gone

    def _hung_up(self) -> bool:
        """A process that dies closes its end, one that takes its leave keeps it open for the answer."""
        poller = select.poll()
        poller.register(self._sock, 0)
        return bool(poller.poll(0))

    def _whole(self, kind: int, flags: int, part: int, request: int, payload: memoryview) -> "tuple[int, dict[str, Any]] | None":
        body: Union[bytes, memoryview] = payload
        if kind == Kind.PART:
            done = self._assembler.continued(flags, part, request, payload)
            if done is None:
                return None
            kind, _, body = done
        elif flags & MORE:
            self._assembler.opened(kind, part, request, payload)
            return None
        try:
            return kind, decode(body)
        except (ValueError, RecursionError) as error:
            raise ProtocolError(f"a message of kind {kind} that is no JSON object: {error}") from None

    def close(self) -> None:
        """Closes the socket and every descriptor that the channel still holds."""
        self._sock.close()
        for _, descriptors in self._queue:
            _close_all(descriptors)
        _close_all(self._held)
        self._queue.clear()
        self._held = []
        self._queued = 0


def _close_all(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
