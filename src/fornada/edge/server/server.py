"""The server: listeners, the tick, draining."""

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from fornada.core.errors import FornadaError
from fornada.core.files import FilesPort
from fornada.core.finetunes import FinetunesPort
from fornada.core.jobs import JobsPort
from fornada.core.ports import CatalogPort, Clock, InferencePort, OperationsPort
from fornada.core.ports_gateway import GatewaysPort
from fornada.core.ports_tensors import NoSignatures, SignaturesPort
from fornada.core.responses import ResponseStore
from fornada.core.settings import AuthSettings, ServerSettings
from fornada.core.usage import Uncounted, UsagePort
from fornada.edge.calls import Door, Route
from fornada.edge.dialects import admin, anthropic, binding, oip, openai, tfserving, workers_ai
from fornada.edge.dialects.gateway import GatewayDoor
from fornada.edge.dialects.gateway import routes as gateway_routes
from fornada.edge.dialects.oip.models import ModelsView
from fornada.edge.finetuned import Tuner
from fornada.edge.gateway.passage import Passages, Timer
from fornada.edge.gateway.steps import Ways
from fornada.edge.ids import Ids
from fornada.edge.invoke import Invoker
from fornada.edge.job_items import JobItems
from fornada.edge.keyring import Keyring
from fornada.edge.limits import Limits
from fornada.edge.observer import Observer, Told, Unobserved
from fornada.edge.server.app import Routes, application
from fornada.edge.server.bodies import Hold
from fornada.edge.server.certificates import Certificates
from fornada.edge.server.connection import Connection
from fornada.edge.server.conversation import Conversation
from fornada.edge.server.handshakes import Handshakes, SecureListener
from fornada.edge.server.shared import Shared, Through
from fornada.edge.targets import Targets
from fornada.edge.tensor_calls import TensorCalls
from fornada.edge.tensor_signatures import Signatures
from fornada.edge.validation import Contracts
from fornada.edge.version_numbers import Numbered, status_by
from fornada.telemetry import Telemetry

if TYPE_CHECKING:
    from fornada.edge.dialects.oip.rpc.service import Service

