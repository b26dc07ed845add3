"""Puts a file on disk soon, for what nobody waits for."""

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

DELAY_S = 0.05
"""What comes within it goes together; and whoever asked has the disk and the processor to himself until then."""


class LateSync:
    """One thread from the first `soon` on. A file that isn't there, or can't be written out, is left to the kernel."""

    def __init__(self, path: Path, *, sync: Callable[[int], None] = os.fdatasync, delay_s: float = DELAY_S) -> None:
        self._path = path
        self._sync = sync
        self._delay_s = delay_s
        self._asked = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def soon(self) -> None:
        """What the file holds now is on disk shortly after `delay_s`. Never waits."""
        self._asked.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="fornada-late-sync", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """What was asked for is done when it returns."""
        self._closed.set()
        self._asked.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        asked = True
        while asked or not self._closed.is_set():
            self._asked.wait()
            self._closed.wait(self._delay_s)
            self._asked.clear()
            with contextlib.suppress(OSError):
                descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    self._sync(descriptor)
                finally:
                    os.close(descriptor)
            asked = self._asked.is_set()
