"""What a caller says after its request: the messages of a conversation over a WebSocket."""

from __future__ import annotations

import collections
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Union

Message = Union[str, bytes]


class Messages(Iterator[Message], AsyncIterator[Message]):
    """`for message in request.messages` in sync code, `async for` in async code: each a str or bytes, in the caller's order.

    It ends when the caller has gone. A request that is no conversation has none.
    """

    def __init__(self, given: Iterable[Message] = ()) -> None:
        """`given`: for tests."""
        self._arrived: collections.deque[Message] = collections.deque(given)

    def __iter__(self) -> Messages:
        return self

    def __aiter__(self) -> Messages:
        return self

    def __next__(self) -> Message:
        if not self._arrived:
            raise StopIteration
        return self._arrived.popleft()

    async def __anext__(self) -> Message:
        if not self._arrived:
            raise StopAsyncIteration
        return self._arrived.popleft()
