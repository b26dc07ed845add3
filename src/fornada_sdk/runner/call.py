"""One request in the runner, from INVOKE to the answer's acknowledgement; to model code it is the request's Context."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Callable

from fornada_sdk.api_context import Context, Instance
from fornada_sdk.runner.received import Received
from fornada_sdk.wire.framing import ProtocolError
from fornada_sdk.wire.messages import STREAM_WINDOW, decode

if TYPE_CHECKING:
    from fornada_sdk.runner.attachment import Attachment
    from fornada_sdk.runner.inbound import Inbound


class Call(Context):
    """Changed by two threads: the one that reads the wire sets `_cancelled` and `taken`, the one that runs the model all else."""

    # Defaults stand in the class: a small request is over before most of these are ever set.
    notify: Callable[[], None] | None = None
    """Wakes whoever waits for credit or runs the call; called by the reading thread."""
    started = False
    """Model code has it."""
    over = False
    """Its ANSWER or END is made: nothing more may be sent."""
    streamed = False
    """STREAM was sent."""
    inbound: Inbound | None = None
    """What its caller says, once model code has asked for it."""
    sent = 0
    taken = 0

    def __init__(self, id: int, head: bytes, raw: bytes, deadline: float, home: Attachment, instance: Instance) -> None:
        """`deadline` is an instant of time.monotonic, 0 for none. `home` is who asked; another one once that has gone."""
        self._instance = instance
        self.id = id
        self.head = head
        self.raw = raw
        self.deadline = deadline
        self.home = home

    def request(self) -> Received:
        return Received(self.head, self.raw, self)

    def listen(self) -> Inbound:
        """Model code wants what the caller says."""
        inbound = self.inbound
        if inbound is None:
            from fornada_sdk.runner.inbound import Inbound

            inbound = self.inbound = Inbound(self)
            inbound.tell(0)  # from here on another thread may bring messages
        return inbound

    def hear(self, payload: bytes | memoryview) -> None:
        """An INPUT. Raises ProtocolError."""
        if self.over:
            return  # it ended while this was on its way
        if self.inbound is None:
            raise ProtocolError(f"request {self.id}: a message for a model that doesn't listen")
        self.inbound.arrived(payload)

    @property
    def waiting(self) -> Callable[[Call, Callable[[], bool]], None] | None:
        """How sync code waits for what the wire brings; None where it mustn't, on a loop."""
        return self._instance.wait

    @property
    def talks(self) -> bool:
        """Its caller is to be heard, or waits for more than one answer."""
        return self.streamed or self.inbound is not None

    @property
    def request_id(self) -> str:
        try:
            return str(decode(self.head).get("request_id", ""))
        except ValueError:
            return ""

    @property
    def outputs(self) -> Sequence[Any]:
        """The tensors that the model answers, as declared."""
        return self._instance.outputs

    @property
    def used(self) -> dict[str, Any] | None:
        """What model code wrote into `usage`."""
        return self._usage

    def cancel(self) -> None:
        self._cancelled = True
        if self.notify is not None:
            self.notify()

    def credit(self, count: int) -> None:
        """The reader of the stream has taken `count` bytes."""
        self.taken += count
        if self.notify is not None:
            self.notify()

    def may_send(self, size: int) -> bool:
        """An item of `size` bytes fits what the stream's reader has room for.

        Credit comes in steps, so that a rest may stay without it for good: from half the window on an item of any size goes.
        """
        outstanding = self.sent - self.taken
        return outstanding + size <= STREAM_WINDOW > outstanding or outstanding <= STREAM_WINDOW // 2
