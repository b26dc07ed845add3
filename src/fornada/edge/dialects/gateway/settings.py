"""A gateway's settings as its API says and takes them: by one schema, which /openapi.json publishes and every body is checked against."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from fornada.core.errors import BadRequest
from fornada.core.gateway import ID_PATTERN, NUMBERS, Backoff, Gateway, GatewayId, GatewaySettings, Technique, WhenFull
from fornada.edge.body_schemas import BodySchema
from fornada.edge.dialects.gateway.times import text_of
from fornada.edge.json_bodies import fields_of, value_of

_FLAGS = ("cache_invalidate_on_update", "collect_logs", "authentication", "zdr")
_CHOICES: Mapping[str, type[Backoff | Technique | WhenFull]] = {
    "rate_limiting_technique": Technique,
    "retry_backoff": Backoff,
    "log_management_strategy": WhenFull,
}
_NOTHING = {"description": "This node has nothing of the kind, so that it takes no more than 'off'"}
_OFF: dict[str, Any] = {
    "type": ["object", "null"],
    "properties": {"enabled": {"enum": [False], **_NOTHING}},
    "anyOf": [{"maxProperties": 0}, {"required": ["enabled"]}],
    **_NOTHING,
}
"""Clients send back what they were told: something that is there, and not enabled."""
_UNSAID = {"type": ["object", "null"], "maxProperties": 0, **_NOTHING}
_ELSEWHERE: dict[str, Any] = {
    **{name: {"enum": [False, None], **_NOTHING} for name in ("byok_only", "log_classification", "logpush")},
    **{name: {"type": "null", **_NOTHING} for name in ("logpush_public_key", "store_id")},
    **dict.fromkeys(("dlp", "spend_limits"), _OFF),
    "guardrails": {
        "type": ["object", "null"],
        "properties": {"prompt": _UNSAID, "response": _UNSAID},
        "additionalProperties": False,
        **_NOTHING,
    },
    "otel": {"enum": [[], None], **_NOTHING},
    "stripe": _UNSAID,
    "workers_ai_billing_mode": {"enum": ["postpaid", None], **_NOTHING},
}
"""Settings that this node has nothing for. They may be sent as what they are by default."""
_TOLD: dict[str, Any] = {
    name: {**schema, "readOnly": True, "description": "As it was told; it changes nothing"}
    for name, schema in (
        ("is_default", {"type": "boolean"}),
        ("created_at", {"type": "string", "format": "date-time"}),
        ("modified_at", {"type": "string", "format": "date-time"}),
    )
}
"""Of an answer that a client sends back whole."""
_ID = {"type": "string", "pattern": f"^{ID_PATTERN}$"}


def _nullable(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": [kind, "null"], **more}


_KEPT: dict[str, Any] = {
    **{name: _nullable("integer", minimum=bounds.least, maximum=bounds.most) for name, bounds in NUMBERS.items()},
    **{name: {"enum": [*choices, None]} for name, choices in _CHOICES.items()},
}
_BODY: dict[str, Any] = {
    "type": "object",
    "properties": {"id": _ID, **{name: _nullable("boolean") for name in _FLAGS}, **_KEPT, **_ELSEWHERE, **_TOLD},
    "additionalProperties": False,
}
CREATE_BODY = BodySchema({**_BODY, "required": ["id"]})
UPDATE_BODY = BodySchema(_BODY)
GATEWAY: dict[str, Any] = {
    "type": "object",
    "properties": {"id": _ID, **_TOLD, **{name: {"type": "boolean"} for name in _FLAGS}, **_KEPT},
    "required": ["id", "created_at", "modified_at", "cache_invalidate_on_update", "collect_logs"],
}
"""JSON Schema of a gateway as the API tells it."""

Change = Callable[[GatewaySettings], GatewaySettings]
"""What a body says about settings; what it leaves out stays as it was."""


def read_new(body: bytes) -> tuple[GatewayId, GatewaySettings]:
    """A gateway that is to be made. Raises BadRequest, which names the field."""
    given = _read(CREATE_BODY, body)
    return GatewayId(given["id"]), _change(given)(GatewaySettings())


def read_change(body: bytes, id: GatewayId) -> Change:
    """What is to become of the settings of the gateway `id`. Raises BadRequest, which names the field."""
    given = _read(UPDATE_BODY, body)
    if given.get("id", id) != id:
        raise BadRequest(f"'/id' must be that of the path, '{id}': a gateway keeps its name")
    return _change(given)


def _read(schema: BodySchema, body: bytes) -> dict[str, Any]:
    # With its nulls, other than BodySchema.fields: they say "none", and what isn't there says "as before".
    given = {name: value_of(raw) for name, raw in fields_of(body).items()}
    schema.check(given)
    return given


def _change(given: Mapping[str, Any]) -> Change:
    values = {
        name: int(value) if isinstance(value, float) else value  # 60.0, which the schema takes for an integer
        for name, value in given.items()
        if name in GatewaySettings.__struct_fields__ and not (name in _FLAGS and value is None)
    }
    read = msgspec.convert(values, GatewaySettings)
    changes = {name: getattr(read, name) for name in values}
    return lambda before: msgspec.structs.replace(before, **changes)


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
