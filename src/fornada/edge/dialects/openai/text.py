"""`POST /v1/chat/completions` and `POST /v1/completions`: models that generate text, in OpenAI's words."""

import msgspec

from fornada.core.errors import FornadaError, ModelRaised
from fornada.core.names import AccountId
from fornada.core.requests import AnswerHead, Sink
from fornada.edge.calls import JSON_TYPE, Exchange
from fornada.edge.dialects.openai.door import OpenaiDoor
from fornada.edge.dialects.openai.text_request import model_of, read_chat, read_text
from fornada.edge.json_bodies import fields_of
from fornada.edge.problems import is_refusal_of_model, is_success, model_refusal
from fornada.edge.text_generation import ChatStream, Identity, TextStream, chat_completion, identity, text_completion
from fornada.edge.text_sink import FAULTS, Form, TextSink, refusal_of


class ChatDoor(OpenaiDoor):
    """The hot route of conversations."""

    route = "chat/completions"
    task = "text-generation"
    makes = "no text"

    def ask(self, exchange: Exchange, account: AccountId) -> None:
        fields = fields_of(exchange.body())
        name = model_of(fields)
        resolved, contract = self.model(exchange, name, account)
        asked = read_chat(fields, contract)
        form = ChatForm(identity("chatcmpl", exchange.trace_id, self._clock.wall(), name), asked.include_usage)
        sink = TextSink(exchange, form, stream=asked.stream)
        self._invoker.run(exchange, sink, resolved, account, (asked.body,), stream=asked.stream, reject_if_busy=asked.reject_if_busy)


class CompletionsDoor(OpenaiDoor):
    """The hot route of texts."""

    route = "completions"
    task = "text-generation"
    makes = "no text"

    def ask(self, exchange: Exchange, account: AccountId) -> None:
        fields = fields_of(exchange.body())
        name = model_of(fields)
        resolved, contract = self.model(exchange, name, account)
        asked = read_text(fields, contract, resolved.spec.engine)
        form = TextForm(identity("cmpl", exchange.trace_id, self._clock.wall(), name), asked.include_usage)
        sink = TextSink(exchange, form, stream=asked.stream)
        self._invoker.run(exchange, sink, resolved, account, (asked.body,), stream=asked.stream, reject_if_busy=asked.reject_if_busy)


class ChatForm:
    """A chat.completion and its chunks, without an envelope."""

    __slots__ = ("_include_usage", "identity")

    def __init__(self, identity: Identity, include_usage: bool) -> None:
        self.identity = identity
        self._include_usage = include_usage

    def whole(self, body: bytes | memoryview, head: AnswerHead) -> tuple[bytes, ...]:
        return _told_nonfinite(chat_completion(body, self.identity, usage=head.usage), head)

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


class NoObject:
    """Who is told of an answer with a media type or a status of the model's own: plain text is text, a refusal is a refusal."""

    __slots__ = ("_exchange", "_form")

    def __init__(self, exchange: Exchange, form: Form) -> None:
        self._exchange = exchange
        self._form = form

    def answer(self, head: AnswerHead, body: bytes | memoryview) -> None:
        exchange = self._exchange
        if is_refusal_of_model(head.http_status):
            exchange.reply(head.http_status, JSON_TYPE, (model_refusal(head.http_status, head.message),), head.run_s)
            return
        text: bytes | memoryview
        if is_success(head.http_status) and head.type.startswith("text/"):
            text = msgspec.json.encode(bytes(body).decode(errors="replace"))
        elif is_success(head.http_status) and head.type == "application/json":
            text = body
        else:
            exchange.fail(ModelRaised(f"the model answered with {head.type[:100]}, which is no text"), from_model=True)
            return
        try:
            parts = self._form.whole(text, head)
        except FAULTS as error:
            exchange.fail(refusal_of(error), from_model=True)
            return
        exchange.reply(200, JSON_TYPE, parts, head.run_s)

    def refuse(self, error: FornadaError) -> None:
        self._exchange.fail(error, from_model=True)

    def stream_begins(self, head: AnswerHead) -> None:
        self._exchange.give_up(ModelRaised(f"the model streams {head.type[:100]}, which is no text"))

    def item(self, data: bytes) -> None:
        pass  # it was refused when it began

    def stream_ends(self, error: FornadaError | None, head: AnswerHead | None = None) -> None:
        pass


def _told_nonfinite(body: bytes, head: AnswerHead) -> tuple[bytes, ...]:
    return (body[:-1], b',"nonfinite":true}') if head.nonfinite else (body,)
