"""Shapes of the admin routes' answers, for /openapi.json."""

from typing import Any

Object = dict[str, Any]


def _object(properties: Object, *optional: str) -> Object:
    return {"type": "object", "properties": properties, "required": [name for name in properties if name not in optional]}


_TEXT: Object = {"type": "string"}
_COUNT: Object = {"type": "integer", "minimum": 0}
_TIME: Object = {"type": ["string", "null"], "format": "date-time"}
_MEASURE: Object = {"type": "number", "minimum": 0}
_STATES = ["stopped", "pending", "ready", "asleep", "stopping", "failed"]

_INSTANCE: Object = {
    "type": "object",
    "properties": {
        "id": _TEXT,
        "pid": {"type": ["integer", "null"]},
        "state": _TEXT,
        "step": {"type": "string", "description": "Where exactly it is: spawning, loading, warming, ready, asleep, ..."},
        "device": {"type": ["string", "null"]},
        "resident_bytes": _COUNT,
        "expected_bytes": {"type": "integer", "minimum": 0, "description": "Of its device: as measured, else as declared"},
        "charged_bytes": {"type": "integer", "minimum": 0, "description": "Of its device; slack included"},
        "because": {"enum": ["declared", "learned", "live", ""], "description": "What the charge rests on"},
        "in_flight": _COUNT,
        "queued": _COUNT,
        "loads": _COUNT,
        "idle_s": _MEASURE,
        "kept": {"type": "boolean", "description": "Pinned, or wanted by min_instances: never a victim"},
        "expected_rps": {"type": "number", "description": "Requests a second that are expected of it"},
        "value": {"type": "number", "description": "Seconds of swapping a second that its next step down would cost"},
    },
}
MODEL = _object(
    {
        "name": _TEXT,
        "aliases": {"type": "array", "items": _TEXT},
        "task": _TEXT,
        "engine": _TEXT,
        "version": {"type": "string", "description": "Digest of the version that new requests get"},
        "state": {"enum": _STATES},
        "why": {"type": "string", "description": "One sentence on the state"},
        "declared_bytes": _COUNT,
        "peak_bytes": _COUNT,
        "last_used": _TIME,
        "versions": {"type": "array", "items": {"type": "object"}},
        "instances": {"type": "array", "items": _INSTANCE},
        "pinned": {"type": "boolean"},
        "account": _TEXT,
        "description": _TEXT,
        "visibility": _TEXT,
        "progress": {"type": ["object", "null"], "description": "While pending: phase, text, fraction"},
    },
    "pinned",
    "account",
    "description",
    "visibility",
    "progress",
)
MODELS = _object({"models": {"type": "array", "items": MODEL}})
PIN: Object = {"type": "object", "properties": {"pinned": {"type": "boolean", "default": True}}, "additionalProperties": False}
WHY = _object({"model": _TEXT, "state": {"enum": _STATES}}, "model", "state")
LOG_LINE = _object(
    {"time": _TEXT, "stream": {"enum": ["stdout", "stderr", "log"]}, "line": _TEXT, "instance": _TEXT, "request_id": _TEXT},
    "instance",
    "request_id",
)
DEPLOYED = _object({"name": _TEXT, "version": _TEXT, "state": {"enum": _STATES}})
REMOVED = _object({"name": _TEXT, "removed": {"const": True}})
PRUNED = _object({"removed": {"type": "object", "additionalProperties": _COUNT}, "freed_bytes": _COUNT})
STATUS = _object({"status": _TEXT})
_HOLDER = _object(
    {
        "model": _TEXT,
        "instance": _TEXT,
        "bytes": _COUNT,
        "because": {"enum": ["declared", "learned", "live"], "description": "What the charge rests on"},
        "declared_bytes": _COUNT,
        "learned_bytes": _COUNT,
        "live_bytes": _COUNT,
        "slack_bytes": _COUNT,
    }
)
DEVICE = _object(
    {
        "id": _TEXT,
        "total_bytes": _COUNT,
        "reserved_bytes": _COUNT,
        "used_bytes": _COUNT,
        "foreign_bytes": {"type": "integer", "minimum": 0, "description": "Held by others than models"},
        "lingering_bytes": {"type": "integer", "minimum": 0, "description": "Of processes that are gone, not yet given back"},
        "state": {"enum": ["ok", "fenced"]},
        "fence": {"type": "string", "description": "Why it is fenced"},
        "kind": {"enum": ["cpu", "cuda", "fake"]},
        "holders": {"type": "array", "items": _HOLDER, "description": "Who is charged for what of it; reserved_bytes is their sum"},
        "energy_j": {"type": ["number", "null"], "description": "Of a real card whose driver tells: joules since the driver was loaded"},
    },
    "lingering_bytes",
    "fence",
    "kind",
    "holders",
    "energy_j",
)
DEVICES = _object({"devices": {"type": "array", "items": DEVICE}})
_WAIT = _object(
    {
        "model": _TEXT,
        "version": _TEXT,
        "since": _TEXT,
        "waiting_s": _MEASURE,
        "needs_bytes": {"type": "integer", "minimum": 0, "description": "Of a device where it asks for any, else of the host"},
        "queued": _COUNT,
        "why": _TEXT,
    }
)
_EVICTION = _object(
    {
        "time": _TEXT,
        "model": _TEXT,
        "version": _TEXT,
        "device": _TEXT,
        "state": {"type": "string", "description": "Where it was"},
        "reason": {"type": "string", "description": "The label of fornada_evictions_total"},
        "why": {"type": "string", "description": "The same in words"},
        "made_room_for": {"type": "string", "description": "The model that needed its room; empty for other reasons"},
    }
)
_SWAP = _object(
    {
        "window_s": {"type": "number", "description": "Seconds that the shares are of: the last 60, or those since the start"},
        "devices": {"type": "object", "additionalProperties": {"type": "number", "minimum": 0, "maximum": 1}},
    }
)
RESIDENCY = _object(
    {
        "instances": {"type": "array", "items": _INSTANCE, "description": "All that have a place, those that are only coming included"},
        "waits": {"type": "array", "items": _WAIT, "description": "Who waits for room, the oldest wish first"},
        "evictions": {"type": "array", "items": _EVICTION, "description": "The last 64, the newest first"},
        "swap": _SWAP,
    }
)
_SIZE: Object = {"type": ["string", "integer"], "description": "Bytes, or e.g. 512MiB"}
DEVICE_CHANGE: Object = {
    "type": "object",
    "properties": {
        "foreign": _SIZE,
        "frozen": {"type": "boolean", "description": "Freed bytes stay counted"},
        "release_delay_ms": {"type": "number", "minimum": 0},
        "xid": {"type": "integer"},
        "clear": {"type": "boolean", "description": "Undo all"},
        "unfence": {"type": "boolean", "description": "For real devices"},
    },
}
_NODE: Object = {
    "main_pid": {"type": "integer"},
    "keeper_pid": {"type": "integer"},
    "control_pid": {"type": "integer"},
    "url": _TEXT,
    "account": _TEXT,
    "isolation": _TEXT,
    "version": _TEXT,
}
NODES = _object({**_NODE, "nodes": {"type": "array", "items": _object(_NODE), "description": "Every node of the fleet; this one first"}})
