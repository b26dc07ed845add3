"""Bodies that a runner sends in parts: put together where somebody waits for them, and thrown away as they come where nobody does."""

from collections.abc import Callable
from typing import NamedTuple

from fornada_sdk.wire.framing import MORE, Assembler, ProtocolError
from fornada_sdk.wire.messages import Kind

BODY_BYTES = 256 * 1024**2
"""The largest answer, and the most that the parts of all unfinished answers of one runner may hold."""
HEAD_BYTES = 1024**2
"""The largest message that is read as JSON: reading takes time, and many times its size in memory."""
UNWANTED_MOST = 1024
"""Unfinished bodies that nobody waits for. An honest runner finishes one before it begins the next."""

_PART_KIND = int(Kind.PART)
_LONG = frozenset([int(Kind.ANSWER), int(Kind.ITEM)])
"""What may be longer than HEAD_BYTES."""


class Whole(NamedTuple):
    """A message that is complete. `payload` is None where it was thrown away."""

    kind: int
    part: int
    payload: bytes | None


class Bodies:
    """Of one runner, which is hostile: whatever it sends, what is held has a bound."""

    def __init__(self, wanted: Callable[[int], bool]) -> None:
        """`wanted(id)`: somebody waits for what comes for this request. Asked when a body begins."""
        self._wanted = wanted
        self._assembler = Assembler(BODY_BYTES)
        self._unwanted: dict[int, tuple[int, int]] = {}
        """Kind, and number of the part that is due."""

    def take(self, kind: int, flags: int, part: int, request: int, payload: bytes) -> Whole | None:
        """A frame of a body that has more of them; the message with its last one. Raises ProtocolError."""
        assembler = self._assembler
        unwanted = self._unwanted.get(request)
        if kind != _PART_KIND:
            if kind in _LONG and not self._wanted(request):
                self._throw_away(kind, request, begun=unwanted is not None)
            elif unwanted is not None:
                raise ProtocolError(f"request {request}: a second body begins before the first has ended")
            else:
                self._bound(payload)
                assembler.opened(kind, part, request, payload)
            return None
        if unwanted is not None:
            return self._thrown_away(unwanted, flags, part, request)
        self._bound(payload)
        opened = assembler.kind(request)
        if opened not in _LONG and assembler.size(request) + len(payload) > HEAD_BYTES:
            raise ProtocolError(f"a message of kind {opened} of more than {HEAD_BYTES} bytes")
        whole = assembler.continued(flags, part, request, payload)
        return None if whole is None else Whole(*whole)

    def _bound(self, payload: bytes) -> None:
        if self._assembler.held + len(payload) > BODY_BYTES:
            raise ProtocolError(f"more than {BODY_BYTES} bytes of unfinished messages")

    def _throw_away(self, kind: int, request: int, *, begun: bool) -> None:
        if begun or self._assembler.kind(request) >= 0:
            raise ProtocolError(f"request {request}: a second body begins before the first has ended")
        if len(self._unwanted) >= UNWANTED_MOST:
            raise ProtocolError(f"more than {UNWANTED_MOST} unfinished messages that nobody waits for")
        self._unwanted[request] = (kind, 1)

    def _thrown_away(self, unwanted: tuple[int, int], flags: int, part: int, request: int) -> Whole | None:
        kind, due = unwanted
        if part != due:
            raise ProtocolError(f"request {request}: part {part} came where part {due} was due")
        if flags & MORE:
            self._unwanted[request] = (kind, due + 1)
            return None
        del self._unwanted[request]
        return Whole(kind, 0, None)
