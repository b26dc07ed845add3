"""An ANSWER that takes more than one packet. How it travels is decided only where it is sent: the next control plane may have no file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Union

from fornada_sdk.wire.framing import HEADER_SIZE, MAX_PAYLOAD, STORED, frame, frames
from fornada_sdk.wire.messages import Kind


def is_long(prefix: bytes, body: bytes) -> bool:
    """It doesn't fit a packet, and its head does, with room for where the body lies."""
    return len(prefix) + len(body) > MAX_PAYLOAD and len(prefix) <= MAX_PAYLOAD // 2


class LongAnswer:
    """Made where `is_long`."""

    __slots__ = ("_prefix", "body", "request")

    def __init__(self, request: int, prefix: bytes, body: bytes) -> None:
        """`prefix` is what stands before the body."""
        self.request = request
        self._prefix = prefix
        self.body = body

    def __len__(self) -> int:
        """Bytes, about, that it keeps in memory; always more than a packet's."""
        return HEADER_SIZE + len(self._prefix) + len(self.body)

    def parts(self) -> list[bytes]:
        """As frames with the whole body."""
        return list(frames(Kind.ANSWER, Kind.PART, self.request, self._prefix, [self.body]))

    def stored(self, place: bytes) -> bytes:
        """As a frame that says where the body lies."""
        return frame(Kind.ANSWER, self.request, self._prefix + place, flags=STORED)


Outgoing = Sequence[Union[bytes, LongAnswer]]
"""What is to be sent, in order."""
