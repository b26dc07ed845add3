"""`POST …/ai/run/{model}` and `POST …/ai/run`: inference."""

import re
from typing import Protocol

from fornada.core.errors import BadRequest, FornadaError, TooLarge, UnknownModel
from fornada.core.jobs import JobsPort
from fornada.core.names import AccountId, Reference, parse_reference
from fornada.core.ports import Resolved
from fornada.core.requests import Sink
from fornada.core.resources import format_size
from fornada.edge.auth import ANYBODY, account_of
from fornada.edge.calls import DEFAULT_BODY, Exchange, Target
from fornada.edge.dialects.workers_ai.answer import CLOSE, OPEN, RunSink
from fornada.edge.dialects.workers_ai.body import Input, joined, read_body, read_json
from fornada.edge.dialects.workers_ai.queue import LONGEST_POLL, POLL, QUEUE_BYTES, Queue
from fornada.edge.dialects.workers_ai.text import text_sink
from fornada.edge.finetuned import Tuner
from fornada.edge.invoke import Invoker, quoted
from fornada.edge.json_bodies import Fields, fields_of, is_true, value_of
from fornada.edge.platform_options import QueueWanted, check_tags, read_options
from fornada.edge.problems import Style
from fornada.edge.targets import decoded, query_of
from fornada.edge.text_generation import identity as identity_of
from fornada.edge.validation import Contract

_PATH = re.compile(rb"/client/v4/accounts/([^/]+)/ai/run(?:/+(.*))?\Z", re.DOTALL)
_ONCE = ("queueRequest", "tags", "body")
"""The platform's parameters, and a conversation's inputs. Of those that are inputs themselves the last counts: callers put there what they like."""


class Responds(Protocol):
    """Who answers {"input": …} with a response."""

    def respond(
        self,
        exchange: Exchange,
        fields: Fields,
        name: str,
        resolved: Resolved,
        contract: Contract,
        account: AccountId,
        *,
        around: tuple[bytes, bytes],
        reject_if_busy: bool,
    ) -> None:
        """`fields` without nulls and without the model, which the caller calls `name`. `around`: what stands before and behind a whole
        answer. Raises FornadaError."""


