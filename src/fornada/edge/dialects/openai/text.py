"""`POST /v1/chat/completions` and `POST /v1/completions`: models that generate text, in OpenAI's words."""

from fornada.core.names import AccountId
from fornada.core.ports import Resolved
from fornada.core.requests import AnswerHead, Sink
from fornada.edge.calls import Exchange
from fornada.edge.dialects.openai.text_request import TextRequest, read_chat, read_text
from fornada.edge.finetuned import Tuner
from fornada.edge.invoke import Invoker
from fornada.edge.json_bodies import fields_of
from fornada.edge.json_mode import JsonMode
from fornada.edge.text_generation import ChatStream, Identity, TextStream, chat_completion, identity, text_completion
from fornada.edge.text_other import NoObject
from fornada.edge.text_sink import Form, TextSink
from fornada.edge.v1_door import V1Door, model_of


class TextDoor(V1Door):
    """Base of the two."""

    task = "text-generation"
    makes = "no text"

    def __init__(self, invoker: Invoker, tuner: Tuner) -> None:
        super().__init__(invoker)
        self._tuner = tuner

    def run(self, exchange: Exchange, form: Form, asked: TextRequest, resolved: Resolved, account: AccountId) -> None:
        """Hands the request over. Raises what the Tuner raises."""
        body = self._tuner.tuned(asked.body, resolved, account) if asked.tuned else asked.body
        sink = TextSink(exchange, form, stream=asked.stream)
        self._invoker.run(exchange, sink, resolved, account, (body,), stream=asked.stream, reject_if_busy=asked.reject_if_busy)


class ChatDoor(TextDoor):
    """The hot route of conversations."""

    route = "chat/completions"

    def ask(self, exchange: Exchange, account: AccountId) -> None:
        fields = fields_of(exchange.body())
        name = model_of(fields)
        resolved, contract = self.model(exchange, name, account)
        asked = read_chat(fields, contract)
        form = ChatForm(identity("chatcmpl", exchange.trace_id, self._clock.wall(), name), asked.include_usage, asked.json_mode)
        self.run(exchange, form, asked, resolved, account)


class CompletionsDoor(TextDoor):
    """The hot route of texts."""

    route = "completions"

    def ask(self, exchange: Exchange, account: AccountId) -> None:
        fields = fields_of(exchange.body())
        name = model_of(fields)
        resolved, contract = self.model(exchange, name, account)
        asked = read_text(fields, contract, resolved.spec.engine)
        form = TextForm(identity("cmpl", exchange.trace_id, self._clock.wall(), name), asked.include_usage)
        self.run(exchange, form, asked, resolved, account)


class ChatForm:
    """A chat.completion and its chunks, without an envelope."""

    __slots__ = ("_include_usage", "_json_mode", "identity")

    def __init__(self, identity: Identity, include_usage: bool, json_mode: JsonMode | None = None) -> None:
        self.identity = identity
        self._include_usage = include_usage
        self._json_mode = json_mode

    def whole(self, body: bytes | memoryview, head: AnswerHead) -> tuple[bytes, ...]:
        return _told_nonfinite(chat_completion(body, self.identity, usage=head.usage, json_mode=self._json_mode), head)

    def events(self) -> ChatStream:
        return ChatStream(self.identity, include_usage=self._include_usage)

    def lines(self, head: AnswerHead) -> bytes:
        return b""

    def other(self, exchange: Exchange) -> Sink:
        return NoObject(exchange, self)


class TextForm(ChatForm):
    """A text_completion and its chunks."""

    __slots__ = ()

    def whole(self, body: bytes | memoryview, head: AnswerHead) -> tuple[bytes, ...]:
        return _told_nonfinite(text_completion(body, self.identity, usage=head.usage), head)

    def events(self) -> TextStream:
        return TextStream(self.identity, include_usage=self._include_usage)


def _told_nonfinite(body: bytes, head: AnswerHead) -> tuple[bytes, ...]:
    return (body[:-1], b',"nonfinite":true}') if head.nonfinite else (body,)
