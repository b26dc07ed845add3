"""`/v1/batches`: a file of requests as a job. Each line is answered as if it had been sent to its `url`."""

import hashlib
import re
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import quote

import msgspec

from fornada.core.errors import BadRequest, Busy, Conflict, DiskFull, FornadaError, ModelNotAllowed, UnknownFile, UnknownJob
from fornada.core.files import FileId, FilesPort
from fornada.core.jobs import Ask, Job, JobId, JobsPort, Order, Status
from fornada.core.keys import Role
from fornada.core.names import AccountId, ModelName, parse_reference
from fornada.core.ports import CatalogPort
from fornada.edge.auth import account_of
from fornada.edge.calls import Call, Operation, Parameter, Reply, Route, json_reply
from fornada.edge.dialects.openai.batch_output import KIND, errors_id, output_id
from fornada.edge.dialects.openai.jsonl import lines_of
from fornada.edge.dialects.openai.pages import PAGE, listed, wanted_of
from fornada.edge.idempotency import idempotency_key
from fornada.edge.json_bodies import fields_of, value_of
from fornada.edge.platform_options import webhook_of
from fornada.edge.problems import Style

ENDPOINTS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses")
MOST_LINES = 50_000
LONGEST_ID = 512
MOST_METADATA, LONGEST_NAME, LONGEST_VALUE = 16, 64, 512
LONGEST_WINDOW_S = 30 * 86400.0
_WINDOW = re.compile(r"([1-9]\d{0,5})([smhd])\Z")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_STATUS = {
    Status.QUEUED: "validating",
    Status.RUNNING: "in_progress",
    Status.COMPLETED: "completed",
    Status.FAILED: "completed",  # its lines have failed, the batch hasn't: OpenAI's word for a file that can't be read
    Status.CANCELLED: "cancelled",
    Status.EXPIRED: "expired",
}
_ID: dict[str, Any] = {"type": ["string", "null"]}
_TIME: dict[str, Any] = {"type": ["integer", "null"]}
BATCH: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "object": {"const": "batch"},
        "endpoint": {"type": "string"},
        "errors": {"type": "null"},
        "input_file_id": {"type": "string"},
        "completion_window": {"type": "string"},
        "status": {"enum": sorted(set(_STATUS.values()))},
        "output_file_id": _ID,
        "error_file_id": _ID,
        "created_at": {"type": "integer"},
        **dict.fromkeys(("in_progress_at", "expires_at", "finalizing_at", "completed_at", "failed_at"), _TIME),
        **dict.fromkeys(("expired_at", "cancelling_at", "cancelled_at"), _TIME),
        "request_counts": {"type": "object", "properties": {name: {"type": "integer"} for name in ("total", "completed", "failed")}},
        "metadata": {"type": ["object", "null"]},
    },
    "required": ["id", "object", "endpoint", "input_file_id", "completion_window", "status", "created_at"],
}
_BATCHES = {
    "type": "object",
    "properties": {"object": {"const": "list"}, "data": {"type": "array", "items": BATCH}},
    "required": ["object", "data"],
}
_ASKED = {
    "type": "object",
    "properties": {
        "input_file_id": {"type": "string"},
        "endpoint": {"enum": list(ENDPOINTS)},
        "completion_window": {"type": "string", "description": "24h, or another time in s, m, h or d"},
        "metadata": {"type": ["object", "null"]},
        "options": {"type": ["object", "null"], "properties": {"webhook": {"type": ["string", "null"], "format": "uri"}}},
    },
    "required": ["input_file_id", "endpoint", "completion_window"],
}


class Asked(msgspec.Struct, frozen=True):
    """The body of a submit."""

    input_file_id: str
    endpoint: str
    completion_window: str
    metadata: dict[str, str] | None = None
    options: msgspec.Raw | None = None
    """The platform's."""


