"""An inference request as the node sees it, and what it tells back.

The edge parses bytes into an InferenceRequest and hands it to the InferencePort with a Sink. Calls into the sink come on
the event loop, in the order of the protocol: either `answer` or `refuse` once, or `stream_begins`, any number of `item`s
and one `stream_ends`. After that, or after `Ticket.leave`, nothing more comes. Callbacks and not coroutines: a task a
request would cost more than the request (docs/decisions).
"""

import enum
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from fornada.core.errors import FornadaError
from fornada.core.keys import NO_KEY, KeyId
from fornada.core.names import AccountId, Instant, ModelName, VersionDigest
from fornada.core.tensors import TensorsHead


class Priority(enum.IntEnum):
    """Order among the requests of one account to one model, the least first; jobs of the batch API run in what all accounts leave."""

    HIGH = 0
    NORMAL = 1
    LOW = 2
    JOB = 3


class InferenceRequest(msgspec.Struct, frozen=True, gc=False):
    """One request for one model."""

    request_id: str
    """The caller's x-request-id, or ours."""
    trace_id: str
    """Our uuid (cf-ai-req-id)."""
    account: AccountId
    model: ModelName
    """The model's own name; aliases are already resolved."""
    version: VersionDigest | None
    """A version that the caller insists on; None takes what the labels say."""
    deadline: Instant | None
    """When the caller is answered at the latest; None: the model's `timeout_s` from now."""
    head: bytes
    """The INVOKE head, ready for the wire: request_id, trace_id, account, type, parts, headers, query, stream (see InvokeHead)."""
    body: Sequence[bytes | bytearray | memoryview]
    """The body's buffers in order; `head.parts` says what they hold."""
    stream: bool = False
    reject_if_busy: bool = False
    affinity: str | None = None
    priority: Priority = Priority.NORMAL
    key: KeyId = NO_KEY
    """The key that it came with."""


class InvokeHead(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a runner is told beside the body. Encoded as JSON on the wire."""

    request_id: str
    trace_id: str
    account: str
    type: str = "application/json"
    """Media type of the first part (or of the whole body)."""
    parts: list[tuple[str, int]] = []
    """Empty: the body is one piece of `type`. Else (name, bytes) of each piece in order: the piece named "" is the JSON object,
    each other one is a binary field of that name at the top level of the object."""
    headers: dict[str, str] = {}
    query: dict[str, str] = {}
    stream: bool = False
    tensors: TensorsHead | None = None
    """The body holds these, one behind the other."""
    messages: bool = False
    """Its caller goes on speaking: a conversation over a WebSocket."""


class AnswerHead(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a runner says beside an answer's body, at a stream's begin or at its end."""

    status: str = "ok"
    """ok | bad_request | raised | out_of_memory | cancelled"""
    message: str = ""
    type: str = "application/json"
    headers: dict[str, str] = {}
    """Response headers that model code asked for (content-* and x-* only)."""
    http_status: int = 200
    """What model code asked for in a Response; 200 to 299, or 400 to 499 for its own refusals."""
    nonfinite: bool = False
    tensors: TensorsHead | None = None
    """Which tensors the body holds, where `type` is tensors.TENSORS_TYPE."""
    usage: dict[str, Any] = {}
    run_s: float = 0.0
    """Seconds that the model's own code took."""


class Sink(Protocol):
    """Who is told what becomes of a request."""

    def answer(self, head: AnswerHead, body: bytes | memoryview) -> None:
        """The whole answer; `head.status` is ok."""

    def refuse(self, error: FornadaError) -> None:
        """No answer: nothing was sent before."""

    def stream_begins(self, head: AnswerHead) -> None:
        """Items follow."""

    def item(self, data: bytes) -> None:
        """One item of a stream: one JSON value where the stream's type is application/json. Give its size back by `Ticket.taken`."""

    def stream_ends(self, error: FornadaError | None, head: AnswerHead | None = None) -> None:
        """The stream is complete, or it broke after its beginning. `head`: the runner's last word, usage and run_s of the whole among it."""


class Listener(Sink, Protocol):
    """The sink of a conversation, whose caller goes on speaking."""

    def listens(self, taken: int) -> None:
        """Model code listens, and has taken so many bytes of what was said since it said so last: the first time none."""


class Ticket(Protocol):
    """The caller's hold on a submitted request."""

    def leave(self) -> None:
        """The caller has gone: cancels the work wherever it is. The sink hears nothing more."""

    def taken(self, count: int) -> None:
        """`count` bytes of the stream have left towards the caller: lets the runner send as many more."""


class Speaker(Ticket, Protocol):
    """The caller's hold on a conversation."""

    def say(self, kind: int, data: bytes) -> None:
        """One message, TEXT or BYTES of the wire. Only once the model listens, within the wire's window."""
