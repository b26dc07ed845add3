"""Bugs of ours where they must not spread: the one place that takes any exception, says it, and lets what comes after it go on.

What is used here has a way to end the thing that failed, or needs none. Everywhere else a bug ends its task.
"""

import contextlib
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from fornada.core.names import Instant
from fornada.telemetry import Log

TOLD_S = 10.0
"""How often at most the log is told of a place where something failed."""
STORY_LONGEST = 4000


class Contained:
    """What became of a block that was let fail."""

    error: Exception | None = None


class Faults:
    """Of one node."""

    def __init__(self, log: Log, *, now: Callable[[], Instant]) -> None:
        self._log = log
        self._now = now
        self._told_at: dict[str, Instant] = {}
        self._untold: dict[str, int] = {}

    @contextlib.contextmanager
    def contained(self, place: str, **fields: Any) -> Iterator[Contained]:
        """Whatever the block raises is logged, and known to the one who asks for it afterwards."""
        contained = Contained()
        try:
            yield contained
        except Exception as error:  # noqa: BLE001 - see above
            contained.error = error
            self._tell(place, error, fields)

    def _tell(self, place: str, error: Exception, fields: dict[str, Any]) -> None:
        now = self._now()
        if now < self._told_at.get(place, float("-inf")) + TOLD_S:
            self._untold[place] = self._untold.get(place, 0) + 1
            return
        self._told_at[place] = now
        story = "".join(traceback.format_exception(error))[-STORY_LONGEST:]
        told = {"error": f"{type(error).__name__}: {error}", "story": story, "since_last_told": self._untold.pop(place, 0)}
        self._log.error("internal.fault", task=place, **told, **fields)