def batch_routes(base: str, suffix: str, *, files: FilesPort, jobs: JobsPort, catalog: CatalogPort) -> list[Route]:
    """Below `base`. `suffix` tells the operations of two bases apart."""
    desk = _Desk(files, jobs, catalog)
    create = Operation(
        f"createBatch{suffix}",
        "Have the requests of a file done",
        BATCH,
        desk.create,
        Role.USER,
        (Parameter("idempotency-key", "The same one again is the same batch", place="header"),),
        takes={"application/json": _ASKED},
        errors=(BadRequest, UnknownFile, Busy, Conflict, DiskFull),
    )
    all = Operation(f"listBatches{suffix}", "Batches, the newest first", _BATCHES, desk.all, Role.USER, PAGE, errors=(BadRequest,))
    return [
        Route(f"{base}/batches", Style.SUPERSET, {"POST": create, "GET": all}),
        Route(
            f"{base}/batches/{{id}}/cancel",
            Style.SUPERSET,
            {"POST": Operation(f"cancelBatch{suffix}", "End a batch", BATCH, desk.cancel, Role.USER, errors=(UnknownJob, DiskFull))},
        ),
        Route(
            f"{base}/batches/{{id}}",
            Style.SUPERSET,
            {"GET": Operation(f"getBatch{suffix}", "How far a batch is", BATCH, desk.one, Role.USER, errors=(UnknownJob,))},
        ),
    ]


class _Desk:
    """Handlers."""

    def __init__(self, files: FilesPort, jobs: JobsPort, catalog: CatalogPort) -> None:
        self._files = files
        self._jobs = jobs
        self._catalog = catalog

    async def create(self, call: Call) -> Reply:
        account = account_of(call.account)
        asked = _asked(call.body)
        file = self._files.get(FileId(asked.input_file_id), account)
        if file.purpose != "batch":
            raise BadRequest(f"'input_file_id': the purpose of {file.id} is {file.purpose}, it must be batch")
        note = {"endpoint": asked.endpoint, "input": file.id, "window": asked.completion_window, "metadata": asked.metadata}
        target = f"/client/v4/accounts/{quote(account, safe='')}/ai{asked.endpoint}"
        webhook = webhook_of(asked.options)
        expires_s = _window_s(asked.completion_window)
        digest = hashlib.sha256(msgspec.json.encode([target, note, webhook]))
        lines = lines_of(_told(self._files.content(file), digest.update))
        known = _Models(self._catalog, account, call.facts.caller.models)
        asks = [ask async for ask in _asks(lines, asked.endpoint, known)]
        models = {ask.model for ask in asks}
        order = Order(
            account=account,
            kind=KIND,
            target=target,
            model=next(iter(models)) if len(models) == 1 else f"{len(models)} models",
            asks=asks,
            expires_s=expires_s,
            key=idempotency_key(call.facts),
            webhook=webhook,
            caller=call.facts.caller.key,
            digest=digest.hexdigest(),
            note=msgspec.json.encode(note).decode(),
            prefix="batch_",
        )
        return json_reply(self._shown(self._jobs.submit(order)))

    async def all(self, call: Call) -> Reply:
        wanted = wanted_of(call)
        after = JobId(wanted.after) if wanted.after else None
        found = self._jobs.all(account_of(call.account), KIND, most=wanted.limit + 1, after=after)
        return json_reply(await listed(found[: wanted.limit], self._shown, more=len(found) > wanted.limit))

    async def one(self, call: Call) -> Reply:
        return json_reply(self._shown(self._job(call)))

    async def cancel(self, call: Call) -> Reply:
        job = self._job(call)
        return json_reply(self._shown(self._jobs.cancel(job.id, job.account)))

    def _job(self, call: Call) -> Job:
        job = self._jobs.job(JobId(call.parameters["id"]), account_of(call.account))
        if job.kind != KIND:
            raise UnknownJob(f"no such batch '{job.id}': it is a job of another API")
        return job

    def _shown(self, job: Job) -> dict[str, Any]:
        counts = self._jobs.counts(job)
        completed, failed = counts.get(Status.COMPLETED, 0), counts.get(Status.FAILED, 0)
        ended = int(job.ended) or None
        note = msgspec.json.decode(job.note)
        return {
            "id": job.id,
            "object": "batch",
            "endpoint": note["endpoint"],
            "errors": None,
            "input_file_id": note["input"],
            "completion_window": note["window"],
            "status": _STATUS[job.status],
            "output_file_id": output_id(job.id) if ended and completed else None,
            "error_file_id": errors_id(job.id) if ended and completed < job.total else None,
            "created_at": int(job.created),
            "in_progress_at": int(job.started) or None,
            "expires_at": int(job.expires),
            "finalizing_at": ended if job.status in (Status.COMPLETED, Status.FAILED) else None,
            "completed_at": ended if job.status in (Status.COMPLETED, Status.FAILED) else None,
            "failed_at": None,
            "expired_at": ended if job.status is Status.EXPIRED else None,
            "cancelling_at": ended if job.status is Status.CANCELLED else None,
            "cancelled_at": ended if job.status is Status.CANCELLED else None,
            "request_counts": {"total": job.total, "completed": completed, "failed": failed},
            "metadata": note["metadata"],
        }


