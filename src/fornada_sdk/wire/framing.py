"""Packets and frames: how messages lie in the packets of a SEQPACKET socket.

A packet holds one or more whole frames and is at most MAX_PACKET bytes. A frame is HEADER followed by its payload:

    length   u32   bytes of the payload
    kind     u8    wire.messages.Kind
    flags    u8    MORE: further parts of the same body follow under the same id; STORED: the body lies in a file (wire.arena)
    part     u32   number of this part (0 is the frame that opens the body), or the sequence number of a stream's item
    id       u64   the request's id, 0 where a message belongs to no request

All numbers are little-endian. A body that doesn't fit the rest of a packet travels in numbered parts; a part out of order
is a ProtocolError, since SEQPACKET keeps order and a gap can only be a fault of the sender.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Union

MAX_PACKET = 65536
HEADER = struct.Struct("<IBBxxIQ")
HEADER_SIZE = HEADER.size
MAX_PAYLOAD = MAX_PACKET - HEADER_SIZE
MORE = 1
STORED = 2

Buffer = Union[bytes, bytearray, memoryview]
Frame = tuple[int, int, int, int, memoryview]  # kind, flags, part, id, payload


class ProtocolError(Exception):
    """The other side broke the wire's rules; the connection can't go on."""


def frame(kind: int, request: int, payload: Buffer = b"", *, part: int = 0, flags: int = 0) -> bytes:
    """One frame as bytes. Raises ProtocolError if the payload can't fit a packet (split it with `frames`)."""
    if len(payload) > MAX_PAYLOAD:
        raise ProtocolError(f"a payload of {len(payload)} bytes exceeds {MAX_PAYLOAD}")
    return HEADER.pack(len(payload), kind, flags, part, request) + payload


def frames(kind: int, part_kind: int, request: int, head: bytes, body: Iterable[Buffer], *, part: int = 0) -> Iterator[bytes]:
    """`head` and then the buffers of `body`, as one frame of `kind` and as many of `part_kind` as it takes.

    `head` must fit the first frame. `part` numbers the first frame; the parts after it count from 1.
    """
    if len(head) > MAX_PAYLOAD:
        raise ProtocolError(f"a head of {len(head)} bytes exceeds {MAX_PAYLOAD}")
    pending: list[Buffer] = [head]
    size = len(head)
    number = part
    this = kind
    follow = 0
    for buffer in body:
        view = memoryview(buffer)
        while len(view):
            room = MAX_PAYLOAD - size
            if room == 0:
                yield HEADER.pack(size, this, MORE, number, request) + b"".join(pending)
                follow += 1
                pending, size, this, number = [], 0, part_kind, follow
                continue
            pending.append(view[:room])
            size += min(room, len(view))
            view = view[room:]
    yield HEADER.pack(size, this, 0, number, request) + b"".join(pending)


def split(packet: Buffer) -> Iterator[Frame]:
    """The frames of one packet; payloads are views into it. Raises ProtocolError for a packet that isn't whole frames."""
    view = memoryview(packet)
    end = len(view)
    at = 0
    while at < end:
        if end - at < HEADER_SIZE:
            raise ProtocolError(f"{end - at} bytes at the end of a packet are no frame")
        length, kind, flags, part, request = HEADER.unpack_from(view, at)
        at += HEADER_SIZE
        if end - at < length:
            raise ProtocolError(f"a frame of {length} bytes in the {end - at} that are left of its packet")
        yield kind, flags, part, request, view[at : at + length]
        at += length


def pack(queue: "list[bytes]") -> Iterator[bytes]:
    """Packets holding the frames of `queue` in order, as few as possible: one system call carries many small messages."""
    batch: list[bytes] = []
    size = 0
    for item in queue:
        if size + len(item) > MAX_PACKET:
            yield b"".join(batch)
            batch, size = [], 0
        batch.append(item)
        size += len(item)
    if batch:
        yield batch[0] if len(batch) == 1 else b"".join(batch)


BEGUN_COST, PART_COST = 512, 64
"""Bytes of memory, about, that a body takes when it begins and with each part, beyond what is in it."""


class Assembler:
    """Puts bodies that came in parts together again, for one connection.

    `limit` bounds the bytes held for one body; going over it is a ProtocolError, so that a hostile runner can't fill
    the control plane's memory.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.held = 0
        """Bytes of memory, about, that all unfinished bodies take: those without a byte in them too."""
        self._open: dict[int, list[bytes]] = {}
        self._sizes: dict[int, int] = {}
        self._kinds: dict[int, tuple[int, int]] = {}

    def opened(self, kind: int, part: int, request: int, payload: Buffer) -> None:
        """The first frame of a body that continues."""
        if request in self._open:
            raise ProtocolError(f"request {request}: a second body begins before the first has ended")
        self._open[request] = [bytes(payload)]
        self._sizes[request] = len(payload)
        self.held += len(payload) + BEGUN_COST
        self._kinds[request] = (kind, part)

    def size(self, request: int) -> int:
        """Bytes of that body so far."""
        return self._sizes.get(request, 0)

    def kind(self, request: int) -> int:
        """What that body is; -1 where none has begun."""
        return self._kinds.get(request, (-1, 0))[0]

    def continued(self, flags: int, part: int, request: int, payload: Buffer) -> "tuple[int, int, bytes] | None":
        """A further part. Returns (kind, part of the first frame, whole payload) when it was the last."""
        chunks = self._open.get(request)
        if chunks is None:
            raise ProtocolError(f"request {request}: part {part} of a body that never began")
        if part != len(chunks):
            raise ProtocolError(f"request {request}: part {part} came where part {len(chunks)} was due")
        size = self._sizes[request] + len(payload)
        if size > self._limit:
            raise ProtocolError(f"request {request}: a body of more than {self._limit} bytes")
        self._sizes[request] = size
        chunks.append(bytes(payload))
        self.held += len(payload) + PART_COST
        if flags & MORE:
            return None
        self.held -= size + BEGUN_COST + PART_COST * (len(chunks) - 1)
        kind, first = self._kinds.pop(request)
        del self._open[request], self._sizes[request]
        return kind, first, b"".join(chunks)
