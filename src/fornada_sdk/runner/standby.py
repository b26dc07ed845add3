"""The thread that reads the wire while the main thread is inside model code.

Model code runs on the main thread, which is also the usual reader: a small request costs no hand-over. But a CANCEL, a STOP
or a successor's ATTACH must be seen in the middle of a long call. So this thread looks every TICK_S, as long as there is
work, whether the wire was read since; if not, it reads in the main thread's place until that comes back. Without work for
some ticks it sleeps for good, and the next call that begins wakes it.

    parked --busy()--> watching --a tick without a read, main busy--> reading --idle()--> watching --some idle ticks--> parked
"""

from __future__ import annotations

import os
import select
import threading
from typing import Callable

from fornada_sdk.runner.reading import start_reader
from fornada_sdk.runner.session import Session

TICK_S = 0.01
PARK_AFTER_TICKS = 5
"""Waking a parked thread costs the next request some microseconds, ticking costs 100 wake-ups a second."""


class Standby:
    """`busy`, `idle` and `hurry` are for the main thread."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._gate = threading.Semaphore(0)
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        self._busy = False
        self._parked = False
        self._reading = False
        self._hurry = False
        self.on_relief: Callable[[], None] | None = None
        """Called when this thread takes over: what the main thread still wanted to do before its next read."""

    def start(self) -> None:
        start_reader(self._run)

    def busy(self) -> None:
        """The main thread goes into model code."""
        self._busy = True
        if self._parked:
            self._parked = False
            self._gate.release()

    def idle(self) -> None:
        """The main thread reads for itself again. After the return nobody else does, and all that was read is to be seen."""
        self._busy = False
        if self._reading:
            os.write(self._wake_write, b"\0")
            with self._session.reading:
                pass

    def hurry(self) -> None:
        """Model code waits for something off the wire: don't let it wait for the tick."""
        self._hurry = True
        self._gate.release()

    def _is_busy(self) -> bool:
        return self._busy

    def _run(self) -> None:
        idle_ticks = 0
        while True:
            if not self._busy and idle_ticks >= PARK_AFTER_TICKS:
                self._parked = True
                if not self._busy:  # asked after parking: a call that began in between has seen us parked, or we see it here
                    self._gate.acquire()
                self._parked = False
                idle_ticks = 0
            turns = self._session.turns
            self._gate.acquire(timeout=TICK_S)
            if self._busy and (self._hurry or self._session.turns == turns):
                self._hurry = False
                self._read()
            idle_ticks = idle_ticks + 1 if self._session.turns == turns else 0

    def _read(self) -> None:
        poller = select.poll()
        poller.register(self._session.fileno(), select.POLLIN)
        poller.register(self._wake_read, select.POLLIN)
        self._reading = True
        if self.on_relief is not None:
            self.on_relief()
        while self._busy:
            wait_s = self._session.bounded(None)
            poller.poll(None if wait_s is None else wait_s * 1000)
            try:
                os.read(self._wake_read, 4096)
            except BlockingIOError:
                pass
            self._session.poll(0, only_if=self._is_busy)
        self._reading = False
