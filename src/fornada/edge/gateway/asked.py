"""What a request asks of its gateway: `cf-aig-*` headers, the binding's `gateway` options, an entry's `config`."""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from fornada.core.errors import BadRequest
from fornada.core.gateway import (
    LEAST_TTL_S,
    LONGEST_KEY,
    LONGEST_METADATA,
    MOST_ATTEMPTS,
    MOST_DELAY_MS,
    MOST_METADATA,
    MOST_TIMEOUT_MS,
    MOST_TTL_S,
    Asked,
    Backoff,
    CustomCost,
    Metadata,
    Number,
)
from fornada.edge.calls import Parameter
from fornada.edge.headers import Facts

ATTEMPTS = Number(1, MOST_ATTEMPTS)
DELAY_MS = Number(0, MOST_DELAY_MS)
TIMEOUT_MS = Number(1, MOST_TIMEOUT_MS)
TTL_S = Number(LEAST_TTL_S, MOST_TTL_S)

T = TypeVar("T")


def asked_of_headers(facts: Facts) -> Asked:
    """Raises BadRequest, which names the header."""
    named = {key.lower(): value.decode("latin-1").strip() for key, value in facts.fields if key[:3].lower() == b"cf-"}

    def read(read_as: Callable[[str, str], T], *names: bytes) -> T | None:
        found = next((name for name in names if name in named), None)
        return None if found is None else read_as(found.decode(), named[found])

    return Asked(
        skip_cache=read(_truth, b"cf-aig-skip-cache", b"cf-skip-cache"),
        cache_ttl_s=read(_ttl_s, b"cf-aig-cache-ttl", b"cf-cache-ttl"),
        cache_key=read(_word, b"cf-aig-cache-key"),
        collect_log=read(_truth, b"cf-aig-collect-log"),
        collect_payload=read(_truth, b"cf-aig-collect-log-payload"),
        zdr=read(_truth, b"cf-aig-zdr"),
        metadata=read(_metadata, b"cf-aig-metadata") or {},
        event_id=read(_word, b"cf-aig-event-id"),
        timeout_ms=read(_within(TIMEOUT_MS), b"cf-aig-request-timeout"),
        max_attempts=read(_within(ATTEMPTS), b"cf-aig-max-attempts"),
        retry_delay_ms=read(_within(DELAY_MS), b"cf-aig-retry-delay"),
        backoff=read(_backoff, b"cf-aig-backoff"),
        custom_cost=read(_custom_cost, b"cf-aig-custom-cost"),
    )


def asked_of_options(options: Mapping[str, Any]) -> Asked:
    """Of the `gateway` object in a binding's options; its `id` is somebody else's business. Raises BadRequest, which names the field."""
    retries = options.get("retries") or {}
    if not isinstance(retries, dict):
        raise BadRequest("Type mismatch of '/options/gateway/retries', it must be an object")
    metadata = options.get("metadata")
    if not isinstance(metadata, dict | None):
        raise BadRequest("Type mismatch of '/options/gateway/metadata', it must be an object")
    ttl_s = _number(options, "cacheTtl", Number(0, MOST_TTL_S))
    return Asked(
        skip_cache=_flag(options, "skipCache"),
        cache_ttl_s=ttl_s,
        cache_key=_text(options, "cacheKey"),
        collect_log=_flag(options, "collectLog"),
        metadata=entries_of(metadata or {}, "gateway.metadata"),
        event_id=_text(options, "eventId"),
        timeout_ms=_number(options, "requestTimeoutMs", TIMEOUT_MS),
        max_attempts=_number(retries, "maxAttempts", ATTEMPTS),
        retry_delay_ms=_number(retries, "retryDelayMs", DELAY_MS),
        backoff=_backoff_of(retries),
    )


def with_config(asked: Asked, config: Mapping[str, Any]) -> Asked:
    """An entry's `config` beats what the whole request says. Raises BadRequest, which names the field."""
    own: dict[str, Any] = {
        "skip_cache": _flag(config, "skipCache"),
        "cache_ttl_s": _number(config, "cacheTtl", Number(0, MOST_TTL_S)),
        "cache_key": _text(config, "cacheKey"),
        "timeout_ms": _number(config, "requestTimeout", TIMEOUT_MS),
        "max_attempts": _number(config, "maxAttempts", ATTEMPTS),
        "retry_delay_ms": _number(config, "retryDelay", DELAY_MS),
        "backoff": _backoff_of(config),
    }
    return msgspec.structs.replace(asked, **{name: value for name, value in own.items() if value is not None})


