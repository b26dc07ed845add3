"""Refusals as HTTP: the one place that knows status codes.

    error ── status_of ──► status        one row a class, the same in every dialect but for two (`_ELSEWHERE`)
          ── message_of ─► text          with the prefixes that Workers AI's clients know
          ── problem ────► Problem       status line's words, headers, body

Bodies come in four styles: Cloudflare's envelope under /client/v4, what the Workers runtime reads of its binding, under /v2 and for
TensorFlow Serving's verbs a body whose `error` is the text that their clients look for, and the superset body that OpenAI's, Anthropic's
and Cloudflare's SDKs all read, everywhere else.
"""

import enum
import http
import math
from typing import Any, NamedTuple

import msgspec

from fornada.core import errors
from fornada.core.errors import FornadaError

Header = tuple[bytes, bytes]


class Style(enum.Enum):
    """Shape of an error body."""

    ENVELOPE = "envelope"
    SUPERSET = "superset"
    BINDING = "binding"
    TEXT = "text"
    """The superset with a text as its `error`."""


class Problem(NamedTuple):
    """An error, ready to be sent."""

    status: int
    headers: tuple[Header, ...]
    body: bytes
    close: bool
    """The connection ends after it."""


STATUS: dict[type[FornadaError], int] = {
    errors.BadRequest: 400,
    errors.JsonModeUnmet: 400,
    errors.UnknownModel: 400,
    errors.UnknownJob: 404,
    errors.UnknownFile: 404,
    errors.UnknownFinetune: 404,
    errors.FinetuneIncomplete: 400,
    errors.TooManyFinetunes: 409,
    errors.LoraUnsupported: 405,
    errors.UnknownResponse: 404,
    errors.UnknownGateway: 404,
    errors.UnknownLog: 404,
    errors.UnknownRoute: 400,
    errors.MethodNotAllowed: 405,
    errors.TooLarge: 413,
    errors.HeadersTooLarge: 431,
    errors.TooSlow: 408,
    errors.Unauthorized: 401,
    errors.Forbidden: 403,
    errors.ForeignOrigin: 403,
    errors.ModelNotAllowed: 403,
    errors.RateLimited: 429,
    errors.QuotaUsedUp: 429,
    errors.InvalidSpec: 400,
    errors.Conflict: 409,
    errors.Busy: 429,
    errors.DeadlinePassed: 408,
    errors.Unavailable: 503,
    errors.NeverFits: 503,
    errors.DiskFull: 507,
    errors.RunnerDied: 502,
    errors.LoadFailed: 503,
    errors.ModelRaised: 500,
    errors.OutOfDeviceMemory: 503,
    errors.InternalFault: 500,
}
# Cloudflare answers 400 where everybody else expects 404.
_ELSEWHERE: dict[type[FornadaError], int] = {errors.UnknownModel: 404, errors.UnknownRoute: 404}

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
    431: "invalid_request_error",
    502: "api_error",
    503: "overloaded_error",
}
_RETRY_LATER = (errors.Busy, errors.Unavailable, errors.DiskFull, errors.LoadFailed, errors.OutOfDeviceMemory)
_SHORTEST_RETRY_S = 1.0

SWITCHING = 101
"""Of the answer that makes a connection a WebSocket."""
_CALLERS_FAULT, _TRY_LATER, _OUR_FAULT = 1008, 1013, 1011
"""Codes of a WebSocket's Close (RFC 6455, 7.4.1, and the registry beside it)."""
MODEL_REFUSAL_CODE = 3030
"""A refusal that model code wrote itself, with a status of its own (WORKERS_AI.md: "model-level error passed through")."""
ROUTE_BELOW_ACCOUNT_CODE = 7003


def status_of(error: type[FornadaError], style: Style) -> int:
    """HTTP status of a kind of refusal. A class without a row takes its parent's."""
    for kind in error.__mro__:
        if style not in (Style.ENVELOPE, Style.BINDING) and kind in _ELSEWHERE:
            return _ELSEWHERE[kind]
        if kind in STATUS:
            return STATUS[kind]
    return STATUS[errors.InternalFault]


def phrase(status: int) -> str:
    """The words of a status line; empty for a number that has none."""
    try:
        return http.HTTPStatus(status).phrase
    except ValueError:
        return ""


def bodiless(status: int) -> bool:
    """Statuses whose responses never have a body."""
    return status < 200 or status in (204, 304)


def is_success(status: int) -> bool:
    return 200 <= status < 300


def is_refusal_of_model(status: int) -> bool:
    """What model code may ask for beyond success: refusals that are the caller's to mend."""
    return 400 <= status < 500


