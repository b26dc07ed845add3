"""Running sync model code: one call or one batch, from the request to its answer in the session."""

from __future__ import annotations

import collections
import time
from typing import Any

from fornada_sdk.api_context import CURRENT, Instance
from fornada_sdk.runner.answers import cancelled_frames, error_frames, ok_frames
from fornada_sdk.runner.batch import run_together
from fornada_sdk.runner.call import Call
from fornada_sdk.runner.capture import Lines, end_lines
from fornada_sdk.runner.invoke.servable import Servable
from fornada_sdk.runner.long_answer import Outgoing
from fornada_sdk.runner.session import Session
from fornada_sdk.runner.streams import Stream, Wait, is_stream, pump

SHORT_RUN_S = 0.0002
"""Only answers of calls that were shorter wait for others to share their packet: the next one won't take long either."""
FLUSH_AFTER_S = 0.0005
"""How long they wait. If the next call does take long, the standby sends them."""
FLUSH_BYTES = 49152

_PLAIN = frozenset([list, str, bytes, type(None), int, float, bool])


class Synchronous:
    """One thread's hand at the model. Answers gather until `flush`."""

    def __init__(self, session: Session, servable: Servable, instance: Instance, *, wait: Wait) -> None:
        self._session = session
        self._servable = servable
        self._handle = servable.handle
        self._instance = instance
        self._wait = instance.wait = wait
        self._gathered: collections.deque[tuple[Call, Outgoing]] = collections.deque()
        self._gathered_bytes = 0
        self._gathering_since = 0.0
        self._together = False
        """The answers of one batch are being made: they come one right after the other."""
        self.now = 0.0
        """When the last call ended."""

    def begin(self) -> None:
        """Work begins after a pause: the clock is asked once for each call from here on."""
        self.now = time.monotonic()

    def run(self, call: Call) -> None:
        """One call, unless it is over or too late already."""
        began = self.now
        call.started = True
        if call.over or self._is_late(call, began):
            return
        CURRENT.set(call)
        try:
            result = self._handle(call.request(), call)
        except BaseException as error:  # noqa: BLE001 - the boundary with model code
            self._fail(call, error, began)
            return
        self._answer(call, result, began)

    def run_batch(self, calls: list[Call]) -> None:
        """Several calls at once. A call that is over or too late is left out."""
        began = self.now
        live = []
        for call in calls:
            call.started = True
            if not call.over and not self._is_late(call, began):
                live.append(call)
        self._together = True
        run_together(
            self._servable,
            self._instance,
            live,
            done=lambda call, result: self._answer(call, result, began),
            failed=lambda call, error: self._fail(call, error, began),
        )
        self._together = False
        self.flush()

    def _is_late(self, call: Call, now: float) -> bool:
        if not call.deadline or now < call.deadline:
            return False
        self._session.finish(call, cancelled_frames(call, "the deadline passed while it waited"))
        return True

    def _answer(self, call: Call, result: Any, began: float) -> None:
        kind = type(result)
        if kind is not dict and kind not in _PLAIN and is_stream(result):
            self.flush()
            try:
                stream = Stream(self._session, call, result)
            except Exception as error:  # noqa: BLE001 - a Response that model code filled with what can't be sent
                self._fail(call, error, began)
                return
            pump(stream, call, self._wait)
            if Lines.unfinished:
                end_lines()
            self.now = time.monotonic()
            return
        now = time.monotonic()
        try:
            messages = cancelled_frames(call, "") if call.cancelled else ok_frames(call, result, now - began)
        except Exception as error:  # noqa: BLE001 - what model code returned can't be sent
            self._fail(call, error, began)
            return
        self._file(call, messages, began, now)

    def _fail(self, call: Call, error: BaseException, began: float) -> None:
        now = time.monotonic()
        self._file(call, cancelled_frames(call, "") if call.cancelled else error_frames(call, error, now - began), began, now)

    def _file(self, call: Call, messages: Outgoing, began: float, now: float) -> None:
        self.now = now
        if Lines.unfinished:
            end_lines()
        gathered = self._gathered
        if not gathered:
            self._gathering_since = now
            self._gathered_bytes = 0
        gathered.append((call, messages))
        self._gathered_bytes += len(messages[0])
        if (
            (now - began > SHORT_RUN_S and not self._together)
            or now - self._gathering_since > FLUSH_AFTER_S
            or self._gathered_bytes > FLUSH_BYTES
            or len(messages) > 1
        ):
            self.flush()

    def flush(self) -> None:
        """Sends the answers that have gathered. Any thread may."""
        gathered = self._gathered
        answers = []
        while gathered:
            try:
                answers.append(gathered.popleft())
            except IndexError:
                break  # another thread was faster
        if answers:
            for home in self._session.file(answers):
                home.flush()
