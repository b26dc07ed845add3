"""A channel in the loop: what can't be sent at once goes out when it can, and a faulty other side is told of once."""

from collections.abc import Callable, Sequence
from typing import Any

from fornada.keeper.loop import READABLE, WRITABLE, Loop
from fornada_sdk.wire.channel import Channel, ChannelClosed, ChannelLeft, Message, QueueFull
from fornada_sdk.wire.framing import ProtocolError
from fornada_sdk.wire.messages import Kind

RETRY_S = 0.05


class Peer:
    """Owns the channel. `lost(broke_rules, why)` is called once, after the channel has been closed; never after `close`."""

    def __init__(
        self,
        loop: Loop,
        channel: Channel,
        *,
        heard: Callable[[Message], None] | None,
        lost: Callable[[bool, str], None],
        left: Callable[[], None] | None = None,
    ) -> None:
        """`heard` None: the other side has nothing to say, and whatever it sends is a fault. `left`, if given, is called instead of
        `lost` where the other side takes its leave and still lives."""
        self._loop = loop
        self._channel = channel
        self._heard = heard
        self._lost = lost
        self._left = left
        self._events = READABLE
        self._closed = False
        loop.watch(channel.fileno(), self._ready)

    def send(self, kind: Kind, head: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        """The descriptors are the channel's from here on. A peer that has gone or doesn't read is lost, not an error here."""
        try:
            self._channel.send(kind, head, descriptors)
        except ChannelClosed as error:
            self._lose(False, str(error))
        except QueueFull as error:
            self._lose(True, f"it doesn't read: {error}")
        else:
            self._arm()

    def leave(self) -> None:
        """Tells the other side that nothing more comes from here. What it does about that is still heard."""
        if not self._closed:
            self._channel.leave()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._loop.unwatch(self._channel.fileno())
            self._channel.close()

    def _ready(self) -> None:
        try:
            if self._heard is None:
                self._channel.hear_nothing()
            else:
                for message in self._channel.receive():
                    self._heard(message)
                    if self._closed:
                        return
            self._channel.flush()
        except ChannelLeft as error:
            if self._left is None:
                self._lose(False, str(error))
            elif not self._closed:
                self.close()
                self._left()
        except ChannelClosed as error:
            self._lose(False, str(error))
        except ProtocolError as error:
            self._lose(True, str(error))
        else:
            self._arm()

    def _retry(self) -> None:
        if not self._closed:
            try:
                self._channel.flush()
            except ChannelClosed as error:
                self._lose(False, str(error))
            else:
                self._arm()

    def _arm(self) -> None:
        if self._closed:
            return
        if self._channel.starved:
            self._loop.later(RETRY_S, self._retry)
        events = READABLE | WRITABLE if self._channel.waiting and not self._channel.starved else READABLE
        if events != self._events:
            self._events = events
            self._loop.change(self._channel.fileno(), events)

    def _lose(self, broke_rules: bool, why: str) -> None:
        if not self._closed:
            self.close()
            self._lost(broke_rules, why)
