"""What becomes of an answer that is no JSON, where generated text was asked for."""

import msgspec

from fornada.core.errors import FornadaError, ModelRaised
from fornada.core.requests import AnswerHead
from fornada.edge.calls import JSON_TYPE, Exchange
from fornada.edge.problems import is_refusal_of_model, is_success, model_refusal
from fornada.edge.text_sink import FAULTS, Form, refusal_of


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
