"""A catalogue, a node and an operator's desk in memory, and an edge that serves them on a real loopback socket."""

import asyncio
import socket
import tempfile
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from fornada.app.wiring import SystemClock
from fornada.control.gateways import Gateways
from fornada.control.nearest import nearest
from fornada.core.errors import BadRequest, FornadaError, InvalidSpec, ModelNotAllowed, UnknownModel
from fornada.core.names import AccountId, Instant, ModelName, Reference, VersionDigest
from fornada.core.ports import Entry, Health, LogLine, ModelView, Pruned, Resolved, Version
from fornada.core.requests import AnswerHead, InferenceRequest, InvokeHead, Sink
from fornada.core.settings import AuthSettings, GatewaysSettings, ServerSettings
from fornada.core.specs import ModelSpec, spec_from_table
from fornada.core.usage import UsagePort
from fornada.edge.keyring import Keyring
from fornada.edge.server import Server
from fornada.edge.server.certificates import Certificates
from fornada.store.sqlite import SqliteStore
from fornada.telemetry import Telemetry
from tests.bounds import bound
from tests.unit.edge.fake_files import FakeFiles
from tests.unit.edge.fake_finetunes import FakeFinetunes
from tests.unit.edge.fake_jobs import FakeJobs
from tests.unit.edge.fake_responses import FakeResponses

LOCAL = AccountId("local")


def version_of(spec: ModelSpec, digest: str = "a" * 64, folder: str = "/nowhere") -> Version:
    return Version(
        model=ModelName(spec.name), digest=VersionDigest(digest), account=LOCAL, spec=spec, folder=folder, lock="", created=1700000000.0
    )


class FakeCatalog:
    """Models by name. `add` registers one from the tables of a model.toml."""

    def __init__(self) -> None:
        self.models: dict[str, Entry] = {}
        self.bundles: list[tuple[bytes, str | None, str]] = []

    def add(self, name: str, *, folder: str = "/nowhere", account: str = LOCAL, **tables: Any) -> Entry:
        version = version_of(spec_from_table({"name": name, **tables}), digest=f"{len(self.models) + 1:064x}", folder=folder)
        entry = Entry(name=version.model, account=AccountId(account), stable=version, versions=(version.digest,))
        self.models[name] = entry
        return entry

    def resolve(self, reference: Reference, account: AccountId | None) -> Resolved:
        for name, entry in self.models.items():
            if reference.name == name or reference.name in entry.stable.spec.aliases:
                digest = entry.stable.digest
                if account not in (None, entry.account) and self.visibility(entry) != "node":
                    raise ModelNotAllowed("The account is not allowed to access this model")
                if reference.label == "canary" or (reference.version and not digest.startswith(reference.version)):
                    break
                return Resolved(entry, entry.stable.spec, digest if reference.version else None)
        raise UnknownModel(f"nothing is called {reference.name}", nearest=nearest(reference.name, self.models))

    def visibility(self, entry: Entry) -> str:
        return entry.stable.spec.visibility or "node"

    def entry(self, name: ModelName) -> Entry | None:
        return self.models.get(name)

    def version(self, name: ModelName, digest: VersionDigest) -> Version:
        return self.models[name].stable

    def reload(self, name: ModelName) -> None:
        pass

    def entries(self, account: AccountId | None) -> Sequence[Entry]:
        return [self.models[name] for name in sorted(self.models)]

    async def deploy(self, bundle: bytes, *, name: str | None, account: AccountId, label: str) -> Version:
        if bundle == b"bad":
            raise InvalidSpec("model.toml has no name")
        if name in self.models and self.models[name].account != account:
            raise ModelNotAllowed(f"'{name}' belongs to another account")
        self.bundles.append((bundle, name, label))
        return self.add(name or "@local/unnamed").stable

    async def prune(self) -> Pruned:
        return Pruned(removed={}, freed_bytes=0)

    async def remove(self, reference: Reference, *, account: AccountId | None) -> None:
        found = self.models.get(reference.name)
        if found is not None and account not in (None, found.account):
            raise ModelNotAllowed(f"'{reference.name}' belongs to another account")
        if self.models.pop(reference.name, None) is None:
            raise UnknownModel("nothing of that name", nearest=nearest(reference.name, self.models))


@dataclass
class Submitted:
    """A request that reached the node, its sink, and what the caller did."""

    request: InferenceRequest
    sink: Sink
    left: bool = False
    taken: int = 0
    said: list[tuple[int, bytes]] = field(default_factory=list)
    """By the caller of a conversation."""

    @property
    def head(self) -> InvokeHead:
        return msgspec.json.decode(self.request.head, type=InvokeHead)

    @property
    def body(self) -> bytes:
        return b"".join(bytes(piece) for piece in self.request.body)

    @property
    def pieces(self) -> dict[str, bytes]:
        """The body by the names of its parts; "" is the JSON object, or the whole of a body without parts."""
        if not self.head.parts:
            return {"": self.body}
        found, at = {}, 0
        for name, size in self.head.parts:
            found[name] = self.body[at : at + size]
            at += size
        return found


