"""One control plane that is attached to this runner: its socket, what arrives on it and what waits to be sent."""

from __future__ import annotations

import collections
import errno
import os
import socket
import threading
import time
from typing import Any, Callable

from fornada_sdk.api_context import Instance
from fornada_sdk.runner.arenas import Arenas, receive
from fornada_sdk.runner.call import Call
from fornada_sdk.runner.encoding import head_json
from fornada_sdk.runner.long_answer import LongAnswer, Outgoing
from fornada_sdk.wire.arena import PLACE
from fornada_sdk.wire.framing import HEADER, HEADER_SIZE, MAX_PACKET, MORE, STORED, Assembler, ProtocolError, frames
from fornada_sdk.wire.messages import INVOKE_PREFIX, Kind, decode

LATE_S = 0.25
"""A deadline is the control plane's to keep, which then sends CANCEL; only if none has come by now, it is kept here."""
PACKETS_A_TURN = 16
"""What is read from one control plane before the others are looked at again."""

_STARVED = frozenset([errno.ENOBUFS, errno.ENOMEM])
_INVOKE, _PART = int(Kind.INVOKE), int(Kind.PART)

OnCall = Callable[[Call], None]
OnMessage = Callable[[int, int, "bytes | memoryview"], None]
"""(kind, id, payload)"""


class Detached(Exception):
    """The control plane has gone."""


