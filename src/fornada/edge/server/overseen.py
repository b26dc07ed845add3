"""What the server asks of each of its connections: whether it is busy, whether it may go, and that it goes."""

import asyncio
import os

from fornada.core.errors import FornadaError
from fornada.edge.server.asgi import ColdExchange
from fornada.edge.server.exchange import HotExchange
from fornada.edge.server.phase import Phase
from fornada.edge.server.pipeline import Pipeline
from fornada.edge.server.shared import Shared

Exchange = HotExchange | ColdExchange


class Overseen(asyncio.Protocol):
    """The server's side of a Connection, whose attributes these are."""

    __slots__ = ()

    shared: Shared
    _deferred: FornadaError | None
    _fresh: bool
    _incoming: Exchange | None
    _last: bool
    _phase: Phase
    _pipeline: Pipeline
    _transport: asyncio.Transport | None

    @property
    def busy(self) -> bool:
        """Whether a request is being received or answered, or an answer is being sent."""
        unsent = self._transport is not None and self._transport.get_write_buffer_size() > 0
        return not self._pipeline.empty or self._phase is Phase.BODY or unsent

    def stop_taking(self, *, new: bool = False) -> None:
        """Connections end: an idle one now, any other one with its answer.

        A new one is left open unless `new` says otherwise: its first request may be on the way, and is to be answered with words instead
        of a reset.
        """
        if not self.busy and (new or not self._fresh) and self._phase is Phase.IDLE and self._transport is not None:
            self._transport.close()

    @property
    def changes(self) -> bool:
        """Whether something is received or answered that changes what the node is to be."""
        return self._pipeline.changes or (self._incoming is not None and self._incoming.changing)

    @property
    def follows(self) -> bool:
        """An operator's answer is under way, piece by piece."""
        return self._pipeline.follows

    @property
    def rests(self) -> bool:
        """Nothing of it is here but the socket itself."""
        return not (self.busy or self._phase or self._last) and self._transport is not None

    def hold(self) -> None:
        """From now on nothing is read once it rests: that will be its next owner's, or ours after `go_on`."""
        self._pipeline.ending = True
        if self.rests:
            self._pipeline.read_no_further()
        elif self._pipeline.empty and not self._last:
            self._pipeline.read_anyway()  # a request had begun in the bytes that came before

    def depart(self) -> None:
        """Another control plane has taken over: who rests is given to it, and what runs is answered here."""

    def go_on(self) -> None:
        """After `hold`: there is no other owner."""
        self._pipeline.ending = self._deferred is not None
        if not self._last:
            self._pipeline.read_anyway()

    def detach(self) -> int:
        """Its socket, of which nothing stays here. Only while it `rests`. Raises OSError."""
        assert self._transport is not None
        descriptor = os.dup(self._transport.get_extra_info("socket").fileno())
        self._transport.abort()
        return descriptor

    def abort(self) -> None:
        """Ends it at once."""
        if self._transport is not None:
            self._transport.abort()
