"""What is to be sent to one runner: frames of one turn of the loop leave in as few packets as possible, acknowledgements with them."""

import asyncio
import errno
import os
import struct
from collections.abc import Callable

from fornada_sdk.wire.framing import HEADER_SIZE, MAX_PACKET, ProtocolError, frame
from fornada_sdk.wire.messages import Kind

ACK_S = 0.02
"""How long an acknowledgement waits for a message that it can travel with."""
ACKS_AT_ONCE = 64
AGAIN_S = 0.005
"""After how long it is tried again where the kernel had no memory for a packet."""
OWED_BYTES = 1024**2
OWED_ACKS = 65536
"""Bytes of answers of ours, and acknowledgements, that may wait for a runner that doesn't read."""
_STARVED = frozenset([errno.ENOBUFS, errno.ENOMEM])


class Outbox:
    """Never waits. Its link's hot path writes to the fields itself."""

    __slots__ = (
        "_ack_timer",
        "_again_timer",
        "_fd",
        "_loop",
        "_on_room",
        "_open",
        "_owed_bytes",
        "acks",
        "blocked",
        "flush_due",
        "frames",
        "size",
    )

    def __init__(
        self, descriptor: int, *, is_open: Callable[[], bool], on_room: Callable[[], None], loop: asyncio.AbstractEventLoop
    ) -> None:
        """`on_room`: the socket was full, and has taken all. Where it isn't `is_open` nobody reads, and what is sent is dropped."""
        self._fd = descriptor
        self._open = is_open
        self._on_room = on_room
        self._loop = loop
        self.frames: list[bytes] = []
        self.size = 0
        """Bytes, about, of `frames`."""
        self.acks: list[int] = []
        self.flush_due = False
        self.blocked = False
        """The socket took no more."""
        self._owed_bytes = 0
        """Of answers of ours that were put here since the socket took no more."""
        self._ack_timer: asyncio.TimerHandle | None = None
        self._again_timer: asyncio.TimerHandle | None = None

    def put(self, item: bytes) -> None:
        self.frames.append(item)
        self.size += len(item)
        self.flush_soon()

    def owe(self, item: bytes) -> None:
        """As `put`, for what the runner may ask for without end. Raises ProtocolError for a runner that doesn't read."""
        self._owed_bytes = self._owed_bytes + len(item) if self.blocked else 0
        if self._owed_bytes > OWED_BYTES:
            raise ProtocolError("it asks and asks, and doesn't read what it is told")
        self.put(item)

    def flush_soon(self) -> None:
        """At the end of this turn of the loop."""
        if not self.flush_due:
            self.flush_due = True
            self._loop.call_soon(self.flush)

    def acknowledge_soon(self) -> None:
        """There are `acks`, and no flush is due."""
        if len(self.acks) >= ACKS_AT_ONCE:
            self.flush_soon()
        elif self._ack_timer is None:
            self._ack_timer = self._loop.call_later(ACK_S, self.flush)

    def bound_acks(self) -> None:
        """Raises ProtocolError for a runner that answers without end and doesn't read."""
        if self.blocked and len(self.acks) > OWED_ACKS:
            raise ProtocolError("it answers and answers, and doesn't read what it is told")

    def flush(self) -> None:
        """Sends what the socket takes."""
        self.flush_due = False
        if self.blocked:
            return
        if self.acks:
            self._put_acks()
        frames = self.frames
        if not frames:
            return
        if self.size + len(frames) * HEADER_SIZE <= MAX_PACKET:
            if self._write(b"".join(frames)):
                frames.clear()
                self.size = 0
            return
        while frames:
            count = _fitting(frames)
            if not self._write(b"".join(frames[:count])):
                return
            self.size -= sum(map(len, frames[:count]))
            del frames[:count]
        self.size = 0

    def close(self) -> None:
        """Nothing more is sent."""
        if self._ack_timer is not None:
            self._ack_timer.cancel()
            self._ack_timer = None
        if self.blocked:
            self._wait_no_longer()

    def _put_acks(self) -> None:
        if self._ack_timer is not None:
            self._ack_timer.cancel()
            self._ack_timer = None
        for at in range(0, len(self.acks), 4096):
            ids = self.acks[at : at + 4096]
            item = frame(Kind.ACK, 0, struct.pack(f"<{len(ids)}Q", *ids))
            self.frames.append(item)
            self.size += len(item)
        self.acks.clear()

    def _write(self, packet: bytes) -> bool:
        if not self._open():
            return True
        try:
            os.write(self._fd, packet)
        except BlockingIOError:
            self.blocked = True
            self._loop.add_writer(self._fd, self._writable)
            return False
        except OSError as error:
            if error.errno not in _STARVED:
                return True  # the runner has gone; its end will be told by the keeper
            # Want of memory passes. The socket may look writable all the while; and a packet that is lost is a request nobody
            # works on, or a stream whose reader has room and which stands still.
            self.blocked = True
            self._again_timer = self._loop.call_later(AGAIN_S, self._writable)
            return False
        return True

    def _wait_no_longer(self) -> None:
        self.blocked = False
        if self._again_timer is not None:
            self._again_timer.cancel()
            self._again_timer = None
        else:
            self._loop.remove_writer(self._fd)

    def _writable(self) -> None:
        self._wait_no_longer()
        self.flush()
        if not self.blocked:
            self._on_room()


def _fitting(frames: list[bytes]) -> int:
    """How many frames from the front share a packet."""
    size = 0
    for count, item in enumerate(frames):
        size += len(item)
        if size > MAX_PACKET:
            return count
    return len(frames)
