"""Work of one instance that is under way: a build, a fetch or a spawn. The life waits for what it comes to."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from fornada.core.lifecycle import events as e
from fornada.node.tasks import Tasks


class Undertaking:
    """One at a time. It owes the life exactly one event, which comes through `ends`.

    But for one case: where the keeper is lost, nothing that is known would be true of the model, and nobody decides here any more
    (Manager.keeper_lost). Then the work just ends.
    """

    def __init__(self, tasks: Tasks, tell: Callable[[e.Event], None]) -> None:
        self.owes_event = False
        """It has begun, and not told its end yet."""
        self._tasks = tasks
        self._tell = tell
        self._work: asyncio.Task[None] | None = None

    def begin(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        """`work` calls `ends` once, whatever happens, unless it is cancelled: the life would wait for ever otherwise."""
        self._work = self._tasks.start(work, name=name)
        self.owes_event = True

    def ends(self, event: e.Event) -> None:
        """What it came to."""
        self.owes_event = False
        self._tell(event)

    def cancel(self) -> None:
        """Answered by ProvisionCancelled, unless its own event is quicker. Also a task that is cancelled before it began answers."""
        if self._work is not None:
            self._work.cancel()
            self._work.add_done_callback(self._cancelled)

    def _cancelled(self, work: "asyncio.Task[None]") -> None:
        if work.cancelled():
            self.ends(e.ProvisionCancelled())
