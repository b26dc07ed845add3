"""Lines of a file that comes in pieces."""

import asyncio
import codecs
from collections.abc import AsyncIterator

from hypothesis import given
from hypothesis import strategies as st

from fornada.edge.dialects.openai.jsonl import lines_of


def read(data: bytes, size: int) -> list[bytes]:
    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(data), size):
            yield data[at : at + size]

    async def all() -> list[bytes]:
        return [line async for line in lines_of(pieces())]

    return asyncio.run(all())


@given(st.lists(st.sampled_from([b"", b" ", b"a", b"\r", b"longer than a piece"]), max_size=8), st.integers(1, 9))
def test_lines_are_the_same_however_they_were_cut(lines: list[bytes], size: int):
    assert read(b"\n".join(lines), size) == (lines or [b""])


def test_a_mark_at_the_beginning_is_no_part_of_the_first_line():
    assert read(codecs.BOM_UTF8 + b"a\nb", 4) == [b"a", b"b"]
