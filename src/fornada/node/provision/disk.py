"""The room that a node's files may take together, and the refusal when there is none."""

import asyncio
import contextlib
import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

from fornada.core.errors import DiskFull
from fornada.core.resources import format_size
from fornada.node.provision.durable import disk_bytes, no_space

COUNTED = ("environments", "artifacts", "bundles", "finetunes", "sdk", "cache")
"""Folders of the data directory that the budget bounds. Environments share files with the cache: each is counted once."""
COUNTED_FILES = ("store.sqlite", "store.sqlite-wal")
"""Jobs, their answers and files that were handed in lie there."""
LEAST_FREE = 16 * 1024 * 1024
"""Left free on the disk, so that the store and the logs can still be written."""


class Disk:
    """Knows what the data directory holds and may hold."""

    def __init__(self, data_dir: Path, *, budget: int, make_room: Callable[[], Awaitable[object]]) -> None:
        """`budget` in bytes, 0 = what the disk has. `make_room` removes what nothing refers to."""
        self.data_dir = data_dir
        self._budget = budget
        self._make_room = make_room

    async def used(self) -> int:
        """Bytes that count against the budget."""
        return await asyncio.to_thread(self._used)

    async def room_for(self, count: int, *, what: str) -> None:
        """Returns where `count` bytes more may be written, perhaps after a prune. Raises DiskFull with the numbers."""
        if self._lacks(count):
            await self._make_room()
            if self._lacks(count):
                raise no_space(self.data_dir)
        if self._budget and await self.used() + count > self._budget:
            await self._make_room()
            used = await self.used()
            if used + count > self._budget:
                raise self.over_budget(used, count, what=what)

    def over_budget(self, used: int, count: int, *, what: str) -> DiskFull:
        """The refusal where a budget is used up."""
        wanted = f", {what} needs {format_size(count)} more" if count else f", so {what} has no room"
        return DiskFull(
            f"{self.data_dir} holds {format_size(used)} of its budget of {format_size(self._budget)}{wanted}; "
            "remove models and run `fornada prune`, or raise [node] disk_budget",
            retry_after_s=60,
        )

    def _used(self) -> int:
        found = disk_bytes(*(self.data_dir / name for name in COUNTED))
        for name in COUNTED_FILES:
            with contextlib.suppress(OSError):
                found += os.stat(self.data_dir / name).st_blocks * 512
        return found

    def _lacks(self, count: int) -> bool:
        return shutil.disk_usage(self.data_dir).free < count + LEAST_FREE