@dataclass
class _Ticket:
    submitted: Submitted

    def leave(self) -> None:
        self.submitted.left = True

    def taken(self, count: int) -> None:
        self.submitted.taken += count

    def say(self, kind: int, data: bytes) -> None:
        self.submitted.said.append((kind, data))


class Quiet:
    """An EventLog that nobody reads."""

    def info(self, event: str, /, **fields: Any) -> None: ...

    def warning(self, event: str, /, **fields: Any) -> None: ...


Behaviour = Callable[[Submitted], None]


def echo(submitted: Submitted) -> None:
    """Answers {"echo": the JSON part} with the sizes of the other parts."""
    pieces = submitted.pieces
    files = {name: len(data) for name, data in pieces.items() if name}
    body = pieces[""]
    submitted.sink.answer(AnswerHead(), b'{"echo":%b,"files":%b}' % (body, msgspec.json.encode(files)))


def stay_silent(submitted: Submitted) -> None:
    """Keeps the caller waiting."""


def refuse(error: FornadaError) -> Behaviour:
    return lambda submitted: submitted.sink.refuse(error)


def answer(body: bytes, **head: Any) -> Behaviour:
    return lambda submitted: submitted.sink.answer(AnswerHead(**head), body)


def items(*data: bytes, error: FornadaError | None = None, end: AnswerHead | None = None, **head: Any) -> Behaviour:
    """A whole stream at once. `end`: what the runner says last."""

    def play(submitted: Submitted) -> None:
        submitted.sink.stream_begins(AnswerHead(**head))
        for item in data:
            submitted.sink.item(item)
        submitted.sink.stream_ends(error, end)

    return play


class FakeInference:
    """A node that does what `behaviour` says with each request."""

    def __init__(self) -> None:
        self.requests: list[Submitted] = []
        self.behaviour: Behaviour = echo

    def submit(self, request: InferenceRequest, sink: Sink) -> _Ticket:
        submitted = Submitted(request, sink)
        self.requests.append(submitted)
        self.behaviour(submitted)
        return _Ticket(submitted)

    @property
    def last(self) -> Submitted:
        return self.requests[-1]


@dataclass
class FakeOperations:
    """Remembers what it was asked to do."""

    healthy: Health = field(default_factory=lambda: Health(accepting=True, draining=False, loop_age_s=0.0))
    done: list[tuple[Any, ...]] = field(default_factory=list)
    log: list[LogLine] = field(default_factory=list)
    happens: list[Mapping[str, Any]] = field(default_factory=list)
    goes_on: bool = False
    """Whether logs and events go on after what is there."""
    floods: bool = False
    """Whether events come as fast as they are taken."""
    flooded: int = 0

    def view(self, name: ModelName) -> ModelView:
        return ModelView(
            name=name,
            aliases=[],
            task="custom",
            engine="python",
            version="a" * 64,
            state="stopped",
            why="nothing has asked for it yet",
            declared_bytes=0,
            peak_bytes=0,
            last_used=None,
            versions=[],
            instances=[],
        )

    def views(self, account: AccountId | None) -> Sequence[ModelView]:
        return [self.view(ModelName("@test/a"))]

    async def load(self, name: ModelName, *, deadline: Instant) -> ModelView:
        self.done.append(("load", name, round(deadline - time.monotonic())))
        if name == "@test/slow":
            try:
                await asyncio.sleep(bound(60))
            finally:
                self.done.append(("load", "ended"))
        return self.view(name)

    async def unload(self, name: ModelName, *, grace_s: float | None) -> ModelView:
        self.done.append(("unload", name, grace_s))
        return self.view(name)

    async def sleep(self, name: ModelName) -> ModelView:
        self.done.append(("sleep", name))
        return self.view(name)

    async def pin(self, name: ModelName, *, pinned: bool) -> ModelView:
        self.done.append(("pin", name, pinned))
        return self.view(name)

    async def reset(self, name: ModelName) -> ModelView:
        self.done.append(("reset", name))
        if name == "@test/broken":
            raise ZeroDivisionError("a bug, quoting the request: sesame")
        return self.view(name)

    def why(self, name: ModelName, account: AccountId | None) -> Mapping[str, Any]:
        return {"model": name, "state": "stopped", "summary": "nothing has asked for it yet"}

    async def logs(self, name: ModelName, *, follow: bool, last: int) -> AsyncIterator[LogLine]:
        for line in self.log[-last:]:
            yield line
        if follow and self.goes_on:
            await asyncio.sleep(bound(60))

    def devices(self) -> Sequence[Mapping[str, Any]]:
        return [{"id": "cpu", "total_bytes": 1, "reserved_bytes": 0, "used_bytes": 0, "foreign_bytes": 0, "state": "ok"}]

    def residency(self) -> Mapping[str, Any]:
        return {"instances": [], "waits": [], "evictions": [], "swap": {"window_s": 1.0, "devices": {}}}

    def patch_device(self, device: str, change: Mapping[str, Any]) -> Mapping[str, Any]:
        if device != "cuda:0":
            raise BadRequest(f"no such device: {device}")
        self.done.append(("patch", device, dict(change)))
        return {"id": device, **change}

    def node(self) -> Mapping[str, Any]:
        return {"main_pid": 1, "keeper_pid": 2, "control_pid": 3, "url": "", "account": "local", "isolation": "none", "version": "0"}

    async def events(self) -> AsyncIterator[Mapping[str, Any]]:
        for happening in self.happens:
            yield happening
        while self.floods:
            self.flooded += 1
            yield {"event": "flood", "text": "x" * 1000}
        if self.goes_on:
            self.done.append(("following",))
            try:
                await asyncio.sleep(bound(60))
            finally:
                self.done.append(("followed",))

    def health(self) -> Health:
        return self.healthy


