"""`POST /v1/messages`."""

import msgspec

from fornada.core.names import AccountId
from fornada.core.requests import AnswerHead, Sink
from fornada.edge.calls import Exchange
from fornada.edge.dialects.anthropic.message import MessageEvents
from fornada.edge.dialects.anthropic.request import read_message
from fornada.edge.dialects.anthropic.schema import BODY
from fornada.edge.json_mode import JsonMode
from fornada.edge.text_generation import Identity, decoded, identity
from fornada.edge.text_named import NamedSink
from fornada.edge.text_other import NoObject
from fornada.edge.v1_door import V1Door, model_of


class MessagesDoor(V1Door):
    """The hot route of messages."""

    route = "messages"
    task = "text-generation"
    makes = "no text"

    def ask(self, exchange: Exchange, account: AccountId) -> None:
        fields = BODY.fields(exchange.body())
        name = model_of(fields)
        resolved, contract = self.model(exchange, name, account)
        asked = read_message(fields, contract)
        form = MessageForm(
            identity("chatcmpl", exchange.trace_id, self._clock.wall(), name), thinking=asked.thinking, json_mode=asked.json_mode
        )
        sink = NamedSink(exchange, form, stream=asked.stream)
        self._invoker.run(exchange, sink, resolved, account, (asked.body,), stream=asked.stream, reject_if_busy=asked.reject_if_busy)


class MessageForm:
    """A message and its events."""

    __slots__ = ("_json_mode", "_thinking", "identity")

    def __init__(self, identity: Identity, *, thinking: bool, json_mode: JsonMode | None = None) -> None:
        self.identity = identity
        self._thinking = thinking
        self._json_mode = json_mode

    def whole(self, body: bytes | memoryview, head: AnswerHead) -> tuple[bytes, ...]:
        if self._json_mode:
            self._json_mode.check_completion(decoded(body))
        events = self.events()
        events.item(body)
        events.end(head.usage)
        return (msgspec.json.encode({**events.message, **({"nonfinite": True} if head.nonfinite else {})}),)

    def events(self) -> MessageEvents:
        return MessageEvents(self.identity, thinking=self._thinking)

    def lines(self, head: AnswerHead) -> bytes:
        return b""

    def other(self, exchange: Exchange) -> Sink:
        return NoObject(exchange, self)
