"""How a control plane lets another one take its place: keeper_client.Replacing, over the parts that `wiring` has joined.

serving ──let_go──> looking for a quiet moment ──> withdrawn ──leave──> replaced; answers what it has, gives connections away
   ^                          │                        │
   └────── too long, resume ──┴──────── resume ────────┘
"""

import asyncio
import socket
from collections.abc import Callable, Sequence

from fornada.core.ports import EventLog
from fornada.edge.server import Server
from fornada.node.keeper_client import KeeperClient
from fornada.node.manager import Manager

LOOK_S = 0.01


class Replacement:
    """One control plane's, for as often as it is asked."""

    def __init__(self, *, keeper: KeeperClient, server: Server, manager: Manager, log: EventLog, replaced: Callable[[], None]) -> None:
        """`replaced` is told once the successor serves."""
        self._keeper = keeper
        self._server = server
        self._manager = manager
        self._log = log
        self._replaced = replaced
        self._work: asyncio.Task[None] | None = None
        self._withdrawn = False

    def let_go(self, patience_s: float) -> None:
        self._work = asyncio.get_running_loop().create_task(self._let_go(patience_s), name="let go")

    def resume(self, reason: str) -> None:
        if self._work is not None:
            self._work.cancel()
        if self._withdrawn:
            self._withdrawn = False
            self._log.warning("node.upgrade_failed", reason=reason)
            self._manager.come_back()
            self._work = asyncio.get_running_loop().create_task(self._server.come_back(listeners(self._keeper)), name="come back")

    def leave(self) -> None:
        self._log.info("node.replaced")
        self._manager.replaced()
        self._replaced()

    async def _let_go(self, patience_s: float) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + patience_s
        while what := self._half_done():
            if loop.time() >= until:
                self._keeper.refuse_handover(f"after {patience_s:g} s {what}: try again when that is done")
                return
            await asyncio.sleep(LOOK_S)
        # All of it in one turn of the loop: nothing can begin in between.
        self._withdrawn = True
        self._server.withdraw()
        self._manager.withdraw()
        in_flight = self._manager.in_flight
        self._log.info("node.withdrawn", in_flight=in_flight)
        self._keeper.released(in_flight=in_flight)

    def _half_done(self) -> str:
        return "an operator's request is still under way" if self._server.changes else self._manager.half_done()


def listeners(keeper: KeeperClient) -> Sequence[socket.socket]:
    """Copies, for a server that closes what it is given."""
    return [listener.dup() for listener in keeper.listeners]
