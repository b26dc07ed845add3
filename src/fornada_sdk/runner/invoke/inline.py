"""Sync code, one request at a time: on the main thread, which also reads. The fastest way, and the usual one."""

from __future__ import annotations

import time
from typing import Callable

from fornada_sdk.api_context import CURRENT, Instance
from fornada_sdk.runner.call import Call
from fornada_sdk.runner.invoke.servable import Batching, Servable
from fornada_sdk.runner.invoke.synchronous import Synchronous
from fornada_sdk.runner.session import Session, State
from fornada_sdk.runner.standby import Standby
from fornada_sdk.runner.streams import CREDIT_WAIT_S

READ_EVERY_S = 0.005
"""Between calls the wire is read at least so often, lest the standby believes that one of them is long."""
BACKLOG_BYTES = 4 * 1024 * 1024
"""With so much unsent, the next call waits: a reader that is slow must not fill this process with answers."""


class Inline:
    """Serves until the session has ended. The standby must have been started."""

    def __init__(
        self,
        session: Session,
        servable: Servable,
        instance: Instance,
        standby: Standby,
        batching: Batching,
        rest: Callable[[], None],
    ) -> None:
        """`rest` carries out the session's wish."""
        self._rest = rest
        self._session = session
        self._standby = standby
        self._max_batch = batching.most if servable.run_batch is not None else 1
        self._max_wait_s = batching.wait_s
        self._model = Synchronous(session, servable, instance, wait=self._wait)

    def serve(self) -> None:
        session, standby, inbox = self._session, self._standby, self._session.inbox
        standby.on_relief = self._model.flush
        while not session.ended:
            if session.wish is not None:
                self._rest()
                continue
            if not inbox:
                session.poll(None)
                continue
            standby.busy()
            self._work()
            standby.idle()

    def _work(self) -> None:
        """What is in the inbox, as long as it isn't empty."""
        session, model, inbox = self._session, self._model, self._session.inbox
        turn = time.monotonic() + READ_EVERY_S
        model.begin()
        while inbox:
            if self._max_batch > 1:
                model.run_batch(self._batch())
            else:
                model.run(inbox.popleft())
            if model.now > turn:
                model.flush()
                session.poll(0)
                turn = model.now + READ_EVERY_S
                self._let_drain()
        model.flush()
        self._let_drain()
        CURRENT.set(None)

    def _batch(self) -> list[Call]:
        """What is here already; if that doesn't fill a batch, what comes within max_wait_ms."""
        session, inbox = self._session, self._session.inbox
        if len(inbox) < self._max_batch:
            self._model.flush()
            session.poll(0)
        until = self._model.now + self._max_wait_s
        left_s = self._max_wait_s
        if len(inbox) < self._max_batch and left_s > 0:
            self._standby.idle()
            while len(inbox) < self._max_batch and left_s > 0 and session.state is State.READY:
                session.poll(left_s)
                left_s = until - time.monotonic()
            self._standby.busy()
            self._model.begin()
        return [inbox.popleft() for _ in range(min(len(inbox), self._max_batch))]

    def _let_drain(self) -> None:
        if self._session.backlog > BACKLOG_BYTES:
            self._standby.idle()
            while self._session.backlog > BACKLOG_BYTES:
                self._session.poll(CREDIT_WAIT_S)
            self._standby.busy()
            self._model.begin()

    def _wait(self, call: Call, ready: Callable[[], bool]) -> None:
        self._standby.idle()
        while not ready():
            self._session.poll(CREDIT_WAIT_S)
        self._standby.busy()
