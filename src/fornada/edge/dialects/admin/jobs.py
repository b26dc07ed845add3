"""`/api/v1/jobs/{id}`: how far a job of either batch API is, and its end before its time."""

import msgspec

from fornada.core.errors import DiskFull, UnknownJob
from fornada.core.jobs import Job, JobId, JobsPort, Status
from fornada.core.keys import Role
from fornada.edge.calls import Call, Operation, Reply, Route, json_reply
from fornada.edge.problems import Style
from fornada.telemetry.times import rfc3339

BASE = "/api/v1/jobs"
_STATUS = {"enum": [status.value for status in Status]}
_TIME = {"type": ["string", "null"], "format": "date-time"}
JOB = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "account": {"type": "string"},
        "model": {"type": "string"},
        "status": _STATUS,
        "created_at": _TIME,
        "started_at": _TIME,
        "ended_at": _TIME,
        "expires_at": _TIME,
        "counts": {"type": "object", "description": "Items of each status", "additionalProperties": {"type": "integer"}},
        "items": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"index": {"type": "integer"}, "status": _STATUS},
                "required": ["index", "status"],
            },
        },
    },
    "required": ["id", "account", "model", "status", "created_at", "started_at", "ended_at", "expires_at", "counts", "items"],
}


def job_routes(*, jobs: JobsPort) -> list[Route]:
    async def one(call: Call) -> Reply:
        return json_reply(shown(jobs, jobs.job(JobId(call.parameters["id"]), call.facts.caller.within)))

    async def cancel(call: Call) -> Reply:
        return json_reply(shown(jobs, jobs.cancel(JobId(call.parameters["id"]), call.facts.caller.within)))

    return [
        Route(
            f"{BASE}/{{id}}", Style.SUPERSET, {"GET": Operation("getJob", "How far a job is", JOB, one, Role.USER, errors=(UnknownJob,))}
        ),
        Route(
            f"{BASE}/{{id}}/cancel",
            Style.SUPERSET,
            {
                "POST": Operation(
                    "cancelJob",
                    "End a job; what it has answered stays, and one that has ended too",
                    JOB,
                    cancel,
                    Role.USER,
                    errors=(UnknownJob, DiskFull),
                )
            },
        ),
    ]


def shown(jobs: JobsPort, job: Job) -> dict[str, object]:
    """The job as people see it."""
    statuses = jobs.statuses(job)
    counts = jobs.counts(job)
    return {
        "id": job.id,
        "account": job.account,
        "model": job.model,
        "status": job.status.value,
        "created_at": _time(job.created),
        "started_at": _time(job.started),
        "ended_at": _time(job.ended),
        "expires_at": _time(job.expires),
        "counts": {status.value: counts[status] for status in Status if counts.get(status)},
        "items": [_Item(number, status) for number, status in enumerate(statuses)],
    }


class _Item(msgspec.Struct):
    """Of 50,000 each takes what others wait for."""

    index: int
    status: Status


def _time(seconds: float) -> str | None:
    return rfc3339(seconds) if seconds else None
