"""The border between `edge.server` and the dialects.

Two ways in. Hot routes (inference) get an `Exchange`: callbacks, no task, no future; what arrives goes straight to the
InferencePort and back. Every other route gets a `Call` and returns a `Reply`. Neither side sees a transport or an ASGI type.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import msgspec

from fornada.core.errors import FornadaError
from fornada.core.keys import Role
from fornada.core.names import AccountId, Reference
from fornada.core.requests import Speaker, Ticket
from fornada.edge.headers import Facts
from fornada.edge.observer import Meter
from fornada.edge.problems import Header, Style

JSON_TYPE = b"content-type: application/json\r\n"
"""Exactly so, without a charset: workerd compares the value with ===."""
DEFAULT_BODY = 10 * 1024 * 1024
"""Bytes of a body where no model says otherwise."""


class Exchange(Protocol):
    """One request of a hot route and its answer. Exactly one of `reply`, `fail` and `begin` … (`end` | `break_off`)."""

    facts: Facts
    target: "Target"
    request_id: str
    trace_id: str
    meter: Meter | None
    """Set by the dialect once the model is known: who counts the outcome."""
    size: int
    """Bytes of the body."""
    more: bytes
    """Header lines for a refusal, beyond its own."""

    def body(self) -> bytes:
        """The whole body. Either this or `pieces` is to be called, once."""

    def pieces(self) -> Sequence[bytes]:
        """The whole body as it came: one piece, or several large ones."""

    def hold(self, ticket: Ticket) -> None:
        """Keeps what `submit` returned: it is told when the caller leaves, and what has left of a stream."""

    def reply(self, status: int, lines: bytes, parts: tuple[bytes | memoryview, ...], run_s: float) -> None:
        """The whole answer. `lines`: header lines beyond those that every answer has, each ended by CRLF."""

    def fail(self, error: FornadaError, *, from_model: bool = False) -> None:
        """A refusal in the dialect's style."""

    def give_up(self, error: FornadaError) -> None:
        """A refusal although the work goes on: it is cancelled."""

    def took(self, count: int) -> None:
        """`count` bytes of items were taken in and not written."""

    def begin(self, lines: bytes) -> None:
        """A streamed answer. Nothing is sent before the first `write`, so that a failure can still be told by a status."""

    def write(self, data: bytes, count: int) -> None:
        """A piece of the answer, sent at once. `count` bytes are given back to the ticket when it has left."""

    def end(self, run_s: float) -> None:
        """The streamed answer is complete."""

    def break_off(self, data: bytes, error: FornadaError) -> None:
        """The streamed answer failed: `data` is its last piece, and the connection closes so that nobody takes it for whole.
        Work that goes on is cancelled."""


class Asked(Protocol):
    """What is known of every request."""

    @property
    def facts(self) -> Facts: ...

    @property
    def target(self) -> "Target": ...

    @property
    def request_id(self) -> str: ...

    @property
    def trace_id(self) -> str: ...


class Talk(Asked, Protocol):
    """A request whose caller wishes for a WebSocket: either `fail`, or `say` as often as it takes and `end`."""

    meter: Meter | None

    def keep(self, ticket: Speaker) -> None:
        """Keeps what `submit` returned."""

    def open(self) -> None:
        """There is somebody to talk with: from here on a refusal has no status any more."""

    def listens(self, taken: int) -> None:
        """The model hears what the caller says, and has taken so many bytes more of it."""

    def say(self, data: bytes, *, text: bool) -> None:
        """One message."""

    def end(self, run_s: float) -> None:
        """The last one was said."""

    def fail(self, error: FornadaError, *, from_model: bool = False) -> None:
        """A refusal: in the dialect's style, or as the last message."""


class TalkDoor(Protocol):
    """A route that takes WebSockets."""

    def match(self, path: bytes, query: bytes) -> "Target | None":
        """As a Door's."""

    def open(self, talk: Talk) -> None:
        """Begins, or refuses. Never raises a FornadaError."""


class Door(Protocol):
    """A hot route."""

    def match(self, path: bytes, query: bytes) -> "Target | None":
        """The target that a raw path names, None where it is not this door's. Pure: results are kept and used again."""

    def limit(self, target: "Target") -> int:
        """Bytes that a body may have."""

    def handle(self, exchange: Exchange) -> None:
        """Answers, now or later. Never raises a FornadaError: it tells the exchange."""


class Target(msgspec.Struct, frozen=True, gc=False):
    """What a raw request target means."""

    door: Any
    """The Door (typed Any: a msgspec type can't name a Protocol)."""
    style: Style
    account: AccountId | None = None
    """None: the caller's own, or `local`."""
    name: str = ""
    """The model as the path spells it, decoded; empty where the body names it."""
    reference: Reference | None = None
    query: dict[str, str] = {}
    shown_query: str = ""
    """JSON of the query as model code sees it; empty where there is none."""
    error: FornadaError | None = None
    """What the path or the query can't be."""
    queued: bool = False
    """The query asks for a job."""
    rejects_busy: bool = False
    """The query asks for a refusal rather than a wait."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request of any other route."""

    method: str
    path: str
    """Raw: percent-encoded, without the query."""
    parameters: Mapping[str, str]
    """What the route's pattern took from the path, decoded."""
    query: Mapping[str, str]
    facts: Facts
    body: bytes
    request_id: str
    trace_id: str
    raw_query: bytes = b""
    """As it came, where a parameter may come more than once."""

    @property
    def account(self) -> AccountId:
        """The account whose view this is: the path's where it names one. Raises Forbidden."""
        named = self.parameters.get("account")
        return self.facts.caller.acting_for(AccountId(named) if named else None)

    @property
    def sees(self) -> AccountId | None:
        """Whose view of the models this is where the path names no account; None: everybody's."""
        return self.facts.caller.sees


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer of a Call. `stream` takes the place of `body`; its iterator is closed when the caller leaves."""

    body: bytes = b""
    type: str = "application/json"
    status: int = 200
    headers: tuple[Header, ...] = ()
    stream: AsyncIterator[bytes] | None = None


Handler = Callable[[Call], Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter or request header, for the API's description."""

    name: str
    description: str
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"})
    place: str = "query"
    required: bool = False


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one route: who handles it, and how the API describes it."""

    id: str
    summary: str
    answer: Mapping[str, Any]
    """JSON Schema of a success's body."""
    handler: Handler | None = None
    """None: a hot route, described here and served by its Door."""
    needs: Role = Role.ADMIN
    """What a key must be for it; with NOBODY no key is needed. Hot routes need a USER."""
    parameters: tuple[Parameter, ...] = ()
    takes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Media type → JSON Schema of the request's body."""
    answer_type: str = "application/json"
    more_answers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Further media types of a success → JSON Schema."""
    errors: tuple[type[FornadaError], ...] = ()
    body_limit: int = 1024 * 1024

    @property
    def query_names(self) -> tuple[str, ...]:
        """Parameters of its query: none of them is a list, and so each may come once."""
        return tuple(parameter.name for parameter in self.parameters if parameter.place == "query")

    def named(self, id: str) -> "Operation":
        """The same under another id: for a second path."""
        return replace(self, id=id)


@dataclass(frozen=True, slots=True)
class Route:
    """A path and its methods. `pattern`: `{name}` takes one raw segment, `{name:path}` any number of them."""

    pattern: str
    style: Style
    operations: Mapping[str, Operation]


def json_reply(value: object, *, status: int = 200, headers: tuple[Header, ...] = ()) -> Reply:
    """A value as JSON."""
    return Reply(body=msgspec.json.encode(value), status=status, headers=headers)
