"""A gateway's settings as its API says and takes them."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from fornada.core.errors import BadRequest
from fornada.core.gateway import NUMBERS, Backoff, Gateway, GatewaySettings, Technique, WhenFull, check_settings
from fornada.edge.dialects.gateway.times import text_of
from fornada.edge.json_bodies import broken

ELSEWHERE = ("byok_only", "dlp", "guardrails", "log_classification", "logpush_public_key", "otel", "spend_limits", "store_id", "stripe")
"""Settings that this node has nothing for. They may be sent as what they are by default."""
_CHOICES: Mapping[str, type[Backoff | Technique | WhenFull]] = {
    "rate_limiting_technique": Technique,
    "retry_backoff": Backoff,
    "log_management_strategy": WhenFull,
}
_FLAGS = ("cache_invalidate_on_update", "collect_logs", "authentication", "logpush", "zdr")


Change = Callable[[GatewaySettings], GatewaySettings]
"""What a body says about settings; what it leaves out stays as it was."""


def read_settings(body: bytes) -> tuple[str | None, Change]:
    """The `id` that a body names, and what it says. Raises BadRequest, which names the field."""
    try:
        given = msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.ValidationError:
        raise BadRequest("Type mismatch of '/', the body must be a JSON object") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise broken(error) from None
    id = given.get("id")
    if id is not None and not isinstance(id, str):
        raise BadRequest("Type mismatch of '/id', it must be a string")
    for name in ELSEWHERE:
        if given.get(name) not in (None, False, [], {}) and not _is_off(given[name]):
            raise BadRequest(f"'{name}' is nothing that this node has")
    values = {name: _whole(given[name]) for name in GatewaySettings.__struct_fields__ if name in given}
    for name in _FLAGS:
        if name in values and values[name] is None:
            del values[name]
    try:
        checked = check_settings(msgspec.convert(values, GatewaySettings))
    except msgspec.ValidationError as error:
        where = str(error).rpartition("$.")[2].rstrip("`")
        raise BadRequest(f"Type mismatch of '/{where}': {str(error).partition(' - ')[0]}") from None
    changes = {name: getattr(checked, name) for name in values}
    return id, lambda before: msgspec.structs.replace(before, **changes)


def _whole(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _is_off(value: object) -> bool:
    """Clients send back what they were told: something that is there, and not enabled."""
    return isinstance(value, dict) and value.get("enabled") is False


def shown(gateway: Gateway) -> dict[str, Any]:
    """A gateway as the API tells it."""
    settings = msgspec.to_builtins(gateway.settings)
    return {
        "id": gateway.id,
        "is_default": gateway.id == "default",
        "created_at": text_of(gateway.created),
        "modified_at": text_of(gateway.modified),
        **settings,
    }


def _nullable(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": [kind, "null"], **more}


SETTINGS: dict[str, Any] = {
    **{name: {"type": "boolean"} for name in _FLAGS},
    **{name: _nullable("integer", minimum=bounds.least, maximum=bounds.most) for name, bounds in NUMBERS.items()},
    **{name: {"enum": [*choices, None]} for name, choices in _CHOICES.items()},
}
"""JSON Schemas of the settings by their names."""
GATEWAY: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "is_default": {"type": "boolean"},
        "created_at": {"type": "string", "format": "date-time"},
        "modified_at": {"type": "string", "format": "date-time"},
        **SETTINGS,
    },
    "required": ["id", "created_at", "modified_at", "cache_invalidate_on_update", "collect_logs"],
}
