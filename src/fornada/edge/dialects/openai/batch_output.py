"""The lines that a batch leaves: those with an answer in one file, those without in another, each under its `custom_id`.

They are made from the answers whenever somebody reads them; nothing of them is kept twice.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple

import msgspec

from fornada.core.errors import UnknownFile, UnknownJob
from fornada.core.jobs import ENDED, Job, JobId, JobsPort, Result, Status
from fornada.core.names import AccountId

KIND = "openai"
_OUTPUT, _ERRORS = "file-output-", "file-errors-"
_AT_ONCE = 64 * 1024
"""Bytes of one piece of a file, about."""
_UNDONE = {
    Status.EXPIRED: ("batch_expired", "This request could not be executed before the completion window expired."),
    Status.CANCELLED: ("batch_cancelled", "This request was not executed because the batch was cancelled."),
}


class OutputId(NamedTuple):
    """A file of a batch."""

    job: JobId
    errors: bool


def output_id(job: JobId) -> str:
    return _OUTPUT + job


def errors_id(job: JobId) -> str:
    return _ERRORS + job


def parse_output(id: str) -> OutputId | None:
    """None for any other file's id."""
    for prefix, errors in ((_OUTPUT, False), (_ERRORS, True)):
        if id.startswith(prefix):
            return OutputId(JobId(id.removeprefix(prefix)), errors)
    return None


async def output_file(jobs: JobsPort, output: OutputId, account: AccountId) -> dict[str, Any]:
    """As OpenAI shows a file. Raises UnknownFile."""
    job = _job(jobs, output, account)
    size = 0
    async for piece in _pieces(jobs, job, errors=output.errors):
        size += len(piece)
    return {
        "id": (_ERRORS if output.errors else _OUTPUT) + job.id,
        "object": "file",
        "bytes": size,
        "created_at": int(job.ended),
        "filename": f"{job.id}_{'error' if output.errors else 'output'}.jsonl",
        "purpose": "batch_output",
        "status": "processed",
    }


def output_bytes(jobs: JobsPort, output: OutputId, account: AccountId) -> AsyncIterator[bytes]:
    """Raises UnknownFile, before the first piece is asked for."""
    return _pieces(jobs, _job(jobs, output, account), errors=output.errors)


def _job(jobs: JobsPort, output: OutputId, account: AccountId) -> Job:
    try:
        job = jobs.job(output.job, account)
    except UnknownJob:
        raise UnknownFile(f"no such file: there is no batch '{output.job[:64]}'") from None
    if job.kind != KIND or job.status not in ENDED:
        raise UnknownFile(f"the batch {job.id} has no such file yet")
    return job


async def _pieces(jobs: JobsPort, job: Job, *, errors: bool) -> AsyncIterator[bytes]:
    """Others get their turn between two of them."""
    piece = b""
    for line in _lines(jobs, job, errors=errors):
        piece += line
        if len(piece) >= _AT_ONCE:
            yield piece
            piece = b""
            await asyncio.sleep(0)
    if piece:
        yield piece


def _lines(jobs: JobsPort, job: Job, *, errors: bool) -> Iterator[bytes]:
    for result in jobs.results(job):
        if errors != (result.status is Status.COMPLETED):
            yield _line(job, result)


def _line(job: Job, result: Result) -> bytes:
    said: dict[str, Any] = {"id": f"batch_req_{job.id.removeprefix('batch_')}-{result.number}", "custom_id": result.reference}
    if result.outcome is not None:
        outcome = result.outcome
        response = {"status_code": outcome.http_status, "request_id": outcome.request_id, "body": msgspec.Raw(outcome.body or b"null")}
        said.update(response=response, error=None)
    else:
        code, message = _UNDONE.get(result.status, ("batch_failed", "This request was not executed."))
        said.update(response=None, error={"code": code, "message": message})
    return msgspec.json.encode(said) + b"\n"
