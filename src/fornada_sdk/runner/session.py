"""All of the runner's conversations: who is attached, which requests are here, what the outside is told.

    keeper ------- ATTACH ----------------------------------> a new Attachment: HELLO, what nobody acknowledged, then as below
    control plane - INVOKE -> inbox -> (invoke/) -> finish -> ANSWER, kept until ACK
                  - CANCEL, CREDIT ------------------------> the Call
                  - STOP ----------------------------------> stopping: what runs may end, for grace_s

One thread reads at a time (`poll`); any may `finish`. A control plane that goes takes its streams with it; its other
requests go on, and their answers wait for the successor. The keeper going is the end of the process.
"""

from __future__ import annotations

import collections
import enum
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, Callable

from fornada_sdk.api_context import Instance
from fornada_sdk.runner.answers import cancelled_frames
from fornada_sdk.runner.assignment import SLACK_BYTES, Assignment
from fornada_sdk.runner.attachment import Attachment, Detached
from fornada_sdk.runner.booking import Bookings
from fornada_sdk.runner.call import Call
from fornada_sdk.runner.encoding import head_json
from fornada_sdk.runner.kept import Kept
from fornada_sdk.runner.long_answer import Outgoing
from fornada_sdk.runner.rest import give_back
from fornada_sdk.wire.channel import Channel, ChannelClosed, Message, widen
from fornada_sdk.wire.framing import ProtocolError, frames
from fornada_sdk.wire.messages import CREDIT_BODY, WIRE_VERSION, Kind, decode

TERM_GRACE_S = 4.0
"""What SIGTERM leaves to running work: less than the node's default kill_s, after which SIGKILL comes."""
TERM_EXIT = 128 + signal.SIGTERM
DEAD_KEEPER_EXIT = 70
MOST_PROGRESS_BYTES = 65536


class State(enum.Enum):
    """loading -> ready -> stopping, loading -> failed, loading -> stopping; ready -> falling -> asleep -> waking -> ready, each of them ->
    stopping. As HELLO says it."""

    LOADING = "loading"
    READY = "ready"
    FALLING = "falling"
    ASLEEP = "asleep"
    WAKING = "waking"
    FAILED = "failed"
    STOPPING = "stopping"