class Edge:
    """A Server on a loopback port, its loop in a thread of its own, so that tests can use blocking sockets."""

    def __init__(
        self,
        *,
        settings: ServerSettings | None = None,
        keyring: Keyring | None = None,
        auth: AuthSettings | None = None,
        usage: UsagePort | None = None,
        telemetry: Telemetry | None = None,
        body_bytes: int = 1024**3,
        certificates: Certificates | None = None,
        gateways: GatewaysSettings | None = None,
    ) -> None:
        """`gateways`: with AI gateways of these settings, over a real store."""
        self.certificates = certificates
        self.catalog = FakeCatalog()
        self.inference = FakeInference()
        self.operations = FakeOperations()
        self.jobs = FakeJobs()
        self.files = FakeFiles()
        self.finetunes = FakeFinetunes()
        self.responses = FakeResponses()
        self.catalog.add("@test/a")
        self._settings = settings or ServerSettings()
        self._keyring = keyring
        self._auth = auth
        self._usage = usage
        self._telemetry = telemetry
        self._body_bytes = body_bytes
        self._with_gateways = gateways
        self.gateways: Gateways | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._loop = self.loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.server: Server
        self.address = ("127.0.0.1", 0)

    def start(self) -> "Edge":
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = self.listener.getsockname()
        self._thread.start()
        if self._with_gateways is not None:
            self.do(self._make_gateways(self._with_gateways))
        self.server = Server(
            inference=self.inference,
            catalog=self.catalog,
            operations=self.operations,
            jobs=self.jobs,
            files=self.files,
            finetunes=self.finetunes,
            responses=self.responses,
            settings=self._settings,
            body_bytes=self._body_bytes,
            keyring=self._keyring,
            auth=self._auth,
            usage=self._usage,
            telemetry=self._telemetry,
            clock=SystemClock(),
            certificates=self.certificates,
            gateways=self.gateways,
        )
        self.do(self.server.start([self.listener.dup()]))
        return self

    async def _make_gateways(self, settings: GatewaysSettings) -> None:
        """On the server's loop: SQLite's objects belong to the thread that made them."""
        self._folder = tempfile.TemporaryDirectory()
        self.store = SqliteStore(Path(self._folder.name) / "store.sqlite")
        self.gateways = Gateways(
            store=self.store,
            clock=SystemClock(),
            log=self._telemetry.log if self._telemetry else Quiet(),
            settings=settings,
            new_id=lambda: uuid.uuid4().hex,
        )

    async def _close_gateways(self) -> None:
        if self.gateways is not None and self._folder is not None:
            self.gateways.close()
            self.store.close()
            self._folder.cleanup()

    def connections(self) -> int:
        """How many are open."""
        return self.server.open_connections

    def held_bytes(self) -> int:
        """Of requests' bodies."""
        return self.server.held_bytes

    def stop(self, grace_s: float = 0.0) -> None:
        self.do(self.server.stop(grace_s))

    def close(self) -> None:
        self.stop()
        self.do(self._close_gateways())
        self.do(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(bound(10))
        self._loop.close()
        self.listener.close()

    def do(self, coroutine: Any) -> Any:
        """Runs a coroutine on the server's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(bound(20))

    def tell(self, action: Callable[..., object], *arguments: object) -> None:
        """Calls something on the server's loop, and waits for it."""

        async def act() -> None:
            action(*arguments)

        self.do(act())


def until(condition: Callable[[], object], *, within_s: float = 5.0, what: str = "it happens") -> None:
    limit = time.monotonic() + bound(within_s)
    while not condition():
        assert time.monotonic() < limit, f"not within {within_s} s: {what}"
        time.sleep(0.005)
