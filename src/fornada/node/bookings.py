"""What a runner books, at a pace: each booking is a plan and an answer, which cost us more than the question costs its sender.

Model code waits for its answer, so that whoever books honestly is slowed down and no more.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from fornada_sdk.wire.framing import ProtocolError

A_SECOND = 1000
TURN_S = 0.01
A_TURN = int(A_SECOND * TURN_S)
WAITING_MOST = 1000
"""Questions that may wait: no runner has so many threads."""
BYTES_MOST = 1 << 62
RELEASE_DELAY_LONGEST_S = 600.0
DEVICE_LONGEST = 64


class Booking(NamedTuple):
    """A BOOK."""

    number: int
    device: str
    bytes: int
    release_delay_s: float


class Bookings:
    """Of one runner."""

    def __init__(self, book: Callable[[Booking], None], *, faulted: Callable[[str], None], loop: asyncio.AbstractEventLoop) -> None:
        """`book` answers one, and may raise ProtocolError. `faulted` is told of that where nobody else is there to take it."""
        self._book = book
        self._faulted = faulted
        self._loop = loop
        self._waiting: deque[Booking] = deque()
        self._left = A_TURN
        self._timer: asyncio.TimerHandle | None = None

    def asked(self, number: int, said: dict[str, Any]) -> None:
        """Raises ProtocolError for what is no booking, and for who asks on and on."""
        booking = _booking(number, said)
        if self._left > 0:
            self._take(booking)
        elif len(self._waiting) < WAITING_MOST:
            self._waiting.append(booking)
        else:
            raise ProtocolError(f"more than {WAITING_MOST} bookings at a time")

    def close(self) -> None:
        """Nobody is to be answered any more."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _take(self, booking: Booking) -> None:
        self._left -= 1
        if self._timer is None:
            self._timer = self._loop.call_later(TURN_S, self._turn)
        self._book(booking)

    def _turn(self) -> None:
        self._timer = None
        self._left = A_TURN
        try:
            while self._waiting and self._left > 0:
                self._take(self._waiting.popleft())
        except ProtocolError as error:
            self.close()
            self._faulted(str(error))


def _booking(number: int, said: dict[str, Any]) -> Booking:
    device, count, delay_s = said.get("device"), said.get("bytes"), said.get("release_delay_s", 0.0)
    if not isinstance(device, str) or not isinstance(count, int) or not isinstance(delay_s, int | float):
        raise ProtocolError("a BOOK without device and bytes")
    if abs(count) > BYTES_MOST:
        raise ProtocolError("a BOOK of more bytes than there can be")
    return Booking(number, device[:DEVICE_LONGEST], count, float(min(delay_s, RELEASE_DELAY_LONGEST_S)) if delay_s > 0 else 0.0)