class Session:
    """The runner's end of everything."""

    def __init__(self, keeper: Channel, assignment: Assignment, instance: Instance) -> None:
        self._keeper = keeper
        self._assignment = assignment
        self._instance = instance
        self._epoll = select.epoll()
        self._epoll.register(keeper.fileno(), select.EPOLLIN)
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._epoll.register(self._wake_read, select.EPOLLIN)
        self._attached: dict[int, Attachment] = {}
        self._newest: Attachment | None = None
        self._facts: dict[str, Any] = {}
        self._kept = Kept(self._say_dropped)
        self.telling = threading.Lock()
        """Guards who is attached, what state is told, `_kept`, and who a call's home is."""
        self._stop_at: float | None = None
        self.reading = threading.Lock()
        """Held by whoever reads."""
        self.state = State.LOADING
        self.turns = 0
        """How often the wire was read: a reader that is busy elsewhere shows by it."""
        self.calls: dict[int, Call] = {}
        """Requests without an answer yet, waiting or running."""
        self.inbox: collections.deque[Call] = collections.deque()
        """Those that wait to be run. Some may be `over` already."""
        self._admitted = False
        """Something was put into the inbox that `on_calls` hasn't been told of. Changed by the reading thread alone."""
        self.on_calls: Callable[[], None] | None = None
        """Told, by the reading thread, that something was put into the inbox."""
        self.sleeps = False
        """The model can: SLEEP and WAKE are carried out."""
        self.wish: Kind | None = None
        """SLEEP or WAKE: it is to be carried out by who runs the model."""
        self.on_wish: Callable[[], None] | None = None
        """Told, by the reading thread, that there is a wish, where nobody looks by himself."""
        self.bookings = Bookings(self._tell, self.telling)

    # ---- reading --------------------------------------------------------------------------------------------------------------

    def fileno(self) -> int:
        """Readable when `poll` has something to do."""
        return self._epoll.fileno()

    def poll(self, timeout_s: float | None, *, only_if: Callable[[], bool] | None = None) -> None:
        """Reads what has arrived, waiting for it up to `timeout_s` (None: without bound, but for the end of a STOP's grace).

        `only_if` is asked under the lock: a stand-in reader may have become superfluous meanwhile.
        """
        events = self._wait(timeout_s)
        with self.reading:
            if only_if is not None and not only_if():
                return
            self.turns += 1
            for fd, mask in events:
                self._event(fd, mask)
            if self._stop_at is not None and time.monotonic() >= self._stop_at:
                self._stop_at = None
                self._cancel_all()
            # What came is noted as it comes: whoever runs the calls takes from the inbox meanwhile, so that its length says nothing.
            if self._admitted and self.on_calls is not None:
                self._admitted = False
                self.on_calls()
            if self.wish is not None and self.on_wish is not None:
                self.on_wish()

    def _wait(self, timeout_s: float | None) -> list[tuple[int, int]]:
        rest_s = self._assignment.rest_after_s
        if timeout_s is None and rest_s and not self.calls and self.state is State.READY:
            events = self._epoll.poll(self.bounded(rest_s))
            if events or self._stop_at is not None:
                return events
            give_back([self._assignment.folder, *self._assignment.artifacts.values()])
        return self._epoll.poll(self.bounded(timeout_s))

    def bounded(self, timeout_s: float | None) -> float | None:
        """`timeout_s`, or what is left of a STOP's grace if that is less."""
        stop_at = self._stop_at
        if stop_at is None:
            return timeout_s
        left_s = max(0.0, stop_at - time.monotonic()) + 0.001
        return left_s if timeout_s is None else min(timeout_s, left_s)

    def _event(self, fd: int, mask: int) -> None:
        attachment = self._attached.get(fd)
        if attachment is not None:
            if mask & select.EPOLLOUT:
                attachment.flush()
            if mask & ~select.EPOLLOUT:
                self._receive(attachment)
        elif fd == self._wake_read:
            self._woken()
        else:
            self._hear_keeper()

    def _receive(self, attachment: Attachment) -> None:
        def message(kind: int, request: int, payload: bytes | memoryview) -> None:
            self._message(attachment, kind, request, payload)

        try:
            attachment.receive(self._admit, message)
        except Detached:
            self._detach(attachment)
        except (ProtocolError, ValueError) as error:
            self._complain(f"dropped the control plane of epoch {attachment.epoch}: {error}")
            self._detach(attachment)

    def _admit(self, call: Call) -> None:
        if call.id in self.calls:
            raise ProtocolError(f"request {call.id} came twice")
        self.calls[call.id] = call
        if self.state in (State.STOPPING, State.FAILED):
            self.finish(call, cancelled_frames(call, "the runner is stopping"))
        elif self.state in (State.FALLING, State.ASLEEP, State.WAKING):
            self.finish(call, cancelled_frames(call, "the model is asleep"))
        else:
            self.inbox.append(call)
            self._admitted = True

    def _message(self, attachment: Attachment, kind: int, request: int, payload: bytes | memoryview) -> None:
        if kind == Kind.ACK:
            if len(payload) % 8:
                raise ProtocolError(f"an ACK of {len(payload)} bytes")
            with self.telling:
                answers = memoryview(payload).cast("Q")
                for acknowledged in answers:
                    self._kept.acknowledge(acknowledged)
                if attachment.arenas is not None:
                    attachment.arenas.acknowledged(answers)
        elif kind == Kind.CREDIT:
            if len(payload) != CREDIT_BODY.size:
                raise ProtocolError(f"a CREDIT of {len(payload)} bytes")
            call = self.calls.get(request)
            if call is not None:
                call.credit(CREDIT_BODY.unpack(payload)[0])
        elif kind == Kind.CANCEL:
            self._cancel(request)
        elif kind == Kind.INPUT:
            call = self.calls.get(request)
            if call is not None:
                call.hear(payload)
        elif kind == Kind.STOP:
            self._asked_to_stop(decode(payload))
        elif kind == Kind.BOOKED:
            self.bookings.booked(request, decode(payload))
        elif kind in (Kind.SLEEP, Kind.WAKE):
            self._asked_to_rest(Kind(kind))
        elif kind == Kind.ARENA:
            with self.telling:
                attachment.hear_arena(payload)
        elif kind == Kind.TRIM:
            with self.telling:
                attachment.trim()
        else:
            raise ProtocolError(f"a message of kind {kind} from a control plane")

    def _hear_keeper(self) -> None:
        try:
            for message in self._keeper.receive():
                self.hear(message)
        except (ChannelClosed, ProtocolError):
            self._keeper_gone()

    def _keeper_gone(self) -> None:
        # Without the keeper nobody would ever end this process, and it holds device memory.
        os._exit(DEAD_KEEPER_EXIT)

    def hear(self, message: Message) -> None:
        """A message from the keeper: a control plane attaches, or the instance is to end though its process isn't signalled."""
        if message.kind == Kind.ATTACH and len(message.descriptors) == 1:
            self._attach(socket.socket(fileno=message.descriptors[0]), int(message.head.get("epoch", 0)))
            return
        if message.kind == Kind.STOP:
            self._asked_to_stop(message.head)
            return
        for descriptor in message.descriptors:
            os.close(descriptor)
        self._complain(f"a message of kind {message.kind} from the keeper")

    # ---- who is attached ------------------------------------------------------------------------------------------------------

    def _attach(self, sock: socket.socket, epoch: int) -> None:
        widen(sock)
        # A predecessor that is dead shows it here, so that what it left is in this HELLO.
        for other in list(self._attached.values()):
            self._receive(other)
        attachment = Attachment(
            sock, self._instance, epoch=epoch, body_limit=self._assignment.max_body + SLACK_BYTES, writable=self._watch_writable
        )
        with self.telling:
            left = self._kept.move(attachment)
            orphans = [call for call in self.calls.values() if not call.home.open]
            for call in orphans:
                call.home = attachment
            in_flight = [call.id for call in orphans] + [request for request, _ in left]
            hello = {
                "wire": WIRE_VERSION,
                "release": self._assignment.release,
                "instance": self._assignment.instance,
                "pid": self._instance.pid,
                "state": self.state.value,
                "in_flight": in_flight,
                "arenas": True,
                **self._facts,
                **self.bookings.facts(),
            }
            for messages in [list(frames(Kind.HELLO, Kind.PART, 0, head_json(hello), ())), *(messages for _, messages in left)]:
                attachment.queue(messages, sum(map(len, messages)))
            self._newest = attachment
            self._attached[attachment.fd] = attachment
            self.bookings.ask_again(attachment.send_json)
        self._epoll.register(attachment.fd, select.EPOLLIN)
        attachment.flush()

    def _detach(self, attachment: Attachment) -> None:
        with self.telling:
            if self._attached.pop(attachment.fd, None) is None:
                return
            self._epoll.unregister(attachment.fd)
            attachment.close()
            if self._newest is attachment:
                self._newest = list(self._attached.values())[-1] if self._attached else None
            successor = self._newest
            if successor is not None:
                for _, messages in self._kept.move(successor):
                    successor.queue(messages, sum(map(len, messages)))
            streams = []
            for call in self.calls.values():
                if call.home is attachment:
                    if call.talks:
                        streams.append(call)
                    if successor is not None:
                        call.home = successor
        for call in streams:
            call.cancel()
        if successor is not None:
            successor.flush()

    @property
    def attached(self) -> bool:
        return self._newest is not None

    @property
    def backlog(self) -> int:
        """Bytes, about, that the newest control plane has still to take."""
        newest = self._newest
        return newest.waiting if newest is not None else 0

    def _watch_writable(self, attachment: Attachment, wanted: bool) -> None:
        try:
            self._epoll.modify(attachment.fd, select.EPOLLIN | (select.EPOLLOUT if wanted else 0))
        except (OSError, ValueError):
            pass  # closed meanwhile, or not registered yet: HELLO goes out at the first turn

    # ---- telling --------------------------------------------------------------------------------------------------------------

    def _tell(self, kind: Kind, payload: dict[str, Any], request: int) -> None:
        """To every control plane that is attached. `telling` is held, so that each hears it after its HELLO and once."""
        for attachment in self._attached.values():
            attachment.send_json(kind, payload, request)

    def enter(self, state: State, kind: Kind, facts: dict[str, Any]) -> None:
        """The runner is ready, or has failed: tells it, and every later HELLO repeats it."""
        with self.telling:
            if self.state is State.LOADING:
                self.state = state
                self._facts = facts
                self._tell(kind, facts, 0)

    def progress(self, phase: str, text: str, fraction: float | None) -> None:
        """PROGRESS while loading; where what waits to be sent shows that nobody reads, it is left out."""
        payload = {"phase": phase, "text": text, "fraction": fraction}
        with self.telling:
            if self.state is not State.LOADING:
                return
            self._facts = {"progress": payload}
            for attachment in self._attached.values():
                if attachment.waiting < MOST_PROGRESS_BYTES:
                    attachment.send_json(Kind.PROGRESS, payload)

    def finish(self, call: Call, messages: Outgoing) -> None:
        """The call's ANSWER or END: sent to its home, kept until it is acknowledged. A second one is ignored."""
        for home in self.file([(call, messages)]):
            home.flush()
        self.wake_if_ended()

    def file(self, answers: Sequence[tuple[Call, Outgoing]]) -> list[Attachment]:
        """As `finish`, for several, without the sending: the caller flushes what is returned."""
        homes: list[Attachment] = []
        with self.telling:
            for call, messages in answers:
                if call.over:
                    continue
                call.over = True
                self.calls.pop(call.id, None)
                home = call.home
                size = len(messages[0]) if len(messages) == 1 else sum(map(len, messages))
                self._kept.keep(call.id, messages, size, home)
                home.queue(messages, size)
                if home not in homes:
                    homes.append(home)
        return homes

    def wake_if_ended(self) -> None:
        """After the last answer: whoever waits in `poll` is to see that nothing is left to do."""
        if self.state is State.STOPPING and not self.calls:
            self.wake()

    # ---- sleeping -------------------------------------------------------------------------------------------------------------

    def _asked_to_rest(self, wish: Kind) -> None:
        """SLEEP or WAKE. Two control planes may both have sent it: what is under way or true already isn't begun anew."""
        before, on_the_way, there, answer = (
            (State.READY, State.FALLING, State.ASLEEP, Kind.SLEPT)
            if wish == Kind.SLEEP
            else (State.ASLEEP, State.WAKING, State.READY, Kind.WOKEN)
        )
        if self.state in (on_the_way, there, State.STOPPING):
            return
        with self.telling:
            if self.state is before and self.sleeps and not self.calls:
                self.state, self.wish = on_the_way, wish
                return
            why = "the model can't" if not self.sleeps else f"it is {self.state.value}, with {len(self.calls)} requests under way"
            self._tell(answer, {"failed": why}, 0)

    def rest(self, state: State, kind: Kind, facts: dict[str, Any]) -> None:
        """It sleeps, has woken, or has failed to: tells it. What is booked and what is told of that change together."""
        with self.telling:
            if self.state in (State.FALLING, State.WAKING):
                self.state = state
                if state is State.ASLEEP:
                    self.bookings.set_aside()
            self._tell(kind, facts, 0)

    # ---- ending ---------------------------------------------------------------------------------------------------------------

    def _asked_to_stop(self, order: dict[str, Any]) -> None:
        grace_s = order.get("grace_s")
        self.stop(float(grace_s) if isinstance(grace_s, (int, float)) else 0.0)

    def stop(self, grace_s: float, *, exit_code: int = 0) -> None:
        """No new work from here on. What runs or waits may end within `grace_s`, then it is cancelled.

        While loading it ends the process with `exit_code`: nothing is being served, and a load can't be interrupted.
        """
        if self.state is State.LOADING:
            self._stop_loading(exit_code)
            return
        at = time.monotonic() + grace_s
        self._stop_at = at if self.state is not State.STOPPING or self._stop_at is None else min(at, self._stop_at)
        self.state = State.STOPPING
        self.wake()

    def _stop_loading(self, exit_code: int) -> None:
        self._hang_up()
        os._exit(exit_code)

    @property
    def ended(self) -> bool:
        """Stopping, and nothing is left to do."""
        return self.state is State.STOPPING and not self.calls

    def say_goodbye(self, timeout_s: float) -> None:
        """Sends what is still to be sent, waiting up to `timeout_s` for readers."""
        end = time.monotonic() + timeout_s
        while any(attachment.waiting for attachment in self._attached.values()) and time.monotonic() < end:
            self.poll(0.05)
        self._hang_up()

    def _hang_up(self) -> None:
        # Unread messages in our socket would make the other side's next read fail with ECONNRESET.
        for attachment in list(self._attached.values()):
            attachment.flush()
            try:
                attachment.receive(_ignore, _ignore)
            except (Detached, ProtocolError):
                pass

    def terminate(self) -> None:
        """For the handler of SIGTERM."""
        self._write_wake(bytes([signal.SIGTERM]))

    def wake(self) -> None:
        """Makes a waiting `poll` return."""
        self._write_wake(b"\0")

    def signal_fd(self) -> int:
        """For signal.set_wakeup_fd: numbers of signals written here are heard by whoever reads."""
        return self._wake_write

    def _write_wake(self, data: bytes) -> None:
        try:
            os.write(self._wake_write, data)
        except BlockingIOError:
            pass  # full of wake-ups already

    def _woken(self) -> None:
        try:
            heard = os.read(self._wake_read, 4096)
        except BlockingIOError:
            return
        if signal.SIGTERM in heard and self.state is not State.STOPPING:
            self.stop(TERM_GRACE_S, exit_code=TERM_EXIT)

    # ---- cancelling -----------------------------------------------------------------------------------------------------------

    def _cancel(self, request: int) -> None:
        call = self.calls.get(request)
        if call is None:
            return
        call.cancel()
        if not call.started:
            self.finish(call, cancelled_frames(call, ""))

    def _cancel_all(self) -> None:
        for call in list(self.calls.values()):
            self._cancel(call.id)

    def _say_dropped(self, request: int, size: int) -> None:
        self._complain(f"forgot the answer to request {request} ({size} bytes): nobody acknowledged it and there is no more room")

    def _complain(self, text: str) -> None:
        sys.stderr.write(f"fornada: {text}\n")

    def close_in_child(self) -> None:
        """After a fork by model code: the child must not hold, or read, what is the runner's."""
        for attachment in self._attached.values():
            attachment.close_in_child()
        self._keeper.close()
        self._epoll.close()
        os.close(self._wake_read)
        os.close(self._wake_write)


def _ignore(*_: Any) -> None:
    """What arrives at the very end."""
