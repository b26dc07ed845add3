"""The node's gRPC port, where [server] grpc_port names one. grpcio is imported only then."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fornada.app.config import quiet_grpc
from fornada.core.ports import EventLog
from fornada.core.settings import ServerSettings

if TYPE_CHECKING:
    from fornada.edge.dialects.oip.rpc.server import RpcServer
    from fornada.edge.server import Server


class Rpc:
    """Of one control plane. Without a port it does nothing."""

    def __init__(self, settings: ServerSettings, server: "Server", *, hosts: Sequence[str], log: EventLog) -> None:
        """`hosts`: the addresses that HTTP listens on."""
        self._settings = settings
        self._server = server
        self._hosts = hosts
        self._log = log
        self._made: RpcServer | None = None
        self._leaving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Serves. A port that can't be had is told in the log, and HTTP goes on."""
        if not self._settings.grpc_port:
            return
        quiet_grpc()
        from fornada.edge.dialects.oip.rpc.server import RpcServer

        tls = None
        if self._settings.tls_cert:
            tls = (Path(self._settings.tls_cert), Path(self._settings.tls_key or self._settings.tls_cert))
        addresses = [
            f"[{host}]:{self._settings.grpc_port}" if ":" in host else f"{host}:{self._settings.grpc_port}" for host in self._hosts
        ]
        try:
            most = self._settings.max_connections
            made = RpcServer(self._server.rpc_service(), addresses=addresses, tls=tls, connections=most)
            await made.start()
        except OSError as error:
            self._log.warning("grpc.unusable", addresses=addresses, reason=str(error))
            return
        self._made = made
        self._log.info("grpc.serving", addresses=addresses)

    def leave(self, within_s: float) -> None:
        """Takes nothing new from now on; what runs has so many seconds. `stop` waits for it."""
        if self._made is not None and self._leaving is None:
            self._leaving = asyncio.get_running_loop().create_task(self._made.stop(within_s), name="leave the gRPC port")

    async def stop(self, within_s: float) -> None:
        """After it nothing of it is left."""
        self.leave(within_s)
        if self._leaving is not None:
            await self._leaving
