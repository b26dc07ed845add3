"""run/node.json: where the node is and which its processes are, for commands and scripts."""

import asyncio
import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fornada.core.ports import EventLog

RETRY_S = 5.0
"""Until a file that couldn't be written is tried again."""


class NodeFile:
    """A node serves without it, since whoever knows its address needs no file: a disk that is full for a while must not end its models."""

    def __init__(self, path: Path, facts: Mapping[str, Any], *, log: EventLog, loop: asyncio.AbstractEventLoop) -> None:
        self._path = path
        self._facts = facts
        self._log = log
        self._loop = loop
        self._again: asyncio.TimerHandle | None = None

    def write(self) -> None:
        """Whole or not at all: scripts read it at any moment. Where it can't be written, the log says so and it is tried until it can."""
        told = self._again is not None
        self.close()
        try:
            self._replace()
        except OSError as error:
            if not told:
                self._log.warning("node.file_unwritten", path=str(self._path), reason=error.strerror)
            self._again = self._loop.call_later(RETRY_S, self.write)

    def close(self) -> None:
        """Tries no more: it is a successor's, or goes."""
        if self._again is not None:
            self._again.cancel()
            self._again = None

    def _replace(self) -> None:
        draft = self._path.with_suffix(f".{os.getpid()}")
        try:
            draft.write_text(json.dumps(self._facts) + "\n")
            draft.replace(self._path)
        except OSError:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
            raise
