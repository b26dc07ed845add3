"""Memory files that one control plane shares with one runner, for bodies that would need many packets.

There are two at most, one for each direction. The control plane makes them, of a size that neither side can change any more, and passes
them once; neither maps them, so that nothing done to the file can make the other side fault. What tells whom where a body lies is a frame:

    INVOKE, ANSWER   flag STORED: their payload is the head, then PLACE: offset and bytes of the body in the sender's file

The sender keeps its own account of what is taken (Slots) and never reads it from the file. A place is free again once the request has
ended (INVOKE), or its answer was acknowledged (ANSWER).
"""

import bisect
import mmap
import os
import struct
from collections.abc import Iterator, Sequence
from typing import Union

Buffer = Union[bytes, bytearray, memoryview]

PLACE = struct.Struct("<QQ")
GRAIN = 65536
"""Places begin at multiples of it: what is shorter goes in packets, and no page belongs to two bodies."""
_BUFFERS_AT_ONCE = 1024
"""IOV_MAX."""


class Slots:
    """Which parts of a file are taken. The lowest that fit are given: pages that were used before cost nothing again."""

    def __init__(self, size: int) -> None:
        """`size` in bytes; what is left beyond the last whole GRAIN is never given."""
        self._free: list[tuple[int, int]] = [(0, size // GRAIN * GRAIN)] if size >= GRAIN else []
        """(offset, bytes), in order; no two of them touch."""
        self._taken: dict[int, int] = {}

    def __len__(self) -> int:
        """How many are taken."""
        return len(self._taken)

    def take(self, size: int) -> int:
        """Offset of `size` bytes, more than 0, that are nobody else's; -1 where there is no room."""
        need = -(-size // GRAIN) * GRAIN
        for index, (at, room) in enumerate(self._free):
            if room >= need:
                if room == need:
                    del self._free[index]
                else:
                    self._free[index] = (at + need, room - need)
                self._taken[at] = need
                return at
        return -1

    def free(self, at: int) -> None:
        """Gives back what `take` gave. Raises KeyError for any other offset."""
        size = self._taken.pop(at)
        free = self._free
        index = bisect.bisect(free, (at, 0))
        if index < len(free) and free[index][0] == at + size:
            size += free.pop(index)[1]
        if index > 0 and sum(free[index - 1]) == at:
            at, before = free[index - 1]
            free[index - 1] = (at, before + size)
        else:
            free.insert(index, (at, size))

    def holes(self) -> Iterator[tuple[int, int]]:
        """(offset, bytes) of all that is free."""
        yield from self._free


class MemoryFile:
    """One direction's file, of a fixed size. Owns the descriptor."""

    def __init__(self, descriptor: int, size: int) -> None:
        self.descriptor = descriptor
        self.size = size

    def write(self, at: int, buffers: Sequence[Buffer]) -> None:
        """Copies `buffers`, which fit, one behind the other to `at`. Raises OSError where there is no memory for it."""
        left = [memoryview(buffer) for buffer in buffers]
        while left:
            done = os.pwritev(self.descriptor, left[:_BUFFERS_AT_ONCE], at)
            at += done
            passed = 0
            while passed < len(left) and done >= len(left[passed]):
                done -= len(left[passed])
                passed += 1
            del left[:passed]
            if done:
                left[0] = left[0][done:]

    def read(self, at: int, size: int) -> bytes:
        """A copy of `size` bytes at `at`. Raises ValueError for what doesn't lie in the file, OSError."""
        if size <= 0 or at + size > self.size:
            raise ValueError(f"{size} bytes at {at} of a file of {self.size}")
        data = os.pread(self.descriptor, size, at)
        while len(data) < size:
            more = os.pread(self.descriptor, size - len(data), at + len(data))
            if not more:
                raise ValueError(f"the file ends at {at + len(data)} instead of {self.size}")
            data += more
        return data

    def give_back(self, at: int, size: int) -> None:
        """The kernel may have the memory of that part; it reads as zeros. Whole pages of a file open for writing. Raises OSError."""
        # fallocate can't be called from here; a mapping that nobody touches, for as long as this takes, does the same.
        with mmap.mmap(self.descriptor, size, offset=at) as area:
            area.madvise(mmap.MADV_REMOVE)

    def close(self) -> None:
        os.close(self.descriptor)
