"""`ai/run` that doesn't wait: a list of requests as a job, and what became of it (WORKERS_AI.md, 6).

?queueRequest=true, or options.queueRequest     {"requests": [{…, "external_reference": "…"}, …]}     submit
with or without it                              {"request_id": "…"}                                   poll
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from fornada.core.errors import BadRequest, UnknownJob
from fornada.core.jobs import Ask, Job, JobId, JobsPort, Order, Result, Status
from fornada.core.names import AccountId
from fornada.core.ports import Resolved
from fornada.edge.calls import JSON_TYPE, Exchange, Target
from fornada.edge.dialects.workers_ai.answer import CLOSE, OPEN
from fornada.edge.idempotency import idempotency_key
from fornada.edge.json_bodies import Fields, encode, fields_of, value_of
from fornada.edge.long_answers import send
from fornada.edge.platform_options import webhook_of
from fornada.edge.problems import Style

KIND = "workers-ai"
QUEUE_BYTES = 10 * 1000 * 1000
"""Of all requests of a job together, where the model doesn't take more in one."""
MOST_REQUESTS = 50_000
LONGEST_POLL = 512
"""Bytes. A longer body isn't looked at for being one."""
POLL = b'"request_id"'
_BESIDE_AN_ID = frozenset(["request_id", "options", "model", "stream"])
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")


class Queue:
    """Submits and polls."""

    def __init__(self, jobs: JobsPort) -> None:
        self._jobs = jobs

    def takes(self, exchange: Exchange, body: bytes, resolved: Resolved, account: AccountId, name: str, *, queued: bool) -> bool:
        """Answers what is a submit or a poll; False: it is a request like any other. `queued`: the caller asked for the queue.
        `name`: the model as the caller spells it. Raises FornadaError."""
        fields = fields_of(body)
        id = _polled(fields, queued=queued)
        if id is None and not queued:
            return False
        if not exchange.facts.caller.paced:
            # Each of 50,000 would hold all that another one holds, and that again: two short submits would fill any disk.
            raise BadRequest("a request of a job can neither be a job nor ask for one")
        answer = self.poll(id, account) if id is not None else (self.submit(exchange, fields, body, resolved, account, name),)
        bare = exchange.target.style is Style.BINDING
        send(exchange, JSON_TYPE, iter(answer) if bare else chain((OPEN,), answer, (CLOSE,)))
        return True

    def submit(self, exchange: Exchange, fields: Fields, body: bytes, resolved: Resolved, account: AccountId, name: str) -> bytes:
        """The job's first word."""
        target = request_target(exchange.target, account, name)
        order = Order(
            account=account,
            kind=KIND,
            target=target,
            model=name,
            asks=[_ask(raw, number, resolved) for number, raw in enumerate(_requests(fields))],
            key=idempotency_key(exchange.facts),
            webhook=webhook_of(fields.get("options")),
            caller=exchange.facts.caller.key,
            digest=hashlib.sha256(target.encode() + b"\n" + body).hexdigest(),
        )
        return _state(self._jobs.submit(order))

    def poll(self, id: JobId, account: AccountId) -> Iterable[bytes]:
        """Pieces of `result`, which may be gigabytes."""
        job = self._jobs.job(id, account)
        if job.kind != KIND:
            raise UnknownJob(f"'{id}' is a job of another API")
        if job.status in (Status.QUEUED, Status.RUNNING):
            return (_state(job),)
        return self._ended(job)

    def _ended(self, job: Job) -> Iterator[bytes]:
        yield b"{" if job.status in (Status.COMPLETED, Status.FAILED) else _state(job)[:-1] + b","
        yield b'"responses":['
        usage = dict.fromkeys(_COUNTS, 0)
        for number, response in enumerate(_responses(self._jobs.results(job), usage)):
            yield b"," + response if number else response
        # Forgotten meanwhile: what was there must not pass for the whole.
        self._jobs.job(job.id, job.account)
        yield b'],"usage":' + msgspec.json.encode(usage) + b"}"


def request_target(target: Target, account: AccountId, name: str) -> str:
    """Path and query by which one of the requests would come alone."""
    path = f"/client/v4/accounts/{quote(account, safe='')}/ai/run/{quote(name, safe='@/:')}"
    return f"{path}?{urlencode(target.query)}" if target.query else path


def _polled(fields: Fields, *, queued: bool) -> JobId | None:
    """The id that is asked after."""
    if "request_id" not in fields or not _BESIDE_AN_ID.issuperset(fields):
        return None
    id = value_of(fields["request_id"])
    # A model of one's own may have an input of that name; no such thing looks like an id of ours by accident.
    return JobId(id) if isinstance(id, str) and (queued or _ID.match(id)) else None


def _requests(fields: Fields) -> list[msgspec.Raw]:
    raw = fields.get("requests")
    if raw is None:
        raise BadRequest("required properties at '/' are 'requests': with queueRequest a list of inputs, or a 'request_id' to ask after")
    try:
        found = msgspec.json.decode(raw, type=list[msgspec.Raw])
    except msgspec.MsgspecError:
        raise BadRequest("Type mismatch of '/requests', it must be an array") from None
    if not 0 < len(found) <= MOST_REQUESTS:
        raise BadRequest(f"'/requests' must hold 1 to {MOST_REQUESTS} inputs")
    return found


def _ask(raw: msgspec.Raw, number: int, resolved: Resolved) -> Ask:
    body = bytes(raw)
    try:
        fields = fields_of(body)
        reference = None
        if "external_reference" in fields:
            reference = value_of(fields.pop("external_reference"))
            body = encode(fields)
    except BadRequest as refusal:
        raise BadRequest(f"'/requests/{number}': {refusal.message}") from None
    if reference is not None and not isinstance(reference, str):
        raise BadRequest(f"Type mismatch of '/requests/{number}/external_reference', it must be a string")
    return Ask(model=resolved.entry.name, body=body, reference=reference)


def _state(job: Job) -> bytes:
    return msgspec.json.encode({"status": job.status.value, "request_id": job.id, "model": job.model})


class _Answer(msgspec.Struct):
    result: msgspec.Raw = msgspec.Raw(b"null")
    errors: list[dict[str, Any]] = []


class _Used(msgspec.Struct):
    usage: dict[str, Any] | None = None


def _responses(results: Iterator[Result], usage: dict[str, int]) -> Iterator[bytes]:
    """Those that have an answer; what their models count is added to `usage`."""
    for result in results:
        if result.outcome is None:
            continue
        answer = _answer(result.outcome.body)
        if result.status is Status.COMPLETED:
            _add(answer.result, usage)
            yield b'{"id":%d,"result":%b,"success":true,"external_reference":%b}' % (
                result.number,
                bytes(answer.result),
                msgspec.json.encode(result.reference),
            )
        else:
            first = answer.errors[0] if answer.errors else {}
            told = {"success": False, "error": first.get("message", "the model refused the request"), "code": first.get("code")}
            yield msgspec.json.encode({"id": result.number, **told, "external_reference": result.reference})


def _answer(body: bytes) -> _Answer:
    try:
        return msgspec.json.decode(body, type=_Answer)
    except msgspec.MsgspecError:
        return _Answer(result=msgspec.Raw(body or b"null"))


def _add(result: msgspec.Raw, usage: dict[str, int]) -> None:
    try:
        used = msgspec.json.decode(result, type=_Used).usage or {}
    except msgspec.MsgspecError:
        return
    for name in _COUNTS:
        count = used.get(name)
        if isinstance(count, int):
            usage[name] += count
