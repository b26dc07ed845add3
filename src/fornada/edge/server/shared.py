"""What all connections of a server share."""

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from fornada.core.errors import FornadaError, Unavailable
from fornada.core.ports import Clock, OperationsPort
from fornada.core.settings import ServerSettings
from fornada.edge.auth import ANYBODY, Caller
from fornada.edge.calls import JSON_TYPE, Target
from fornada.edge.headers import Facts, read_facts
from fornada.edge.ids import Ids
from fornada.edge.keyring import Keyring
from fornada.edge.observer import Observer
from fornada.edge.problems import Style, problem
from fornada.edge.server.bodies import Bodies
from fornada.edge.server.lines import CLOSE, StatusLines, header_lines, id_lines
from fornada.edge.targets import Targets

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from fornada.edge.server.asgi import ColdExchange
    from fornada.edge.server.connection import Connection
    from fornada.edge.server.conversation import Conversation
    from fornada.edge.server.exchange import HotExchange

OPEN_WHILE_DRAINING = ("/health/", "/metrics", "/api/v1/")
"""Paths that are read (GET) also while the node starts or drains: operators look at it just then."""


class ColdRoutes(Protocol):
    """What the bridge asks about routes before the application sees a request."""

    def limit(self, method: str, path: str) -> int:
        """Bytes that a body may have."""

    def style(self, path: str) -> Style:
        """In which style a refusal is told."""

    def admit(self, method: str, path: str, caller: Caller) -> None:
        """Raises Unauthorized, Forbidden, BadRequest."""

    def action(self, method: str, path: str) -> str:
        """What the audit calls it; empty where that doesn't want to know."""


Through = Callable[[Target, str], Target]
"""The same target behind the AI gateway of that name."""


class Shared:
    """Settings, tables and the state of the server, for its connections."""

    def __init__(
        self,
        *,
        settings: ServerSettings,
        body_bytes: int,
        targets: Targets,
        talks: Targets,
        through: "Through | None" = None,
        keyring: Keyring,
        operations: OperationsPort,
        observer: Observer,
        clock: Clock,
        cold: ColdRoutes,
        app: "ASGIApp",
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.settings = settings
        self.bodies = Bodies(body_bytes)
        self.targets = targets
        self._through = through
        self.talks = talks
        """Of WebSockets."""
        self.authenticator = keyring
        self.mark = keyring.mark
        self.seen = keyring.seen
        """`mark[0]` when the keys were looked at last; compared with it for each request, so it is one word."""
        self.observer = observer
        self.clock = clock
        self.cold = cold
        self.app = app
        self.loop = loop
        self.trace = Ids().trace
        self.unnamed = observer.meter("")
        """Counts refusals of requests whose model was never known."""
        self.verbose = observer.verbose
        """Whether successes of hot routes are logged, too."""
        self.lines = StatusLines()
        self.connections: set[Connection | Conversation] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        """Running requests of the cold routes."""
        self.now = time.monotonic()
        """As of the last tick: enough for timeouts of seconds."""
        self.draining = False
        self.ending = False
        """Whether each answer ends its connection."""
        self.lasting = False
        """Whether new requests may come, and connections go on after an answer. One word, like `open`."""
        self.departing = False
        """Another control plane takes this one's place, or may be about to."""
        self.open = False
        """Whether new requests may come. Looked at for each one, so it is one word: the node accepts, and doesn't drain."""
        self._operations = operations
        self.tick()

    def target(self, url: bytes, facts: Facts) -> Target | None:
        """The hot target of a POST, behind the gateway that its headers name."""
        found = self.targets.find(url)
        if facts.through is None or found is None or self._through is None:
            return found
        return self._through(found, facts.through)

    def tick(self) -> None:
        """Looks at the clocks and at the node."""
        self.now = time.monotonic()
        self.lines.turn(self.clock.wall())
        health = self._operations.health()
        self.open = health.accepting and not health.draining and not self.draining
        self.lasting = self.open and not self.ending

    def look_at_keys(self) -> None:
        """Somebody may have changed keys: then nobody counts as known any more. Raises InternalFault where they can't be read."""
        if self.authenticator.look():
            for connection in tuple(self.connections):
                connection.forget()
        self.seen = self.authenticator.seen

    def expelled(self, exchange: "ColdExchange") -> bool:
        """Whether it would be refused now, by the keys of this moment."""
        facts = read_facts(exchange.facts.fields, self.authenticator)
        return (facts.refusal or self.barred(facts.caller, exchange)) is not None

    def barred(self, caller: Caller, exchange: "HotExchange | ColdExchange") -> FornadaError | None:
        """Why the caller may not have this, if so. What depends on more than the path is the route's business."""
        if caller is ANYBODY:
            return None
        try:
            exchange.admit(caller)
        except FornadaError as refusal:
            return refusal
        return None

    def refused(self, refusal: FornadaError, url: bytes) -> bytes:
        """The answer to something that is no whole request; it ends its connection."""
        trace_id = self.trace()
        found = problem(refusal, self.cold.style(url.decode("latin-1")), trace_id)
        self.observer.answered(request_id=trace_id, trace_id=trace_id, method="", route="", status=found.status, error=refusal, seconds=0.0)
        lines = self.lines.of(found.status) + JSON_TYPE + header_lines(found.headers) + CLOSE
        return b"%b%bcontent-length: %d\r\n\r\n%b" % (lines, id_lines(trace_id), len(found.body), found.body)

    def refusal(self, method: bytes, path: bytes) -> FornadaError | None:
        """Why a new request can't be taken now."""
        if not self.draining:
            self.tick()  # while it starts, each request looks again: the first one after the start must not be refused
        if self.open:
            return None
        if method in (b"GET", b"HEAD") and path.decode("latin-1").startswith(OPEN_WHILE_DRAINING):
            return None
        return Unavailable("the node is shutting down" if self.draining else "the node isn't accepting requests", retry_after_s=1)
