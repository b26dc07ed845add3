"""The lines of a file that comes in pieces. It may be 64 MiB of newlines: what is held at a time are the lines of one piece."""

import codecs
from collections.abc import AsyncIterator


async def lines_of(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Without the LF that ends each (the last one needs none), and without the mark that some editors begin UTF-8 with."""
    begun: list[bytes] = []
    """Of a line that isn't over yet: to join it with each piece would copy a line of 64 MiB 256 times."""
    first = True
    async for piece in pieces:
        *ends, rest = (piece.removeprefix(codecs.BOM_UTF8) if first else piece).split(b"\n")
        first = False
        for end in ends:
            yield b"".join((*begun, end))
            begun.clear()
        begun.append(rest)
    yield b"".join(begun)
