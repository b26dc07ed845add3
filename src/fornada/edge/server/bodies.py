"""How many bytes of requests' bodies the node holds at the same time, all connections together.

Each body has a bound of its own, and a few thousand connections that each hold almost as much would still be more than a machine has.
A body counts from its first piece until its request is over: queued requests hold theirs. Small ones (SMALL_BODY) don't count.
"""

from fornada.core.errors import Busy, TooLarge
from fornada.core.resources import format_size

STEP = 256 * 1024
"""Bytes that a body takes at once: who sends slowly holds no more than this beyond what came."""
SMALL_PIECE = 512
"""Bytes: pieces of a body that are smaller are put together."""
RETRY_S = 1.0
DRAIN_BYTES = 64 * 1024 * 1024
"""Bytes of a refused body that are thrown away so that the connection stays usable."""
LINGER_BYTES = 1024 * 1024
LINGER_S = 2.0
"""How long, and how much, is still read from a caller whose connection is to be closed: closing with unread bytes would send
a reset, which may overtake the answer."""


class Bodies:
    """The budget."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0

    def refusal(self) -> Busy | None:
        """Why no further body may come, None where one may."""
        return self._busy() if self.held >= self.most else None

    def hold(self) -> "Hold":
        return Hold(self)

    def _busy(self) -> Busy:
        return Busy("requests hold as many bytes of bodies as the node may keep ([server] max_buffered)", retry_after_s=RETRY_S)


class Hold:
    """One body's share. It is given back with the last reference to it, which its exchange has until it is answered, refused or left."""

    __slots__ = ("_bodies", "bytes")

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self.bytes = 0

    def grow(self, size: int, *, most: int) -> Busy | None:
        """Takes room for `size` bytes and the next ones, `most` in all; the refusal where there is none."""
        bodies = self._bodies
        more = min(size + STEP, most) - self.bytes
        # Where nobody else holds anything one body passes, however small the budget is.
        if bodies.held + more > bodies.most and bodies.held > self.bytes:
            return bodies._busy()
        bodies.held += more
        self.bytes += more
        return None

    def __del__(self) -> None:
        self._bodies.held -= self.bytes


def too_large(most: int) -> TooLarge:
    """A body has more bytes than its route takes."""
    return TooLarge(f"Request is too large: this route takes bodies of at most {most} bytes ({format_size(most)})")