TICK_S = 0.25
CERTIFICATES_S = 2.0
"""Between two looks whether the files have been replaced."""
DRAIN_LOOK_S = 0.02
LEAVE_LOOK_S = 0.005
CLOSE_S = 5.0
"""What a caller has to say that it has seen the end of a connection with TLS."""
FIRST_S = 2.0
"""What a new connection with TLS has to send its first request, when another control plane has taken over: nobody else could read it."""
FOLLOWED_S = 1.0
"""What an answer of an operator's route that comes in pieces has to end, when another control plane has taken over."""
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
        jobs: JobsPort,
        files: FilesPort,
        finetunes: FinetunesPort,
        responses: ResponseStore,
        usage: UsagePort | None = None,
        settings: ServerSettings,
        body_bytes: int = BODY_BYTES,
        keyring: Keyring | None = None,
        auth: AuthSettings | None = None,
        telemetry: Telemetry | None = None,
        clock: Clock,
        certificates: Certificates | None = None,
        signatures: SignaturesPort | None = None,
        gateways: GatewaysPort | None = None,
        log_body_bytes: int = 64 * 1024,
    ) -> None:
        """`body_bytes` bounds the bodies of all requests together ([server] max_buffered). Without `certificates` it speaks plain HTTP.
        `log_body_bytes` bounds each body in a gateway's log."""
        self._certificates = certificates
        self._operations = operations
        self._settings = settings
        self._body_bytes = body_bytes
        self._observer: Observer = Told(telemetry) if telemetry is not None else Unobserved()
        self._clock = clock
        self._keyring = keyring if keyring is not None else Keyring()
        auth = auth if auth is not None else AuthSettings()
        usage = usage if usage is not None else Uncounted()
        limits = Limits(usage=usage, account_rpm=auth.account_rpm, account_neurons=auth.account_neurons, now=clock.now)
        contracts = Contracts(observer=self._observer, catalog=catalog)
        invoker = Invoker(inference=inference, catalog=catalog, contracts=contracts, clock=clock, limits=limits)
        tuner = Tuner(finetunes)
        responding = openai.ResponsesDoor(invoker, responses)
        run = workers_ai.RunDoor(invoker, jobs=jobs, tuner=tuner, responses=responding)
        bound = binding.BindingDoor(run)
        self._talk_doors = [workers_ai.RealtimeDoor(invoker, paths) for paths in (run, bound)]
        calls = TensorCalls(invoker, signatures if signatures is not None else NoSignatures())
        said = Signatures(operations=operations, calls=calls, clock=clock)
        models = ModelsView(catalog=catalog, operations=operations, signatures=said, clock=clock)
        self._tensors = calls, models
        numbered = Numbered(catalog)
        self._doors: tuple[Door, ...] = (
            run,
            *(door(invoker, tuner) for door in openai.TEXT_DOORS),
            *(door(invoker) for door in (*openai.DOORS, *anthropic.DOORS)),
            bound,
            responding,
            oip.InferDoor(invoker, calls),
            tfserving.ServingDoor(invoker, calls, numbered),
        )
        gateway: list[Route] = []
        self._through: Through | None = None
        if gateways is not None:
            passages = Passages(
                gateways=gateways, catalog=catalog, clock=clock, observer=self._observer, later=_later, most_log_body=log_body_bytes
            )
            ways = Ways(self._doors)
            door = GatewayDoor(passages=passages, ways=ways)
            bound.stand_behind(passages, ways)
            self._doors = (*self._doors, door)
            self._through = door.through
            gateway = gateway_routes(gateways=gateways, scheme="https" if certificates is not None else "http")
        self.items = JobItems(targets=Targets(self._doors), new_trace=Ids().trace, observer=self._observer)
        """Who answers items of jobs."""
        converter = workers_ai.Converter(run, observer=self._observer, new_id=Ids().trace)
        of_workers_ai = workers_ai.routes(catalog=catalog, contracts=contracts, finetunes=finetunes, converter=converter, wall=clock.wall)
        routes: list[Route] = [
            *of_workers_ai,
            *binding.routes(of_workers_ai, gateway, converter),
            *tfserving.routes(catalog=catalog, operations=operations, signatures=said, numbered=numbered),
            *openai.routes(catalog=catalog, files=files, jobs=jobs, responses=responses, clock=self._clock, status=status_by(operations)),
            *oip.routes(models),
            *anthropic.routes(),
            *gateway,
        ]
        self._routes: tuple[Route, ...] = (
            *routes,
            *admin.routes(
                catalog=catalog,
                operations=operations,
                jobs=jobs,
                settings=settings,
                observer=self._observer,
                clock=self._clock,
                draining=lambda: self._shared is not None and self._shared.draining,
                usage=usage,
                others=routes,
            ),
        )
        self._shared: Shared | None = None
        self._handshakes: Handshakes | None = None
        self._listeners: list[asyncio.Server | SecureListener] = []
        self._ticking: asyncio.Task[None] | None = None

    async def start(self, sockets: Iterable[socket.socket], loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Serves on listening sockets. Requests are refused until the node's health says that it accepts."""
        loop = loop or asyncio.get_running_loop()
        table = Routes(self._routes)
        shared = Shared(
            settings=self._settings,
            body_bytes=self._body_bytes,
            targets=Targets(self._doors),
            through=self._through,
            talks=Targets(self._talk_doors),
            keyring=self._keyring,
            operations=self._operations,
            observer=self._observer,
            clock=self._clock,
            cold=table,
            app=application(self._routes),
            loop=loop,
        )
        self._shared = shared
        if self._certificates is not None:
            self._handshakes = Handshakes(
                shared,
                self._certificates.context,
                connection=lambda: Connection(shared),
                timeout_s=self._settings.header_timeout_s,
                close_s=CLOSE_S,
            )
        self._ticking = loop.create_task(_tick(shared, self._certificates))
        self._ticking.add_done_callback(self._ticked)
        await self._accept(sockets, shared)

    async def _accept(self, sockets: Iterable[socket.socket], shared: Shared) -> None:
        for sock in sockets:
            sock.setblocking(False)
            if self._handshakes is not None:
                sock.listen(BACKLOG)
                self._listeners.append(self._handshakes.listen(sock))
            else:
                self._listeners.append(await shared.loop.create_server(lambda: Connection(shared), sock=sock, backlog=BACKLOG))

    def _ticked(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._observer.failed(where="tick", request_id="", error=error)

    def drain(self) -> None:
        """From now on new requests are refused and idle connections end; what runs goes on."""
        if self._shared is not None and not self._shared.draining:
            self._shared.draining = self._shared.ending = True
            self._shared.open = self._shared.lasting = False
            for connection in tuple(self._shared.connections):
                connection.stop_taking()

    def rpc_service(self) -> "Service":
        """The Open Inference Protocol over gRPC, for whoever has a port for it. Imports grpcio."""
        from fornada.edge.dialects.oip.rpc.service import Service

        calls, models = self._tensors
        return Service(calls=calls, models=models, authenticator=self._keyring, observer=self._observer, hold=self._hold, look=self._look)

    def _look(self) -> None:
        """At the keys, where somebody has changed them. Raises InternalFault where they can't be read."""
        shared = self._shared
        if shared is not None and shared.mark[0] != shared.seen:
            shared.look_at_keys()

    def _hold(self, size: int) -> Hold:
        """Room for a body of so many bytes among all that are held. Raises Busy."""
        assert self._shared is not None, "only once it serves"
        hold = self._shared.bodies.hold()
        if (busy := hold.grow(size, most=size)) is not None:
            raise busy
        return hold

    @property
    def routes(self) -> Sequence[Route]:
        """All of them, the hot ones as descriptions."""
        return self._routes

    # ---- another control plane takes this one's place

    @property
    def changes(self) -> bool:
        """Whether an operator's request is under way that changes what the node is to be."""
        return self._shared is not None and any(connection.changes for connection in self._shared.connections)

    @property
    def open_connections(self) -> int:
        return len(self._shared.connections) if self._shared is not None else 0

    @property
    def held_bytes(self) -> int:
        """Of bodies, all connections together ([server] max_buffered)."""
        return self._shared.bodies.held if self._shared is not None else 0

    def withdraw(self) -> None:
        """Accepts nothing more; connections rest as soon as their requests are answered. `come_back` or `leave` follows. Those with TLS
        end then: what they are enciphered with is here, and nowhere else."""
        if self._shared is None:
            return
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        self._shared.departing = True
        self._shared.ending = self._handshakes is not None
        self._shared.lasting = self._shared.open and not self._shared.ending
        for connection in tuple(self._shared.connections):
            if self._shared.ending:
                connection.stop_taking()
            else:
                connection.hold()

    async def come_back(self, sockets: Iterable[socket.socket]) -> None:
        """After `withdraw`: there is no successor, and these are the listening sockets again."""
        shared = self._shared
        if shared is None:
            return
        shared.departing = shared.ending = False
        shared.tick()
        for connection in tuple(shared.connections):
            connection.go_on()
        await self._accept(sockets, shared)

    async def leave(self, give: Callable[[int], None], *, within_s: float) -> None:
        """After `withdraw`: gives each connection away once it rests, until there are none or the time is over; one with TLS is closed
        instead. `give` takes a descriptor, which is its own from there on. Who follows logs or events is cut off: nothing new would
        come here."""
        shared = self._shared
        if shared is None:
            return
        begun = time.monotonic()
        for connection in tuple(shared.connections):
            connection.depart()
        while (shared.connections or self._handshakes) and time.monotonic() < begun + within_s:
            passed = time.monotonic() - begun
            for connection in tuple(shared.connections):
                if connection.follows and passed >= FOLLOWED_S:
                    connection.abort()
                elif shared.ending:
                    connection.stop_taking(new=passed >= FIRST_S)
                elif connection.rests:
                    self._give(connection, give)
                else:
                    connection.hold()
            await asyncio.sleep(LEAVE_LOOK_S)

    def _give(self, connection: Connection | Conversation, give: Callable[[int], None]) -> None:
        try:
            descriptor = connection.detach()
        except OSError as error:  # no descriptor is left
            self._observer.failed(where="hand over", request_id="", error=error)
            connection.abort()
        else:
            give(descriptor)

    async def adopt(self, descriptor: int) -> None:
        """Serves a connection that another control plane gave away."""
        shared, sock = self._shared, socket.socket(fileno=descriptor)
        if shared is None:
            sock.close()
            return
        sock.setblocking(False)
        await shared.loop.connect_accepted_socket(lambda: Connection(shared, fresh=False), sock)

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
        if self._handshakes is not None:
            self._handshakes.end()
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


def _later(delay_s: float, callback: Callable[[], None]) -> Timer:
    return asyncio.get_running_loop().call_later(delay_s, callback)


async def _tick(shared: Shared, certificates: Certificates | None) -> None:
    looked_at = 0.0
    while True:
        shared.tick()
        if certificates is not None and time.monotonic() >= looked_at + CERTIFICATES_S:
            looked_at = time.monotonic()
            certificates.look()
        try:
            shared.look_at_keys()
        except FornadaError as error:  # the store; requests fail as long as a change is known of
            shared.observer.failed(where="keys", request_id="", error=error)
        for connection in tuple(shared.connections):
            connection.look_at_the_clock()
        await asyncio.sleep(TICK_S)
