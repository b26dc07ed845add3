"""Refusals as gRPC's status codes: the one place that knows them, as edge.problems is for HTTP."""

import math

from grpc import StatusCode  # type: ignore[import-untyped]

from fornada.core import errors
from fornada.core.errors import FornadaError

CODES: dict[type[FornadaError], StatusCode] = {
    errors.CallerFault: StatusCode.INVALID_ARGUMENT,
    errors.UnknownModel: StatusCode.NOT_FOUND,
    errors.TooLarge: StatusCode.RESOURCE_EXHAUSTED,
    errors.Unauthorized: StatusCode.UNAUTHENTICATED,
    errors.Forbidden: StatusCode.PERMISSION_DENIED,
    errors.ForeignOrigin: StatusCode.PERMISSION_DENIED,
    errors.ModelNotAllowed: StatusCode.PERMISSION_DENIED,
    errors.RateLimited: StatusCode.RESOURCE_EXHAUSTED,
    errors.QuotaUsedUp: StatusCode.RESOURCE_EXHAUSTED,
    errors.Conflict: StatusCode.FAILED_PRECONDITION,
    errors.NoCapacity: StatusCode.RESOURCE_EXHAUSTED,
    errors.DeadlinePassed: StatusCode.DEADLINE_EXCEEDED,
    errors.Unavailable: StatusCode.UNAVAILABLE,
    errors.NeverFits: StatusCode.FAILED_PRECONDITION,
    errors.ModelFault: StatusCode.INTERNAL,
    errors.LoadFailed: StatusCode.UNAVAILABLE,
    errors.OutOfDeviceMemory: StatusCode.RESOURCE_EXHAUSTED,
    errors.InternalFault: StatusCode.INTERNAL,
}


def code_of(error: FornadaError) -> StatusCode:
    """A class without a row takes its parent's."""
    for kind in type(error).__mro__:
        if kind in CODES:
            return CODES[kind]
    return StatusCode.INTERNAL


def ids(*, request_id: str, trace_id: str) -> tuple[tuple[str, str], ...]:
    """A call's two ids, as HTTP has them in headers."""
    found = [("cf-ai-req-id", trace_id)]
    if request_id.isascii():  # values of metadata are
        found.append(("x-request-id", request_id))
    return tuple(found)


def trailers(error: FornadaError, *, request_id: str, trace_id: str) -> tuple[tuple[str, str], ...]:
    """What a refusal says beside its text: the code of every other door, and what HTTP says in headers."""
    found = [("fornada-code", str(error.code)), *ids(request_id=request_id, trace_id=trace_id)]
    if error.retry_after_s is not None:
        found.append(("retry-after", str(max(1, math.ceil(error.retry_after_s)))))
    if error.retry is not None:
        found.append(("x-should-retry", "true" if error.retry else "false"))
    return tuple(found)
