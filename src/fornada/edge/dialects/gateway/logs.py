"""A log as the API tells it, and what may be said about it afterwards."""

from typing import Any

import msgspec

from fornada.core.errors import BadRequest
from fornada.core.gateway import Log, Payload
from fornada.edge.dialects.gateway.times import text_of
from fornada.edge.gateway.asked import entries_of
from fornada.edge.json_bodies import broken

HEAD_BYTES = 4096
"""Of a body that a log shows; the whole of what is kept has routes of its own."""


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
    try:
        patch = msgspec.json.decode(body or b"{}", type=Patch)
    except msgspec.ValidationError as error:
        where = str(error).rpartition("$.")[2].rstrip("`")
        raise BadRequest(f"Type mismatch of '/{where}': {str(error).partition(' - ')[0]}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise broken(error) from None
    if patch.feedback not in (msgspec.UNSET, None, -1, 0, 1):
        raise BadRequest("'feedback' must be -1, 0, 1 or null")
    if isinstance(patch.score, float) and not 0 <= patch.score <= 100:
        raise BadRequest("'score' must be a number from 0 to 100, or null")
    if isinstance(patch.metadata, dict):
        entries_of(patch.metadata, "metadata")
    return patch


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
