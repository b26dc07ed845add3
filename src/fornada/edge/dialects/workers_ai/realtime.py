"""`GET ai/run/{model}` as a WebSocket: a conversation with a model (WORKERS_AI.md, 11).

    ?encoding=linear16&sample_rate=16000                   the model's inputs, each by its name
    ?body={"inputs": {…}, "options": {…}}                  the same, as `env.AI` sends them

What the caller says goes to the model as it comes (`request.messages`); what the model yields goes out, one message each: JSON as text, bytes as
bytes. A model that doesn't listen answers as ever, in one message.
"""

from collections.abc import Mapping

import msgspec

from fornada.core.errors import BadRequest, FornadaError, ModelRaised, UnknownModel
from fornada.core.names import Instant
from fornada.core.requests import AnswerHead, InferenceRequest
from fornada.edge.calls import Door, Talk, Target
from fornada.edge.dialects.workers_ai.answer import JSON, NO_JSON
from fornada.edge.dialects.workers_ai.body import Input, read_body, read_json
from fornada.edge.dialects.workers_ai.run import unknown
from fornada.edge.invoke import Invoker, invoke_head
from fornada.edge.json_bodies import fields_of, is_json
from fornada.edge.platform_options import read_options
from fornada.edge.problems import is_success
from fornada.edge.validation import Contract

BODY = "body"


class RealtimeDoor:
    """Conversations with the models of another door's targets."""

    def __init__(self, invoker: Invoker, targets: Door) -> None:
        """`targets` knows the paths."""
        self._invoker = invoker
        self._targets = targets

    def match(self, path: bytes, query: bytes) -> Target | None:
        found = self._targets.match(path, query)
        return msgspec.structs.replace(found, door=self) if found is not None else None

    def limit(self, target: Target) -> int:
        """There is no body."""
        return 0

    def open(self, talk: Talk) -> None:
        """Begins, or refuses."""
        try:
            self._begin(talk)
        except FornadaError as error:
            talk.fail(error)

    def _begin(self, talk: Talk) -> None:
        target = talk.target
        account = talk.facts.caller.acting_for(target.account)
        if target.reference is None:
            raise BadRequest("the model isn't named")
        try:
            resolved = self._invoker.resolve(target.reference, account)
        except UnknownModel as refusal:
            raise unknown(target.name, refusal) from None
        contract = self._invoker.contracts.of(resolved)
        talk.meter = contract.meter
        self._invoker.admit(talk, resolved, account)
        if contract.generates:
            raise BadRequest("text isn't generated over a WebSocket: POST with 'stream': true")
        if resolved.spec.serving.max_batch > 1:
            raise BadRequest("this model takes requests together (max_batch), and so no conversations")
        given = _inputs(target.query, contract)
        facts = talk.facts
        head = invoke_head(talk, account, given.parts, given.type, True)
        request = InferenceRequest(
            request_id=talk.request_id,
            trace_id=talk.trace_id,
            account=account,
            model=resolved.entry.name,
            version=resolved.version,
            deadline=None if facts.timeout_s is None else Instant(self._invoker.clock.now() + facts.timeout_s),
            head=head[:-1] + b',"messages":true}',
            body=given.body,
            stream=True,
            reject_if_busy=given.reject_if_busy,
            affinity=facts.affinity,
            priority=facts.priority,
            key=facts.caller.key,
        )
        talk.keep(self._invoker.submit(request, TalkSink(talk)))  # type: ignore[arg-type]  # of a request with messages it is a Speaker


class TalkSink:
    """A core.requests.Listener."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._text = True

    def listens(self, taken: int) -> None:
        self._talk.listens(taken)

    def answer(self, head: AnswerHead, body: bytes | memoryview) -> None:
        data = bytes(body)
        text = head.type == JSON
        if text and not is_json(data):
            self._talk.fail(ModelRaised(NO_JSON), from_model=True)
        elif not is_success(head.http_status):
            self._talk.fail(BadRequest(head.message or "the model refused the request"), from_model=True)
        else:
            self._talk.say(data, text=text)
            self._talk.end(head.run_s)

    def refuse(self, error: FornadaError) -> None:
        self._talk.fail(error, from_model=True)

    def stream_begins(self, head: AnswerHead) -> None:
        self._text = head.type == JSON
        self._talk.open()

    def item(self, data: bytes) -> None:
        if self._text and not is_json(data):
            self._talk.fail(ModelRaised(NO_JSON), from_model=True)
        else:
            self._talk.say(bytes(data), text=self._text)

    def stream_ends(self, error: FornadaError | None, head: AnswerHead | None = None) -> None:
        if error is None:
            self._talk.end(head.run_s if head is not None else 0.0)
        else:
            self._talk.fail(error, from_model=True)


def _inputs(query: Mapping[str, str], contract: Contract) -> Input:
    if BODY not in query:
        if contract.open:
            return read_json(msgspec.json.encode(query), contract)
        return read_body((b"",), "", "", query, contract)
    fields = fields_of(query[BODY].encode())
    inputs = bytes(fields.get("inputs", b"{}"))
    given = read_json(b"{}" if inputs == b"null" else inputs, contract)
    if "options" not in fields:
        return given
    return given._replace(reject_if_busy=read_options(fields["options"]).reject_if_busy or given.reject_if_busy)
