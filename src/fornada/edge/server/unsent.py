"""Whether a caller takes what was written for it: an answer that nobody reads keeps its connection, and the kernel's memory, for nothing."""

import asyncio

STALLED_S = 60.0
"""A caller that takes nothing of its answer for so long is cut off."""


class Unsent:
    """What one connection has not taken yet, against the clock."""

    __slots__ = ("_least",)

    def __init__(self) -> None:
        self._least: tuple[int, float] | None = None
        """Bytes, and since when there are no fewer."""

    def forget(self) -> None:
        """More is written from now on, or the caller has taken a part."""
        self._least = None

    def stalled(self, transport: asyncio.Transport, now: float, *, full: bool) -> bool:
        """Whether the caller has taken nothing for too long. To be asked every tick.

        It counts while the transport is `full`, and while it closes: with the little that it never called too much it would wait for ever.
        """
        if not full and not transport.is_closing():
            return False
        unsent = transport.get_write_buffer_size()
        if self._least is None or unsent < self._least[0]:
            self._least = (unsent, now)
        return now - self._least[1] > STALLED_S
