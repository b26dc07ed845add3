"""A log as the API tells it, and what may be said about it afterwards."""

from typing import Any

import msgspec

from fornada.core.gateway import LONGEST_METADATA, Log, Payload
from fornada.edge.body_schemas import BodySchema
from fornada.edge.dialects.gateway.times import text_of
from fornada.edge.gateway.asked import entries_of
from fornada.edge.json_bodies import fields_of, value_of

HEAD_BYTES = 4096
"""Of a body that a log shows; the whole of what is kept has routes of its own."""
PATCH_BODY = BodySchema(
    {
        "type": "object",
        "properties": {
            "feedback": {"enum": [-1, 0, 1, None]},
            "score": {"type": ["number", "null"], "minimum": 0, "maximum": 100},
            "metadata": {
                "type": ["object", "null"],
                "propertyNames": {"maxLength": LONGEST_METADATA},
                "additionalProperties": {"type": ["string", "number", "boolean"], "maxLength": LONGEST_METADATA},
            },
        },
        "additionalProperties": False,
    }
)


class Patch(msgspec.Struct, frozen=True):
    """What a caller says about an answer. UNSET: nothing; None: what was said is taken back."""

    feedback: float | msgspec.UnsetType | None = msgspec.UNSET
    score: float | msgspec.UnsetType | None = msgspec.UNSET
    metadata: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET

    def applied(self, log: Log) -> Log:
        """The log with what this says."""
        changes: dict[str, Any] = {}
        if self.feedback is not msgspec.UNSET:
            changes["feedback"] = None if self.feedback is None else int(self.feedback)
        if self.score is not msgspec.UNSET:
            changes["score"] = self.score
        if self.metadata is not msgspec.UNSET:
            changes["metadata"] = entries_of(self.metadata or {}, "metadata")
        return msgspec.structs.replace(log, **changes)


def read_patch(body: bytes) -> Patch:
    """Raises BadRequest, which names the field."""
    given = {name: value_of(raw) for name, raw in fields_of(body or b"{}").items()}
    PATCH_BODY.check(given)
    return msgspec.convert(given, Patch)


def shown_log(log: Log, payload: Payload | None = None) -> dict[str, Any]:
    """A log as the API tells it; with `payload` also the beginnings of its bodies."""
    found: dict[str, Any] = {
        "id": log.id,
        "created_at": text_of(log.created),
        "provider": log.provider,
        "model": log.model,
        "model_type": log.model_type,
        "path": log.path,
        "duration": log.duration_ms,
        "request_type": log.request_type,
        "request_content_type": log.request_content_type,
        "response_content_type": log.response_content_type,
        "status_code": log.status_code,
        "success": log.success,
        "cached": log.cached,
        "tokens_in": log.tokens_in,
        "tokens_out": log.tokens_out,
        "cost": log.cost,
        "custom_cost": log.custom_cost,
        "step": log.step,
        "attempts": log.attempts,
        "metadata": msgspec.json.encode(log.metadata).decode(),
        "event_id": log.event_id,
        "feedback": log.feedback,
        "score": log.score,
        "request_size": log.request_size,
        "response_size": log.response_size,
    }
    if payload is not None:
        found["request_head"], found["request_head_complete"] = _head(payload.request, log.request_complete)
        found["response_head"], found["response_head_complete"] = _head(payload.response, log.response_complete)
    return found


def _head(body: bytes, complete: bool) -> tuple[str, bool]:
    return body[:HEAD_BYTES].decode(errors="replace"), complete and len(body) <= HEAD_BYTES
