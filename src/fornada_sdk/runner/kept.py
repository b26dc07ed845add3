"""Answers that no control plane has acknowledged yet: a successor gets them again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable

if TYPE_CHECKING:
    from fornada_sdk.runner.attachment import Attachment
    from fornada_sdk.runner.long_answer import Outgoing

MOST_BYTES = 64 * 1024 * 1024
ENTRY_BYTES = 256
"""What an entry costs beside its frames."""


class Kept:
    """By request id, in the order in which they were made. Not thread-safe: the session's lock stands before it."""

    def __init__(self, dropped: Callable[[int, int], None], most_bytes: int = MOST_BYTES) -> None:
        """`dropped(id, bytes)` is told of each answer that had to be forgotten for want of room."""
        self._entries: dict[int, tuple[Attachment, Outgoing, int]] = {}
        self._bytes = 0
        self._dropped = dropped
        self._most_bytes = most_bytes

    def keep(self, request: int, messages: Outgoing, size: int, home: Attachment) -> None:
        """Until `acknowledge`; `size` is the frames' bytes. The oldest go where there is no room; the newest stays, however large."""
        size += ENTRY_BYTES
        self._entries[request] = (home, messages, size)
        self._bytes += size
        while self._bytes > self._most_bytes and len(self._entries) > 1:
            oldest = next(iter(self._entries))
            gone = self._entries.pop(oldest)[2]
            self._bytes -= gone
            self._dropped(oldest, gone)

    def acknowledge(self, request: int) -> None:
        entry = self._entries.pop(request, None)
        if entry is not None:
            self._bytes -= entry[2]

    def move(self, successor: Attachment) -> list[tuple[int, Outgoing]]:
        """Gives what belongs to control planes that have gone to `successor`; (id, frames) of each, in order."""
        moved = []
        for request, (home, messages, size) in self._entries.items():
            if not home.open:
                self._entries[request] = (successor, messages, size)
                moved.append((request, messages))
        return moved

    def __len__(self) -> int:
        return len(self._entries)
