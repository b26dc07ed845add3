"""Who owns the node's tasks: none runs unowned, and none fails unheard."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from fornada.core.ports import KeeperLost
from fornada.telemetry import Log


class Tasks:
    """Runs coroutines until they end or `close` cancels them. A failure is a bug of ours: it is logged and costs its task alone.

    But for KeeperLost, which ends whatever has to do with processes, and is told by who decides about all of them.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._running: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    async def close(self) -> None:
        """Cancels what still runs and waits for it."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, KeeperLost):
            self._log.error("internal.fault", task=task.get_name(), error=f"{type(error).__name__}: {error}")
