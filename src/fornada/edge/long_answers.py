"""An answer that may be larger than memory, made while it is sent: as much at a time as the caller takes, and others get their turn in between.

send ── all of it is short ──► reply
  └── more ──► begin ── write ◄── taken ── write … ── end        leave: the rest is not made
"""

import asyncio
from collections.abc import Iterator

from fornada.core.errors import FornadaError
from fornada.edge.calls import Exchange

SHORT = 256 * 1024
"""Bytes up to which it is sent whole, with its length."""
AT_ONCE = 64 * 1024
"""Bytes of a piece, about; a longer one is sent as it is."""


def send(exchange: Exchange, lines: bytes, pieces: Iterator[bytes]) -> None:
    """`pieces` may raise a FornadaError: one in the middle breaks the answer off. Raises what comes before the first is sent."""
    gathered = _gathered(pieces)
    held: list[bytes] = []
    size = 0
    for piece in gathered:
        held.append(piece)
        size += len(piece)
        if size > SHORT:
            _Long(exchange, lines, held, gathered)
            return
    exchange.reply(200, lines, tuple(held), 0.0)


class _Long:
    """core.requests.Ticket: the caller's hold on it."""

    def __init__(self, exchange: Exchange, lines: bytes, held: list[bytes], rest: Iterator[bytes]) -> None:
        self._exchange = exchange
        self._rest = rest
        self._ahead = 0
        """Bytes that are written and haven't left."""
        self._scheduled = False
        self._over = False
        exchange.begin(lines)
        exchange.hold(self)
        self._write(b"".join(held))
        self._soon()

    def taken(self, count: int) -> None:
        self._ahead -= count
        self._soon()

    def leave(self) -> None:
        self._over = True

    def _soon(self) -> None:
        if not self._scheduled and not self._over and self._ahead <= AT_ONCE:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._more)

    def _more(self) -> None:
        self._scheduled = False
        if self._over:
            return
        try:
            piece = next(self._rest, None)
        except FornadaError as error:
            self._over = True
            self._exchange.break_off(b"", error)
            return
        if piece is None:
            self._over = True
            self._exchange.end(0.0)
        else:
            self._write(piece)
            self._soon()

    def _write(self, piece: bytes) -> None:
        self._ahead += len(piece)
        self._exchange.write(piece, len(piece))


def _gathered(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes in larger pieces."""
    held: list[bytes] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size >= AT_ONCE:
            yield b"".join(held)
            held.clear()
            size = 0
    if held:
        yield b"".join(held)
