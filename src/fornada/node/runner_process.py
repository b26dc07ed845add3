"""A runner as the control plane holds it: the descriptors that the keeper gave, its signals, its end."""

import asyncio
import os
from collections.abc import Mapping
from typing import Any, Protocol

from fornada.core.ports import ExitStatus, KeeperLost
from fornada_sdk.wire.messages import Kind


class Keeper(Protocol):
    """node.keeper_client's KeeperClient, as far as its processes need it."""

    def tell(self, kind: Kind, head: dict[str, Any]) -> None:
        """Sends what needs no answer."""

    def forgotten(self, process: "RunnerProcess") -> None:
        """Nobody asks for its end any more."""


class RunnerProcess:
    """core.ports.ProcessPort: a runner started now or adopted.

    `link`, `output` and `outbound` stay open until `forget`; a holder that wraps them in other objects detaches these before.
    """

    def __init__(
        self, client: Keeper, instance: str, pid: int, memo: Mapping[str, Any], link: int, output: int, outbound: int = -1
    ) -> None:
        self.instance = instance
        self.pid = pid
        self.memo = memo
        self.link = link
        self.output = output
        self.outbound = outbound
        self.start = "exec"
        self._client = client
        self._ended: asyncio.Future[ExitStatus] = asyncio.get_running_loop().create_future()
        self._forgotten = False

    async def exited(self) -> ExitStatus:
        """Cancelling one waiter leaves the others waiting. Raises KeeperLost."""
        return await asyncio.shield(self._ended)

    def signal(self, number: int) -> None:
        """To its whole process group."""
        if not self._ended.done():
            self._client.tell(Kind.SIGNAL, {"instance": self.instance, "signal": number})

    def forget(self) -> None:
        """Before its end: the keeper kills it."""
        if not self._forgotten:
            self._forgotten = True
            self._client.tell(Kind.FORGET, {"instance": self.instance})
            self._client.forgotten(self)
            os.close(self.link)
            os.close(self.output)
            if self.outbound >= 0:
                os.close(self.outbound)

    def end(self, status: ExitStatus) -> None:
        """The client's word that it has been reaped."""
        if not self._ended.done():
            self._ended.set_result(status)

    def abandon(self, lost: KeeperLost) -> None:
        """The client's word that nobody will ever know."""
        if not self._ended.done():
            self._ended.set_exception(lost)
            self._ended.exception()  # nobody need be waiting