def message_of(error: FornadaError, style: Style, trace_id: str, *, from_model: bool = False) -> str:
    """The text of a refusal. `from_model` tells what came back from beyond the queue from what the edge found itself."""
    message = error.message
    if style is not Style.ENVELOPE and not isinstance(error, errors.Busy):
        return message
    match error:
        case errors.Busy():
            return f"Capacity temporarily exceeded, please try again. ({message})"
        case errors.DeadlinePassed():
            return f"AiError: AiError: Request timeout: {message} ({trace_id})"
        case errors.ModelFault() | errors.InternalFault():
            return f"AiError: AiError: {message} ({trace_id})"
        case errors.BadRequest() if from_model:
            return f"AiError: AiError: {message} ({trace_id})"
        case errors.BadRequest():
            return f"AiError: Bad input: Error: {message}"
        case _:
            return message


def error_object(error: FornadaError, style: Style, trace_id: str, *, from_model: bool = False) -> dict[str, Any]:
    """The body of a refusal before it is encoded."""
    message = message_of(error, style, trace_id, from_model=from_model)
    items = [{"code": error.code, "message": message}]
    if style is Style.ENVELOPE:
        return {"result": {}, "success": False, "errors": items, "messages": []}
    if style is Style.BINDING:
        long = message_of(error, Style.ENVELOPE, trace_id, from_model=from_model)
        return _binding(error.code, status_of(type(error), style), long, message, trace_id)
    found = _superset(error.code, status_of(type(error), style), message)
    return {**found, "error": message} if style is Style.TEXT else found


def _superset(code: int, status: int, message: str) -> dict[str, Any]:
    return {
        "type": "error",
        "error": {"message": message, "type": _TYPES.get(status, "api_error"), "param": None, "code": str(code)},
        "success": False,
        "errors": [{"code": code, "message": message}],
        "result": {},
        "messages": [],
    }


def _binding(code: int, status: int, message: str, description: str, trace_id: str) -> dict[str, Any]:
    """`run` of the binding reads `internalCode`, its other calls `errors`."""
    return {
        "internalCode": code,
        "name": "AiError",
        "message": message if message.startswith("AiError: ") else f"AiError: {message}",
        "description": description,
        "httpCode": status,
        "requestId": trace_id,
        "result": {},
        "success": False,
        "errors": [{"code": code, "message": description}],
        "messages": [],
    }


def problem(error: FornadaError, style: Style, trace_id: str, *, from_model: bool = False, headers: tuple[Header, ...] = ()) -> Problem:
    """A refusal, ready to be sent; `headers` come on top of those that its class asks for."""
    body = msgspec.json.encode(error_object(error, style, trace_id, from_model=from_model))
    return Problem(status_of(type(error), style), headers + _headers(error), body, isinstance(error, errors.Unavailable))


def model_refusal(status: int, message: str) -> bytes:
    """The superset body of a refusal that model code wrote itself, with a status of its own."""
    text = message or "the model refused the request"
    return msgspec.json.encode(_superset(MODEL_REFUSAL_CODE, status, text))


def close_code(error: FornadaError) -> int:
    """With which code a WebSocket is closed that was open when this came."""
    if isinstance(error, _RETRY_LATER):
        return _TRY_LATER
    return _CALLERS_FAULT if is_refusal_of_model(status_of(type(error), Style.ENVELOPE)) else _OUR_FAULT


def binding_refusal(status: int, message: str, trace_id: str) -> bytes:
    """As `model_refusal`, for the binding; `message` may have the prefixes of the envelope's."""
    plain = message.removeprefix("AiError: ").removeprefix("AiError: ")
    return msgspec.json.encode(_binding(MODEL_REFUSAL_CODE, status, message, plain, trace_id))


def unrouted(path: str, *, below_account: bool, style: Style, trace_id: str) -> Problem:
    """No route there. Below an account Cloudflare answers two errors and 404, elsewhere one and 400."""
    error = errors.UnknownRoute("No route for that URI")
    if style is Style.ENVELOPE and below_account:
        shown = path if len(path) <= 200 else path[:200] + "…"
        first = {"code": ROUTE_BELOW_ACCOUNT_CODE, "message": f"Could not route to {shown}, perhaps your object identifier is invalid?"}
        items = [first, {"code": error.code, "message": error.message}]
        body = msgspec.json.encode({"result": None, "success": False, "errors": items, "messages": []})
        return Problem(404, (), body, False)
    return problem(error, style, trace_id)


def event_data(error: FornadaError, trace_id: str) -> bytes:
    """What an `error` event in a stream holds: one line of JSON that every SDK can read."""
    return msgspec.json.encode(error_object(error, Style.SUPERSET, trace_id, from_model=True))


def _headers(error: FornadaError) -> tuple[Header, ...]:
    found: list[Header] = []
    if error.retry_after_s is not None or isinstance(error, _RETRY_LATER):
        # Whole seconds, never 0: a client that reads 0 comes back at once, and so does everybody else.
        seconds = max(_SHORTEST_RETRY_S, error.retry_after_s or _SHORTEST_RETRY_S)
        found.append((b"retry-after", b"%d" % math.ceil(seconds)))
    if error.retry is not None:
        found.append((b"x-should-retry", b"true" if error.retry else b"false"))
    return tuple(found)
