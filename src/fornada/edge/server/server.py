"""The server: listeners, the tick, draining."""

import asyncio
import contextlib
import socket
import time
from collections.abc import Iterable

from fornada.core.ports import CatalogPort, Clock, InferencePort, OperationsPort
from fornada.core.settings import AuthSettings, ServerSettings
from fornada.edge.auth import OpenMode
from fornada.edge.calls import Door, Route
from fornada.edge.dialects import admin, openai, workers_ai
from fornada.edge.observer import Observer, Told, Unobserved
from fornada.edge.server.app import Routes, application
from fornada.edge.server.connection import Connection
from fornada.edge.server.shared import Shared
from fornada.edge.targets import Targets
from fornada.edge.validation import Contracts
from fornada.telemetry import Telemetry

TICK_S = 0.25
DRAIN_LOOK_S = 0.02
BACKLOG = 1024
BODY_BYTES = 1024**3
"""Bytes of bodies held at the same time where nobody says otherwise."""


class Server:
    """HTTP for a node. `start` once, `stop` once."""

    def __init__(
        self,
        *,
        inference: InferencePort,
        catalog: CatalogPort,
        operations: OperationsPort,
        settings: ServerSettings,
        body_bytes: int = BODY_BYTES,
        auth: AuthSettings | None = None,
        telemetry: Telemetry | None = None,
        clock: Clock,
    ) -> None:
        """`body_bytes` bounds the bodies of all requests together ([server] max_buffered)."""
        self._operations = operations
        self._settings = settings
        self._body_bytes = body_bytes
        self._observer: Observer = Told(telemetry) if telemetry is not None else Unobserved()
        self._clock = clock
        self._authenticator = OpenMode(auth.cors if auth is not None else ())
        contracts = Contracts(observer=self._observer, catalog=catalog)
        self._doors: tuple[Door, ...] = (
            workers_ai.RunDoor(inference=inference, catalog=catalog, contracts=contracts, clock=self._clock),
            *[door(inference=inference, catalog=catalog, contracts=contracts, clock=self._clock) for door in openai.DOORS],
        )
        routes: list[Route] = [*workers_ai.routes(catalog=catalog, contracts=contracts), *openai.routes(catalog=catalog)]
        self._routes: tuple[Route, ...] = (
            *routes,
            *admin.routes(
                catalog=catalog,
                operations=operations,
                settings=settings,
                observer=self._observer,
                clock=self._clock,
                draining=lambda: self._shared is not None and self._shared.draining,
                others=routes,
            ),
        )
        self._shared: Shared | None = None
        self._listeners: list[asyncio.Server] = []
        self._ticking: asyncio.Task[None] | None = None

    async def start(self, sockets: Iterable[socket.socket], loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Serves on listening sockets. Requests are refused until the node's health says that it accepts."""
        loop = loop or asyncio.get_running_loop()
        table = Routes(self._routes)
        shared = Shared(
            settings=self._settings,
            body_bytes=self._body_bytes,
            targets=Targets(self._doors),
            authenticator=self._authenticator,
            operations=self._operations,
            observer=self._observer,
            clock=self._clock,
            cold=table,
            app=application(self._routes),
            loop=loop,
        )
        self._shared = shared
        self._ticking = loop.create_task(_tick(shared))
        self._ticking.add_done_callback(self._ticked)
        for sock in sockets:
            sock.setblocking(False)
            self._listeners.append(await loop.create_server(lambda: Connection(shared), sock=sock, backlog=BACKLOG))

    def _ticked(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._observer.failed(where="tick", request_id="", error=error)

    def drain(self) -> None:
        """From now on new requests are refused and idle connections end; what runs goes on."""
        if self._shared is not None and not self._shared.draining:
            self._shared.draining = True
            self._shared.open = False
            for connection in tuple(self._shared.connections):
                connection.stop_taking()

    async def stop(self, grace_s: float) -> None:
        """Drains, waits for what runs at most `grace_s` seconds, then closes everything."""
        shared = self._shared
        if shared is None:
            return
        self.drain()
        give_up = time.monotonic() + grace_s
        while time.monotonic() < give_up and any(connection.busy for connection in shared.connections):
            await asyncio.sleep(DRAIN_LOOK_S)
        for listener in self._listeners:
            listener.close()
        tasks = tuple(shared.tasks)
        for connection in tuple(shared.connections):
            connection.abort()
        for task in tasks:
            task.cancel()
        if self._ticking is not None:
            self._ticking.cancel()
            tasks = (*tasks, self._ticking)
        await asyncio.gather(*tasks, return_exceptions=True)
        for listener in self._listeners:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(listener.wait_closed(), 1.0)
        self._shared = None


async def _tick(shared: Shared) -> None:
    while True:
        shared.tick()
        for connection in tuple(shared.connections):
            connection.look_at_the_clock()
        await asyncio.sleep(TICK_S)