def entries_of(value: Mapping[str, Any], name: str) -> Metadata:
    """The first MOST_METADATA entries of metadata. Raises BadRequest."""
    found: dict[str, str | float | bool] = {}
    for key, each in list(value.items())[:MOST_METADATA]:
        if not isinstance(each, str | int | float):
            raise BadRequest(f"'{name}': the value of '{key[:64]}' must be a text, a number or a boolean")
        if len(key) > LONGEST_METADATA or (isinstance(each, str) and len(each) > LONGEST_METADATA):
            raise BadRequest(f"'{name}': keys and values have at most {LONGEST_METADATA} characters")
        found[key] = each
    return found


def _truth(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise BadRequest(f"'{name}' must be true or false")
    return text.lower() == "true"


def _whole(name: str, text: str, bounds: Number) -> int:
    if not re.fullmatch(r"-?\d{1,15}", text):
        raise BadRequest(f"'{name}' must be a whole number from {bounds.least} to {bounds.most}")
    return bounds.checked(name, int(text))


def _within(bounds: Number) -> Callable[[str, str], int]:
    return lambda name, text: _whole(name, text, bounds)


def _ttl_s(name: str, text: str) -> int:
    return 0 if text == "0" else _whole(name, text, TTL_S)


def _word(name: str, text: str) -> str:
    if not 0 < len(text) <= LONGEST_KEY or not text.isprintable():
        raise BadRequest(f"'{name}' must be 1 to {LONGEST_KEY} printable characters")
    return text


def _backoff(name: str, text: str) -> Backoff:
    try:
        return Backoff(text.lower())
    except ValueError:
        raise BadRequest(f"'{name}' must be one of {', '.join(Backoff)}") from None


def _metadata(name: str, text: str) -> Metadata:
    return entries_of(_object(name, text), name)


def _custom_cost(name: str, text: str) -> CustomCost:
    try:
        return msgspec.convert(_object(name, text), CustomCost)
    except msgspec.ValidationError as error:
        raise BadRequest(f"'{name}': {error}") from None


def _object(name: str, text: str) -> dict[str, Any]:
    try:
        # Header values came as latin-1; JSON in them is mostly UTF-8.
        value = msgspec.json.decode(text.encode("latin-1"))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise BadRequest(f"'{name}' must be a JSON object")
    return value


def _flag(options: Mapping[str, Any], name: str) -> bool | None:
    value = options.get(name)
    if not isinstance(value, bool | None):
        raise BadRequest(f"Type mismatch of '{name}', it must be a boolean")
    return value


def _number(options: Mapping[str, Any], name: str, bounds: Number) -> int | None:
    value = options.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise BadRequest(f"Type mismatch of '{name}', it must be a whole number from {bounds.least} to {bounds.most}")
    return bounds.checked(name, int(value))


def _text(options: Mapping[str, Any], name: str) -> str | None:
    value = options.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise BadRequest(f"Type mismatch of '{name}', it must be a string")
    return _word(name, value)


def _backoff_of(options: Mapping[str, Any]) -> Backoff | None:
    value = _text(options, "backoff")
    return None if value is None else _backoff("backoff", value)


_BOOLEAN = {"enum": ["true", "false"]}


def _bounds(bounds: Number) -> Mapping[str, Any]:
    return {"type": "integer", "minimum": bounds.least, "maximum": bounds.most}


ASKED_HEADERS = (
    Parameter("cf-aig-skip-cache", "true: neither take a kept answer nor keep this one", _BOOLEAN, place="header"),
    Parameter("cf-aig-cache-ttl", "Seconds that this answer may be kept; 0: not at all", {"type": "integer"}, place="header"),
    Parameter("cf-aig-cache-key", "Stands for the request when kept answers are looked for", place="header"),
    Parameter("cf-aig-metadata", f"JSON object; of more than {MOST_METADATA} entries the first ones are kept with the log", place="header"),
    Parameter("cf-aig-collect-log", "Whether this request is written down", _BOOLEAN, place="header"),
    Parameter("cf-aig-collect-log-payload", "Whether its log may hold what was asked and answered", _BOOLEAN, place="header"),
    Parameter("cf-aig-zdr", "true: nothing of this request is kept or written down", _BOOLEAN, place="header"),
    Parameter("cf-aig-authorization", "Bearer KEY, where Authorization says something else", place="header"),
    Parameter("cf-aig-event-id", "Kept with the log, and echoed", place="header"),
    Parameter("cf-aig-request-timeout", "Milliseconds until the first byte of an answer", _bounds(TIMEOUT_MS), place="header"),
    Parameter("cf-aig-max-attempts", "How often it is tried at most", _bounds(ATTEMPTS), place="header"),
    Parameter("cf-aig-retry-delay", "Milliseconds between two attempts", _bounds(DELAY_MS), place="header"),
    Parameter("cf-aig-backoff", "How the delay grows", {"enum": list(Backoff)}, place="header"),
    Parameter("cf-aig-custom-cost", "JSON object with per_token_in and per_token_out, or total_cost, in dollars", place="header"),
)
"""Request headers, for the API's description."""