class _Models:
    """Looks names up, each once: a file names the same one 50,000 times."""

    def __init__(self, catalog: CatalogPort, account: AccountId, allowed: frozenset[str] | None) -> None:
        """`allowed`: those that the caller's key is for; None: all."""
        self._catalog = catalog
        self._account = account
        self._allowed = allowed
        self._known: dict[str, ModelName] = {}

    def find(self, name: str) -> ModelName:
        """Raises UnknownModel and its like."""
        found = self._known.get(name)
        if found is None:
            found = self._catalog.resolve(parse_reference(name), self._account).entry.name
            if self._allowed is not None and found not in self._allowed:
                raise ModelNotAllowed(f"this key is for other models than '{found}'")
            self._known[name] = found
        return found


def _asked(body: bytes) -> Asked:
    fields_of(body)
    try:
        asked = msgspec.json.decode(body, type=Asked)
    except msgspec.ValidationError as error:
        raise BadRequest(str(error).replace("`", "'")) from None
    if asked.endpoint not in ENDPOINTS:
        raise BadRequest(f"'endpoint' must be one of {', '.join(ENDPOINTS)}")
    metadata = asked.metadata or {}
    if len(metadata) > MOST_METADATA or any(len(name) > LONGEST_NAME or len(text) > LONGEST_VALUE for name, text in metadata.items()):
        raise BadRequest(f"'metadata' holds at most {MOST_METADATA} pairs of {LONGEST_NAME} and {LONGEST_VALUE} characters")
    return asked


def _window_s(text: str) -> float:
    found = _WINDOW.match(text)
    window_s = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if not 0 < window_s <= LONGEST_WINDOW_S:
        raise BadRequest("'completion_window' must be a time such as 24h (s, m, h or d; 30d at most)")
    return window_s


async def _told(pieces: AsyncIterator[bytes], tell: Callable[[bytes], None]) -> AsyncIterator[bytes]:
    """The same pieces, each of which `tell` gets as well."""
    async for piece in pieces:
        tell(piece)
        yield piece


async def _asks(lines: AsyncIterator[bytes], endpoint: str, models: _Models) -> AsyncIterator[Ask]:
    """Raises BadRequest, which names the line."""
    seen: set[str] = set()
    number = 0
    async for line in lines:
        number += 1
        # Blank ones are no requests, but somebody has to look at them.
        if number > 2 * MOST_LINES:
            raise BadRequest(f"the file holds more than {2 * MOST_LINES} lines")
        if not line.strip():
            continue
        if len(seen) >= MOST_LINES:
            raise BadRequest(f"the file holds more than {MOST_LINES} requests")
        try:
            ask = _ask(line, endpoint, models)
        except FornadaError as refusal:
            raise BadRequest(f"line {number} of the file: {refusal.message}") from None
        if ask.reference in seen:
            raise BadRequest(f"line {number} of the file: its 'custom_id' has come before")
        seen.add(ask.reference or "")
        yield ask
    if not seen:
        raise BadRequest("the file holds no requests: one JSON object a line, with custom_id, method, url and body")


def _ask(line: bytes, endpoint: str, models: _Models) -> Ask:
    fields = fields_of(line)
    given = {name: value_of(fields[name]) if name in fields else None for name in ("custom_id", "method", "url")}
    id = given["custom_id"]
    if not isinstance(id, str) or not 0 < len(id) <= LONGEST_ID:
        raise BadRequest(f"'custom_id' must be a text of 1 to {LONGEST_ID} characters")
    if given["method"] != "POST" or given["url"] != endpoint:
        raise BadRequest(f"'method' must be POST and 'url' {endpoint}, as the batch says")
    body = bytes(fields.get("body", b""))
    asked = fields_of(body or b"null")
    name = value_of(asked["model"]) if "model" in asked else None
    if not isinstance(name, str):
        raise BadRequest("'body' must name its 'model'")
    return Ask(model=models.find(name), body=body, reference=id)
