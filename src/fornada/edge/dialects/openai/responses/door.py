"""`POST /v1/responses`."""

from typing import Any

import msgspec

from fornada.core.errors import BadRequest, FornadaError, TooLarge
from fornada.core.names import AccountId
from fornada.core.ports import Resolved
from fornada.core.requests import AnswerHead, Sink
from fornada.core.responses import KeptResponse, ResponseStore
from fornada.edge.calls import Exchange
from fornada.edge.chat_turns import Message, Turns, text_part
from fornada.edge.dialects.openai.responses.kept import KEPT_S, MOST, MOST_BYTES
from fornada.edge.dialects.openai.responses.object import ResponseEvents, frame_of
from fornada.edge.dialects.openai.responses.request import ResponseRequest, read_response
from fornada.edge.dialects.openai.responses.schema import BODY
from fornada.edge.invoke import Invoker
from fornada.edge.json_bodies import Fields
from fornada.edge.text_generation import Identity, decoded, identity
from fornada.edge.text_named import NamedSink
from fornada.edge.text_other import NoObject
from fornada.edge.v1_door import V1Door, model_of
from fornada.edge.validation import Contract


class ResponsesDoor(V1Door):
    """The hot route of responses."""

    route = "responses"
    task = "text-generation"
    makes = "no text"

    def __init__(self, invoker: Invoker, responses: ResponseStore) -> None:
        super().__init__(invoker)
        self._responses = responses

    def ask(self, exchange: Exchange, account: AccountId) -> None:
        fields = BODY.fields(exchange.body())
        name = model_of(fields)
        resolved, contract = self.model(exchange, name, account)
        self.respond(exchange, fields, name, resolved, contract, account)

    def respond(
        self,
        exchange: Exchange,
        fields: Fields,
        name: str,
        resolved: Resolved,
        contract: Contract,
        account: AccountId,
        *,
        around: tuple[bytes, bytes] = (b"", b""),
        reject_if_busy: bool = False,
    ) -> None:
        """As workers_ai.run.Responds."""
        fields = {**fields, "model": msgspec.Raw(msgspec.json.encode(name))}
        known = identity("chatcmpl", exchange.trace_id, self._clock.wall(), name)
        key = known.id.rpartition("-")[2]

        def earlier(id: str) -> list[Message]:
            found = self._responses.response(id, account, since=self._clock.wall() - KEPT_S)
            if found is None:
                raise BadRequest(f"'previous_response_id': no such response '{id[:64]}': it wasn't stored, or has been forgotten")
            turns: list[Message] = msgspec.json.decode(found.turns)
            return turns

        asked = read_response(fields, contract, f"msg_{key}", earlier)
        if len(asked.body) > contract.max_body:
            raise TooLarge(f"with what was said before the conversation has more than {contract.max_body} bytes, this model's limit")
        form = ResponseForm(known, asked, account, self._responses, around)
        sink = NamedSink(exchange, form, stream=asked.stream)
        busy = asked.reject_if_busy or reject_if_busy
        self._invoker.run(exchange, sink, resolved, account, (asked.body,), stream=asked.stream, reject_if_busy=busy)


class ResponseForm:
    """A response and its events."""

    __slots__ = ("_account", "_around", "_asked", "_responses", "identity")

    def __init__(
        self, identity: Identity, asked: ResponseRequest, account: AccountId, responses: ResponseStore, around: tuple[bytes, bytes]
    ) -> None:
        """`around`: what stands before and behind a whole answer."""
        self.identity = identity
        self._asked = asked
        self._account = account
        self._responses = responses
        self._around = around

    def whole(self, body: bytes | memoryview, head: AnswerHead) -> tuple[bytes, ...]:
        if self._asked.json_mode:
            self._asked.json_mode.check_completion(decoded(body))
        events = self.events()
        events.item(body)
        events.end(head.usage)
        before, behind = self._around
        return before, msgspec.json.encode({**events.response, **({"nonfinite": True} if head.nonfinite else {})}), behind

    def events(self) -> ResponseEvents:
        asked = self._asked
        id = f"resp_{self.identity.id.rpartition('-')[2]}"
        frame = frame_of(asked.given, id=id, created=self.identity.created, store=asked.store)
        return ResponseEvents(frame, self.identity, kept=self._keep)

    def lines(self, head: AnswerHead) -> bytes:
        return b""

    def other(self, exchange: Exchange) -> Sink:
        return NoObject(exchange, self)

    def _keep(self, response: dict[str, Any]) -> None:
        if not response["store"]:
            return
        turns = Turns(self._asked.turns)
        for item in response["output"]:
            if item["type"] == "message":
                turns.say("assistant", [text_part(part["text"]) for part in item["content"]])
            elif item["type"] == "function_call":
                turns.call(item["call_id"], item["name"], item["arguments"])
        encode = msgspec.json.encode
        created = float(self.identity.created)
        kept = KeptResponse(response["id"], self._account, created, encode(response), encode(self._asked.input), encode(turns.messages))
        try:
            self._responses.keep_response(kept, since=created - KEPT_S, most=MOST, most_bytes=MOST_BYTES)
        except FornadaError:
            # A full disk must not cost the caller his answer: it says itself that it isn't kept.
            response["store"] = False
