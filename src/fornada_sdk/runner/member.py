"""One instance in a process that several share: loads, serves and goes, without ever keeping the others for long.

loading -> ready -> leaving -> gone          STOP, the keeper's word or its going: leaving once what runs has ended
   any failure -> leaving -> gone            leaving: the last messages have GOODBYE_S to be taken
"""

from __future__ import annotations

import os
import socket
import time
from typing import Any, Callable

from fornada_sdk.api import Model
from fornada_sdk.api_context import CURRENT, Context, Device, Instance
from fornada_sdk.runner import engines, reports
from fornada_sdk.runner.assignment import Assignment
from fornada_sdk.runner.call import Call
from fornada_sdk.runner.capture import Output
from fornada_sdk.runner.engines import LoadError
from fornada_sdk.runner.invoke.inline import BACKLOG_BYTES
from fornada_sdk.runner.invoke.servable import servable
from fornada_sdk.runner.invoke.synchronous import Synchronous
from fornada_sdk.runner.membership import Membership
from fornada_sdk.runner.session import State
from fornada_sdk.runner.streams import CREDIT_WAIT_S
from fornada_sdk.wire.channel import Channel
from fornada_sdk.wire.messages import Kind

SLICE_S = 0.005
"""Then the others have their turn. A call that has begun isn't interrupted."""
GOODBYE_S = 5.0
"""How long the last messages may take to leave, or a control plane to come for them."""
PAGE_BYTES = 4096


class Member:
    """Everything here is called by the host's one thread."""

    def __init__(self, assignment: Assignment, channel: int, output: int) -> None:
        """The descriptors are the member's from here on: its channel to the keeper, and the write end of its output."""
        self.assignment = assignment
        self.output = Output(output, owns=True)
        self._instance = Instance(
            model=assignment.model,
            version=assignment.version,
            instance=assignment.instance,
            device=Device(assignment.device_id, assignment.device_kind, 0),
            artifacts=assignment.artifacts,
            settings=assignment.settings,
            scratch=assignment.scratch,
            load_attempt=assignment.load_attempt,
            load_count=assignment.load_count,
            pid=assignment.pid,
            log=self.output.log,
        )
        keeper = Channel(socket.socket(fileno=channel), queue_bytes=0, body_bytes=65536, descriptors=8)
        self.session = Membership(keeper, assignment, self._instance)
        self._model: Synchronous | None = None
        self._max_batch = 1
        self._leave_by = 0.0
        """When it leaves whatever is still unsaid; 0: it isn't leaving."""

    # ---- coming

    def load(self) -> None:
        """Ends in READY or FAILED, or says nothing where the member was told to stop before."""
        session, given = self.session, self.assignment
        session.poll(0)  # the control plane that waits is told that the load begins, and a STOP may have come already
        if session.state is not State.LOADING:
            return
        context = Context(self._instance)
        CURRENT.set(context)
        phase = "loading"
        try:
            engines.prepare(given.engine)  # it is there already, unless it can't be had: then this is what is told
            before, began = resident_bytes(), time.monotonic()
            loaded = engines.load(given, context)
            self._instance.outputs = loaded.outputs
            serving = servable(loaded.target)
            if serving.is_async:
                raise LoadError("async code can't share a process")
            if isinstance(loaded.target, Model):
                loaded.target.load(context)
            loaded_at = time.monotonic()
            phase = "warming"
            reports.warm_up(loaded.target, serving, given, context, _as_it_is)
        except BaseException as error:  # noqa: BLE001 - the boundary with model code
            session.enter(State.FAILED, Kind.FAILED, reports.failed(error, phase=phase))
            return
        finally:
            CURRENT.set(None)
        if serving.run_batch is not None:
            self._max_batch = given.max_batch
        self._model = Synchronous(session, serving, self._instance, wait=self._wait)
        told = {"load_s": loaded_at - began, "warmup_s": time.monotonic() - loaded_at}
        ahead = max(reports.AHEAD, 2 * self._max_batch)
        # What one member holds can't be told from what the others do: nobody sleeps here.
        facts = reports.ready(loaded, serving._replace(sleep=None, wake=None), **told, pipelining=ahead)
        session.enter(State.READY, Kind.READY, {**facts, "grown_bytes": max(0, resident_bytes() - before)})

    # ---- serving

    def turn(self) -> bool:
        """Reads its wire, and works for SLICE_S or one call. True where more is to be done right away."""
        session, inbox, model = self.session, self.session.inbox, self._model
        session.poll(0)
        if not inbox or model is None or session.backlog > BACKLOG_BYTES:
            return False  # the wire says when there is more, or room for more
        model.begin()
        until = model.now + SLICE_S
        while inbox and model.now < until:
            if self._max_batch > 1:
                model.run_batch([inbox.popleft() for _ in range(min(len(inbox), self._max_batch))])
            else:
                model.run(inbox.popleft())
        model.flush()
        CURRENT.set(None)
        return bool(inbox)

    def _wait(self, call: Call, ready: Callable[[], bool]) -> None:
        """For a stream's reader. What shares a process has no streams; if ever one has, it is slow, not wrong."""
        while not ready():
            self.session.poll(CREDIT_WAIT_S)

    # ---- going

    def leaves_in_s(self, now: float) -> float | None:
        """0: it is to take its leave. None: it stays. Else the seconds after which to ask again, if nothing happens before."""
        session = self.session
        if session.lost:
            return 0.0
        if session.state is State.FAILED:
            said = session.attached and not session.unsent  # a successor may be on its way, and is to learn why
        elif session.ended:
            said = not session.unsent
        else:
            return session.bounded(None)
        if not self._leave_by:
            self._leave_by = now + GOODBYE_S
        return 0.0 if said or now >= self._leave_by else self._leave_by - now

    def leave(self) -> Channel | None:
        """Gives everything back but the channel on which leave is still to be taken, if there is one."""
        self._model = None
        keeper = self.session.close()
        self.output.close()
        if os.path.isdir(self.assignment.scratch):
            import shutil  # few ever write there

            shutil.rmtree(self.assignment.scratch, ignore_errors=True)
        return keeper


def _as_it_is(value: Any) -> Any:
    return value


def resident_bytes() -> int:
    """Of this process; 0 where the kernel doesn't say."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return 0
