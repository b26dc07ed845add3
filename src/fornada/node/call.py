"""One request on its way through the node, and the caller's hold on it.

waiting → sent ─→ done
   │       │ └→ streaming → done
   │       └──────┴→ abandoned → done       the caller was answered or has left; the runner still works on it
   └→ done
"""

import enum
from typing import Protocol

from fornada.core.errors import DeadlinePassed, FornadaError
from fornada.core.names import Instant
from fornada.core.requests import InferenceRequest, Sink
from fornada.node.deadlines import Wheel
from fornada_sdk.wire.messages import STREAM_WINDOW

CREDIT_STEP = STREAM_WINDOW // 4
"""Bytes that a caller takes before the runner is told."""


class Course(enum.Enum):
    """Where a call is."""

    WAITING = "waiting"
    SENT = "sent"
    STREAMING = "streaming"
    ABANDONED = "abandoned"
    DONE = "done"


WAITING, SENT, STREAMING, ABANDONED, DONE = Course


class Queue(Protocol):
    """Where a call waits."""

    def withdraw(self, call: "Call") -> None:
        """It waits no longer."""

    def describe(self) -> str:
        """What it waits for, for the message of a deadline."""


class Wire(Protocol):
    """What a call was sent to."""

    def abandon(self, call: "Call") -> None:
        """Tells the runner that nobody waits for the call; its slot comes back with the runner's word."""

    def credit(self, call: "Call") -> None:
        """Tells the runner of what the caller has taken of its stream."""

    def say(self, call: "Call", kind: int, data: bytes) -> None:
        """Tells the runner what the caller of a conversation says."""


class Call:
    """A core.requests.Ticket. Its fields are changed by its queue and its wire alone."""

    __slots__ = (
        "credited",
        "deadline",
        "id",
        "listens",
        "queue",
        "request",
        "seen",
        "sent_at",
        "since",
        "sink",
        "state",
        "taken_bytes",
        "tick",
        "tried_again",
        "wheel",
        "wire",
    )

    def __init__(
        self, id: int, request: InferenceRequest, sink: Sink, queue: Queue, wheel: Wheel, deadline: Instant, since: Instant
    ) -> None:
        self.id = id
        self.request = request
        self.sink = sink
        self.queue = queue
        self.wheel = wheel
        self.deadline = deadline
        self.since = since
        self.state = WAITING
        self.wire: Wire
        self.sent_at = since
        self.tick = 0
        self.tried_again = False
        """Its first try ran out of memory."""
        # Of a stream: bytes that came, that the caller took, and that the runner was told of.
        self.seen = 0
        self.taken_bytes = 0
        self.credited = 0
        self.listens = False
        """Model code hears what its caller says: it can't be tried again."""

    def leave(self) -> None:
        state = self.state
        if state is WAITING:
            self.state = DONE
            self.wheel.discard(self)
            self.queue.withdraw(self)
        elif state is SENT or state is STREAMING:
            self.wheel.discard(self)
            self.wire.abandon(self)

    def taken(self, count: int) -> None:
        taken = self.taken_bytes = self.taken_bytes + count
        if taken - self.credited >= CREDIT_STEP and self.state is STREAMING:
            self.wire.credit(self)

    def say(self, kind: int, data: bytes) -> None:
        if self.listens and self.state in (SENT, STREAMING):
            self.wire.say(self, kind, data)

    def expire(self, now: Instant) -> None:
        """The wheel's word that the deadline has passed."""
        waited_s = now - self.since
        if self.state is WAITING:
            self.refuse(DeadlinePassed(f"the deadline passed after {waited_s:.1f} s: {self.queue.describe()}"))
        else:
            self.refuse(DeadlinePassed(f"the deadline passed after {waited_s:.1f} s, while the model worked on the request", begun=True))

    def refuse(self, error: FornadaError) -> None:
        """Tells the caller, wherever the call is, unless it is over already."""
        state = self.state
        if state is DONE or state is ABANDONED:
            return
        self.wheel.discard(self)
        if state is WAITING:
            self.state = DONE
            self.queue.withdraw(self)
            self.sink.refuse(error)
            return
        self.wire.abandon(self)
        if state is SENT:
            self.sink.refuse(error)
        else:
            self.sink.stream_ends(error)

    def refuse_unbegun(self, error: FornadaError) -> None:
        """As `refuse`, for a stream whose beginning the sink didn't take in: to its caller nothing has begun."""
        if self.state is STREAMING:
            self.state = SENT
        self.refuse(error)
