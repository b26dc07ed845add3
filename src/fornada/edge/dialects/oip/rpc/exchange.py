"""An edge.calls.Exchange without HTTP: one ModelInfer, or one request of a ModelStreamInfer."""

import asyncio
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any

import msgspec

from fornada.core.errors import FornadaError, InternalFault, ModelRaised
from fornada.core.requests import AnswerHead, Ticket
from fornada.core.tensors import TENSORS_TYPE, Tensor, TensorsHead, split
from fornada.edge.calls import Target
from fornada.edge.dialects.oip.body import Asked
from fornada.edge.dialects.oip.rpc.messages import answer_of
from fornada.edge.headers import Facts
from fornada.edge.observer import LEFT, OK, Meter, outcome_of
from fornada.edge.tensor_calls import TensorModel, TensorSink
from fornada_sdk.wire.messages import split_head

_HEADS = msgspec.json.Decoder(TensorsHead)


class RpcExchange:
    """Exactly one of its answers: messages in a queue, None at their end, or a FornadaError."""

    def __init__(self, facts: Facts, target: Target, trace_id: str, size: int) -> None:
        self.facts = facts
        self.target = target
        self.trace_id = trace_id
        self.request_id = facts.request_id or trace_id
        self.meter: Meter | None = None
        self.size = size
        self.said: asyncio.Queue[tuple[bytes, int] | FornadaError | None] = asyncio.Queue()
        """Messages as they go out, and how many bytes of a stream each of them was."""
        self.over = False
        self.more = b""
        self.room: object = None
        """Its share of what all bodies together may hold."""
        self._ticket: Ticket | None = None
        self._began = monotonic()
        self._first = True

    # ---- told by the sink

    def put(self, message: bytes, count: int) -> None:
        """A message for the caller."""
        if not self.over:
            if count and self._first and self.meter is not None:
                self.meter.first_item(monotonic() - self._began)
            self._first = False
            self.said.put_nowait((message, count))

    def end(self, run_s: float) -> None:
        self._end(OK, run_s, None)

    def fail(self, error: FornadaError, *, from_model: bool = False) -> None:
        self._end(outcome_of(error), 0.0, error)

    def give_up(self, error: FornadaError) -> None:
        ticket = self._ticket
        self.fail(error)
        if ticket is not None:
            ticket.leave()

    def hold(self, ticket: Ticket) -> None:
        if self.over:
            ticket.leave()
        else:
            self._ticket = ticket

    def took(self, count: int) -> None:
        if count and self._ticket is not None:
            self._ticket.taken(count)

    # ---- told by the caller's side

    def leave(self) -> None:
        """The caller has gone."""
        if self.over:
            return
        self.over = True
        if self.meter is not None:
            self.meter.done(LEFT, monotonic() - self._began, 0.0)
        if self._ticket is not None:
            self._ticket.leave()
            self._ticket = None

    def _end(self, outcome: str, run_s: float, said: FornadaError | None) -> None:
        if self.over:
            return
        self.over = True
        # It knows its sink, which knows us: the request's tensors would stay until a collector of cycles comes by.
        self._ticket = None
        if self.meter is not None:
            self.meter.done(outcome, monotonic() - self._began, run_s)
        self.said.put_nowait(said)

    # ---- of an Exchange, and never asked: there are no bytes of HTTP here

    def body(self) -> bytes:
        raise InternalFault("a call of gRPC has no body of bytes")

    def pieces(self) -> Sequence[bytes]:
        raise InternalFault("a call of gRPC has no body of bytes")

    def reply(self, status: int, lines: bytes, parts: tuple[bytes | memoryview, ...], run_s: float) -> None:
        raise InternalFault("a call of gRPC is answered by messages")

    def begin(self, lines: bytes) -> None:
        raise InternalFault("a call of gRPC is answered by messages")

    def write(self, data: bytes, count: int) -> None:
        raise InternalFault("a call of gRPC is answered by messages")

    def break_off(self, data: bytes, error: FornadaError) -> None:
        self.give_up(error)


class RpcSink(TensorSink):
    """Tells an RpcExchange. `streams`: items may come, each a message."""

    def __init__(self, exchange: RpcExchange, asked: Asked, name: str, model: TensorModel, *, streams: bool) -> None:
        super().__init__(exchange, asked.wanted)
        self._to = exchange
        self._asked = asked
        self._name = name
        self._version = model.version
        self._streams = streams

    def tell(self, tensors: Sequence[Tensor], parameters: Mapping[str, Any], run_s: float) -> None:
        self._to.put(answer_of(self._asked, self._name, self._version, tensors, parameters), 0)
        self._to.end(run_s)

    def stream_begins(self, head: AnswerHead) -> None:
        if not self._streams:
            super().stream_begins(head)
        elif head.type != TENSORS_TYPE:
            self._to.give_up(ModelRaised("the model streams something else than tensors"))

    def item(self, data: bytes) -> None:
        if self._to.over:
            return
        try:
            head, body = split_head(data)
            said = _HEADS.decode(head)
            tensors = self.chosen(split(said, body))
        except (ValueError, msgspec.MsgspecError) as error:
            self._to.give_up(ModelRaised(f"the model's tensors are broken: {error}"))
            return
        try:
            self._to.put(answer_of(self._asked, self._name, self._version, tensors, said.all_parameters), len(data))
        except FornadaError as error:
            self._to.give_up(error)

    def stream_ends(self, error: FornadaError | None, head: AnswerHead | None = None) -> None:
        if error is not None:
            self._to.fail(error)
        else:
            self._to.end(head.run_s if head is not None else 0.0)