class RunDoor:
    """The hot route of ai/run."""

    def __init__(self, invoker: Invoker, *, jobs: JobsPort, tuner: Tuner, responses: Responds) -> None:
        self._invoker = invoker
        self._contracts = invoker.contracts
        self._resolve = invoker.resolve
        self._clock = invoker.clock
        self._queue = Queue(jobs)
        self._tuner = tuner
        self._responses = responses

    def match(self, path: bytes, query: bytes) -> Target | None:
        found = _PATH.match(path)
        if found is None:
            return None
        try:
            account = account_of(decoded(found[1]))
            name = decoded(found[2] or b"").rstrip("/")
            reference = parse_reference(name) if name else None
            parameters = query_of(query, once=_ONCE)
            queued = parameters.pop("queueRequest", "").lower() == "true"
            if tags := parameters.pop("tags", ""):
                check_tags(tags.split(","))
        except FornadaError as error:
            return Target(door=self, style=Style.ENVELOPE, error=error)
        return Target(
            door=self,
            style=Style.ENVELOPE,
            account=account,
            name=name,
            reference=reference,
            query=parameters,
            shown_query=quoted(parameters) if parameters else "",
            queued=queued,
        )

    def limit(self, target: Target) -> int:
        if target.reference is None:
            return DEFAULT_BODY
        try:
            limit = self._invoker.limit(target)
            return max(limit, QUEUE_BYTES) if target.queued else limit
        except UnknownModel as refusal:
            raise unknown(target.name, refusal) from None

    def handle(self, exchange: Exchange) -> None:
        target = exchange.target
        try:
            caller = exchange.facts.caller
            account = target.account if caller is ANYBODY and target.account is not None else caller.acting_for(target.account)
            reference = target.reference
            if reference is None:
                self._universal(exchange)
                return
            try:
                resolved = self._resolve(reference, account)
            except UnknownModel as refusal:
                raise unknown(target.name, refusal) from None
            contract = self._contracts.of(resolved)
            exchange.meter = contract.meter
            self._invoker.admit(exchange, resolved, account)
            limit = max(contract.max_body, QUEUE_BYTES) if target.queued else contract.max_body
            if exchange.size > limit:
                raise too_large(limit)
            pieces = exchange.pieces()
            if target.queued or (exchange.size <= LONGEST_POLL and POLL in pieces[0]):
                pieces = (joined(pieces),)
                if self._queue.takes(exchange, pieces[0] or b"{}", resolved, account, target.name, queued=target.queued):
                    return
            if contract.plain and not contract.generates and pieces[0][:1] == b"{":
                # Most requests of models with an interface of their own: checked for being JSON, and passed on as they are.
                body = joined(pieces)
                fields = fields_of(body)
                if "options" not in fields:
                    stream = "stream" in fields and is_true(fields["stream"])
                    self._invoker.run(
                        exchange, RunSink(exchange, stream), resolved, account, (body,), stream=stream, reject_if_busy=target.rejects_busy
                    )
                    return
                pieces = (body,)
            if contract.openai_family and self._responded(exchange, joined(pieces), target.name, resolved, contract, account):
                return
            facts = exchange.facts
            try:
                given = read_body(pieces, facts.content_type, facts.media_type, target.query, contract)
            except QueueWanted:
                self._queue.takes(exchange, joined(pieces), resolved, account, target.name, queued=True)
                return
            if target.rejects_busy:
                given = given._replace(reject_if_busy=True)
            self._run(exchange, resolved, contract, account, given, target.name)
        except FornadaError as error:
            exchange.fail(error)

    def _responded(
        self,
        exchange: Exchange,
        body: bytes,
        named: str,
        resolved: Resolved,
        contract: Contract,
        account: AccountId,
        *,
        reject_if_busy: bool = False,
    ) -> bool:
        """Whether the body is {"input": …} of a model of OpenAI's family, which is answered with a response."""
        if not contract.drop_nulls or body.lstrip()[:1] != b"{":
            return False
        fields = {name: raw for name, raw in fields_of(body).items() if bytes(raw) != b"null"}
        if "input" not in fields or "prompt" in fields or "messages" in fields:
            return False
        around = OPEN, CLOSE
        self._responses.respond(exchange, fields, named, resolved, contract, account, around=around, reject_if_busy=reject_if_busy)
        return True

    def _run(self, exchange: Exchange, resolved: Resolved, contract: Contract, account: AccountId, given: Input, named: str) -> None:
        """Hands the request over. Raises what the Tuner raises."""
        sink: Sink
        if given.tuned:
            given = given.with_json(self._tuner.tuned(given.body[0], resolved, account))
        if contract.generates:
            kind = "cmpl" if given.prompted and contract.openai_family else "chatcmpl"
            sink = text_sink(exchange, contract, identity_of(kind, exchange.trace_id, self._clock.wall(), named), given)
        else:
            sink = RunSink(exchange, given.stream)
        self._invoker.run(
            exchange,
            sink,
            resolved,
            account,
            given.body,
            parts=given.parts,
            type=given.type,
            stream=given.stream,
            reject_if_busy=given.reject_if_busy,
        )

    def _universal(self, exchange: Exchange) -> None:
        """{"model": …, "input": {…}}: the model in the body."""
        fields = fields_of(exchange.body().strip() or b"{}")
        name = value_of(fields["model"]) if "model" in fields else None
        if not isinstance(name, str):
            raise BadRequest("required properties at '/' are 'model'" if name is None else "Type mismatch of '/model', it must be a string")
        reference: Reference = parse_reference(name)
        account = exchange.facts.caller.acting_for(exchange.target.account)
        try:
            resolved = self._resolve(reference, account)
        except UnknownModel as refusal:
            raise unknown(name, refusal) from None
        contract = self._contracts.of(resolved)
        exchange.meter = contract.meter
        self._invoker.admit(exchange, resolved, account)
        if exchange.size > contract.max_body:
            raise too_large(contract.max_body)
        raw = fields.get("input")
        text = b"{}" if raw is None or bytes(raw) == b"null" else bytes(raw)
        queued = exchange.target.queued
        try:
            reject_if_busy = "options" in fields and read_options(fields["options"]).reject_if_busy
        except QueueWanted:
            reject_if_busy, queued = False, True
        if (queued or POLL in text[:LONGEST_POLL]) and self._queue.takes(exchange, text, resolved, account, name, queued=queued):
            return
        if contract.openai_family and self._responded(exchange, text, name, resolved, contract, account, reject_if_busy=reject_if_busy):
            return
        given = read_json(text, contract)
        given = given._replace(reject_if_busy=given.reject_if_busy or reject_if_busy)
        self._run(exchange, resolved, contract, account, given, name)


def unknown(name: str, refusal: UnknownModel) -> UnknownModel:
    """The catalogue's refusal of what the caller calls `name`, in the words that clients look for."""
    return UnknownModel(f"No such model {name} or task", nearest=refusal.nearest)


def too_large(limit: int) -> TooLarge:
    """The body is longer than the model takes."""
    return TooLarge(f"Request is too large: this model takes bodies of at most {limit} bytes ({format_size(limit)})")