class Attachment:
    """Read by one thread at a time (the session's lock); `send` may be called by any."""

    def __init__(
        self, sock: socket.socket, instance: Instance, *, epoch: int, body_limit: int, writable: Callable[[Attachment, bool], None]
    ) -> None:
        """`body_limit` bounds one body in bytes; `writable(self, wanted)` asks for a `flush` when the socket takes bytes again."""
        sock.setblocking(False)
        self._sock = sock
        self._instance = instance
        self._writable = writable
        self._assembler = Assembler(body_limit)
        self._queue: collections.deque[bytes] = collections.deque()
        self._stuck: bytes | None = None
        self._sending = threading.Lock()
        self._recv: Callable[[int], bytes] = sock.recv
        self._descriptors: list[int] = []
        """They came with a packet that was announced to bring some."""
        self.arenas: Arenas | None = None
        self.fd = sock.fileno()
        self.epoch = epoch
        self.open = True
        self.waiting = 0
        """Bytes, about, that the socket has not taken yet."""

    # ---- receiving ------------------------------------------------------------------------------------------------------------

    def receive(self, on_call: OnCall, on_message: OnMessage) -> None:
        """Hands on what has arrived, without waiting. Raises Detached at the end, ProtocolError for what is no message."""
        for _ in range(PACKETS_A_TURN):
            try:
                packet = self._recv(MAX_PACKET)
            except BlockingIOError:
                return
            except ConnectionResetError:
                # The other side died with unread answers of ours: what it had sent before can still be read.
                continue
            except OSError as error:
                raise Detached(error.strerror or str(error)) from None
            if not packet:
                raise Detached("closed by the other side")
            self._unpack(packet, time.monotonic(), on_call, on_message)

    def _unpack(self, packet: bytes, now: float, on_call: OnCall, on_message: OnMessage) -> None:
        # framing.split, written out: what is done here for each frame is a good part of the runner's work on a small request.
        at = 0
        end = len(packet)
        while at < end:
            if end - at < HEADER_SIZE:
                raise ProtocolError(f"{end - at} bytes at the end of a packet are no frame")
            length, kind, flags, part, request = HEADER.unpack_from(packet, at)
            at += HEADER_SIZE
            stop = at + length
            if stop > end:
                raise ProtocolError(f"a frame of {length} bytes in the {end - at} that are left of its packet")
            if kind == _INVOKE and not flags:
                on_call(self._call(packet, at, stop, request, now))
            elif kind == _PART:
                whole = self._assembler.continued(flags, part, request, packet[at:stop])
                if whole is not None:
                    kind, _, payload = whole
                    if kind == _INVOKE:
                        on_call(self._call(payload, 0, len(payload), request, now))
                    else:
                        on_message(kind, request, payload)
            elif flags & MORE:
                self._assembler.opened(kind, part, request, packet[at:stop])
            elif flags & STORED:
                on_call(self._stored_call(kind, packet, at, stop, request, now))
            else:
                on_message(kind, request, packet[at:stop])
            at = stop

    def _call(self, buffer: bytes, at: int, stop: int, request: int, now: float) -> Call:
        if stop - at < INVOKE_PREFIX.size:
            raise ProtocolError(f"request {request}: too short for a head")
        size, left_s = INVOKE_PREFIX.unpack_from(buffer, at)
        head = at + INVOKE_PREFIX.size
        body = head + size
        if body > stop:
            raise ProtocolError(f"request {request}: a head of {size} bytes in a payload of {stop - at}")
        deadline = now + left_s + LATE_S if left_s > 0 else 0.0
        return Call(request, buffer[head:body], buffer[body:stop], deadline, self, self._instance)

    def _stored_call(self, kind: int, packet: bytes, at: int, stop: int, request: int, now: float) -> Call:
        place = stop - PLACE.size
        if kind != _INVOKE or place < at or self.arenas is None:
            raise ProtocolError(f"request {request}: a message of kind {kind} in a file that there isn't")
        call = self._call(packet, at, place, request, now)
        if call.raw:
            raise ProtocolError(f"request {request}: a body in two places")
        call.raw = self.arenas.read(packet[place:stop])
        return call

    # ---- arenas ---------------------------------------------------------------------------------------------------------------

    def hear_arena(self, payload: bytes | memoryview) -> None:
        """ARENA: descriptors come with the next packet, or came with this one. Raises ProtocolError, ValueError."""
        message = decode(payload)
        if not message:
            self._recv = self._receive_descriptors
            return
        descriptors, self._descriptors = self._descriptors, []
        if self.arenas is None:
            self.arenas = Arenas()
        answer = self.arenas.given(message, descriptors)
        if answer:
            self.send_json(Kind.ARENA, answer)

    def trim(self) -> None:
        """TRIM. `telling` is held."""
        if self.arenas is not None:
            self.arenas.trim()

    def _receive_descriptors(self, size: int) -> bytes:
        packet, descriptors = receive(self._sock)
        self._recv = self._sock.recv
        self._descriptors += descriptors
        return packet

    # ---- sending --------------------------------------------------------------------------------------------------------------

    def send(self, messages: Outgoing) -> None:
        """Queues frames, in order, and sends what the socket takes; several small ones share a packet. Never waits or raises."""
        self.queue(messages, sum(map(len, messages)))
        self.flush()

    def send_json(self, kind: Kind, payload: dict[str, Any], request: int = 0) -> None:
        self.send(list(frames(kind, Kind.PART, request, head_json(payload), ())))

    def queue(self, messages: Outgoing, size: int) -> None:
        """As `send`, for a sender that has more to come and calls `flush` itself; `size` is the frames' bytes."""
        if self.open:
            if size > MAX_PACKET:
                messages = self._framed(messages)
                size = sum(map(len, messages))
            # Counted before they can be sent: another thread that empties the queue sets the count to 0, and has the last word.
            self.waiting += size
            self._queue.extend(messages)  # type: ignore[arg-type]  # a LongAnswer is longer than a packet: all are frames

    def queue_frame(self, item: bytes) -> None:
        """As `queue`, for one frame that fits a packet: what each token takes."""
        if self.open:
            self.waiting += len(item)
            self._queue.append(item)

    def _framed(self, messages: Outgoing) -> list[bytes]:
        """Long answers lie in the file, or go in parts. `telling` is held where there may be one."""
        framed: list[bytes] = []
        for message in messages:
            if not isinstance(message, LongAnswer):
                framed.append(message)
                continue
            place = None if self.arenas is None else self.arenas.lend(message.request, message.body)
            framed.extend(message.parts() if place is None else [message.stored(place)])
        return framed

    def flush(self) -> None:
        """Sends what waits, as far as the socket takes it."""
        # Whoever holds the lock sends for all: a thread that finds it taken knows that its frames go with the holder's.
        while (self._queue or self._stuck) and self._sending.acquire(False):
            try:
                taken = self._send_some()
            finally:
                self._sending.release()
            if not taken:
                return

    def _send_some(self) -> bool:
        """Sends until all is sent (True) or the socket is full (False)."""
        queue = self._queue
        while True:
            packet = self._stuck
            if packet is None:
                if not queue:
                    self.waiting = 0
                    return True
                packet = self._next_packet()
            try:
                self._sock.send(packet, socket.MSG_NOSIGNAL)
            except BlockingIOError:
                self._stuck = packet
                self._writable(self, True)
                return False
            except OSError as error:
                if error.errno in _STARVED:
                    self._stuck = packet
                    time.sleep(0.001)  # the socket may look writable all the while the kernel is short of memory
                    self._writable(self, True)
                    return False
                self._discard()
                return False
            if self._stuck is not None:
                self._stuck = None
                self._writable(self, False)
            self.waiting -= len(packet)

    def _next_packet(self) -> bytes:
        queue = self._queue
        first = queue.popleft()
        if not queue or len(first) + len(queue[0]) > MAX_PACKET:
            return first
        batch = [first]
        size = len(first)
        while queue and size + len(queue[0]) <= MAX_PACKET:
            item = queue.popleft()
            batch.append(item)
            size += len(item)
        return b"".join(batch)

    def _discard(self) -> None:
        self._queue.clear()
        self._stuck = None
        self.waiting = 0

    def close(self) -> None:
        """Nobody will read what waits."""
        self.open = False
        with self._sending:
            self._discard()
            self._sock.close()
        self._close_files()

    def close_in_child(self) -> None:
        """In a process that model code forked: the lock may be held by a thread that isn't there."""
        self.open = False
        os.close(self._sock.detach())
        self._close_files()

    def _close_files(self) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = []
        if self.arenas is not None:
            self.arenas.close()
