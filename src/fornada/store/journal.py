"""A file of what happened, written where it lies in memory: what was written outlives the process, whatever ends it.

    slot    40 bytes: call u64, seconds f64, neurons f64, input tokens u32, output tokens u32, number u32, kind and day u32
    NAME    its number is that of the text in the slots that follow; `input tokens` bytes of it
    BEGAN   a request was sent, of the use with that number
    ENDED   it was finished
    DROPPED it is over, and nothing was finished

A slot counts once its last word is there. Room is asked of the disk beforehand: a write to memory can't say that there is none.
"""

import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SLOT = struct.Struct("<QddIIII")
SIZE = SLOT.size
NAME, BEGAN, ENDED, DROPPED = 1, 2, 3, 4
_KIND_BITS = 8
_KIND = (1 << _KIND_BITS) - 1
SEGMENT = 4 * 1024 * 1024


class Entry(NamedTuple):
    """A slot, and for a NAME the text behind it."""

    kind: int
    day: int
    number: int
    call: int
    seconds: float
    neurons: float
    taken: int
    given: int
    text: str
    end: int
    """Where the next one begins."""


class Journal:
    """A new file; one process writes it."""

    def __init__(self, path: Path, *, size: int = SEGMENT) -> None:
        """Raises OSError, ENOSPC among them."""
        self.path = path
        self.at = 0
        """Where the next slot goes."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, size)
            self._memory = mmap.mmap(descriptor, size)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)
        self._last = size - SIZE

    def put(
        self,
        kind: int,
        number: int,
        call: int,
        seconds: float = 0.0,
        neurons: float = 0.0,
        taken: int = 0,
        given: int = 0,
        day: int = 0,
    ) -> bool:
        """False where the file is full."""
        at = self.at
        if at > self._last:
            return False
        # Fields are stored in this order, so that the last word says that the others are there.
        SLOT.pack_into(self._memory, at, call, seconds, neurons, taken, given, number, kind | day << _KIND_BITS)
        self.at = at + SIZE
        return True

    def name(self, number: int, text: str) -> bool:
        """False where the file is full."""
        raw = text.encode()
        begin = self.at + SIZE
        end = begin + -(-len(raw) // SIZE) * SIZE
        if end > self._last + SIZE:
            return False
        self._memory[begin : begin + len(raw)] = raw
        self.put(NAME, number, 0, taken=len(raw))
        self.at = end
        return True

    def ended(self, at: int) -> dict[tuple[int, int], list[float]]:
        """What has ended from there on, by number and day: how many, input tokens, output tokens, seconds, neurons."""
        sums: dict[tuple[int, int], list[float]] = {}
        skip = 0
        # Thousands a second may have come: this is `entries`, written out.
        for _, seconds, neurons, taken, given, number, word in SLOT.iter_unpack(memoryview(self._memory)[at : self.at]):
            if skip:
                skip -= 1
            elif word & _KIND == NAME:
                skip = -(-taken // SIZE)
            elif word & _KIND == ENDED:
                found = sums.get((number, word))
                if found is None:
                    sums[number, word] = [1, taken, given, seconds, neurons]
                else:
                    found[0] += 1
                    found[1] += taken
                    found[2] += given
                    found[3] += seconds
                    found[4] += neurons
        return {(number, word >> _KIND_BITS): found for (number, word), found in sums.items()}

    def close(self) -> None:
        self._memory.close()


def entries(memory: bytes | mmap.mmap, at: int, end: int) -> Iterator[Entry]:
    """The entries between two places, up to the first slot that nobody finished."""
    while at + SIZE <= end:
        call, seconds, neurons, taken, given, number, word = SLOT.unpack_from(memory, at)
        kind, text, after = word & _KIND, "", at + SIZE
        if not NAME <= kind <= DROPPED:
            return
        if kind == NAME:
            text = bytes(memory[after : after + taken]).decode(errors="replace")
            after += -(-taken // SIZE) * SIZE
        yield Entry(kind, word >> _KIND_BITS, number, call, seconds, neurons, taken, given, text, after)
        at = after


def read(path: Path) -> list[Entry]:
    """All entries of a file that nobody writes any more. Raises OSError."""
    content = path.read_bytes()
    return list(entries(content, 0, len(content)))
