"""Sync code, several requests at the same time: one thread for each, while the main thread reads."""

from __future__ import annotations

import queue
import threading
import time
from typing import Callable

from fornada_sdk.api_context import CURRENT, Instance
from fornada_sdk.runner.call import Call
from fornada_sdk.runner.invoke.servable import Batching, Servable
from fornada_sdk.runner.invoke.synchronous import Synchronous
from fornada_sdk.runner.session import Session
from fornada_sdk.runner.streams import CREDIT_WAIT_S


class Threads:
    """Serves until the session has ended."""

    def __init__(
        self,
        session: Session,
        servable: Servable,
        instance: Instance,
        concurrency: int,
        batching: Batching,
        rest: Callable[[], None],
    ) -> None:
        """`rest` carries out the session's wish."""
        self._rest = rest
        self._session = session
        self._servable = servable
        self._instance = instance
        self._concurrency = concurrency
        self._max_batch = batching.most if servable.run_batch is not None else 1
        self._max_wait_s = batching.wait_s
        self._ready: queue.SimpleQueue[Call] = queue.SimpleQueue()

    def serve(self) -> None:
        for number in range(self._concurrency):
            threading.Thread(target=self._work, name=f"fornada-{number}", daemon=True).start()
        self._session.on_calls = self._hand_over
        self._hand_over()
        while not self._session.ended:
            if self._session.wish is not None:
                self._rest()
            else:
                self._session.poll(None)

    def _hand_over(self) -> None:
        inbox = self._session.inbox
        while inbox:
            self._ready.put(inbox.popleft())

    def _work(self) -> None:
        model = Synchronous(self._session, self._servable, self._instance, wait=_wait)
        while True:
            call = self._ready.get()
            model.begin()
            if self._max_batch > 1:
                model.run_batch(self._batch(call))
            else:
                model.run(call)
            model.flush()
            CURRENT.set(None)
            self._session.wake_if_ended()

    def _batch(self, first: Call) -> list[Call]:
        batch = [first]
        until = time.monotonic() + self._max_wait_s
        while len(batch) < self._max_batch:
            left_s = until - time.monotonic()
            try:
                batch.append(self._ready.get(timeout=left_s) if left_s > 0 else self._ready.get_nowait())
            except queue.Empty:
                break
        return batch


def _wait(call: Call, ready: Callable[[], bool]) -> None:
    changed = threading.Event()
    call.notify = changed.set
    while not ready():
        changed.wait(CREDIT_WAIT_S)
        changed.clear()
    call.notify = None
