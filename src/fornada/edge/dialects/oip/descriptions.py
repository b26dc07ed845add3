"""JSON Schemas of the protocol, for /openapi.json."""

from typing import Any

from fornada.core.errors import BadRequest, Busy, DeadlinePassed, LoadFailed, NeverFits, Unavailable, UnknownModel
from fornada.core.keys import Role
from fornada.edge.calls import Operation, Parameter
from fornada.edge.invoke import RUN_ERRORS, RUN_HEADERS
from fornada_sdk.wire.tensors import ITEM_BYTES

Schema = dict[str, Any]

DATATYPE: Schema = {"enum": [*ITEM_BYTES, "BYTES"]}
PARAMETERS: Schema = {"type": ["object", "null"], "additionalProperties": {"type": ["string", "number", "boolean"]}}
_SHAPE: Schema = {"type": "array", "items": {"type": "integer", "minimum": 0}}
_DATA: Schema = {"type": ["array", "null"], "description": "Row by row, in one list or in nested ones of that shape; BYTES as strings"}
_TENSOR: Schema = {"name": {"type": "string"}, "shape": _SHAPE, "datatype": DATATYPE, "parameters": PARAMETERS, "data": _DATA}
REQUEST: Schema = {
    "type": "object",
    "properties": {
        "id": {"type": ["string", "null"]},
        "parameters": PARAMETERS,
        "inputs": {"type": "array", "items": {"type": "object", "properties": _TENSOR, "required": ["name", "shape", "datatype"]}},
        "outputs": {
            "type": ["array", "null"],
            "items": {"type": "object", "properties": {"name": {"type": "string"}, "parameters": PARAMETERS}, "required": ["name"]},
        },
    },
    "required": ["inputs"],
}
ANSWER: Schema = {
    "type": "object",
    "properties": {
        "model_name": {"type": "string"},
        "model_version": {"type": "string"},
        "id": {"type": "string"},
        "parameters": PARAMETERS,
        "outputs": {"type": "array", "items": {"type": "object", "properties": _TENSOR, "required": ["name", "shape", "datatype"]}},
        "nonfinite": {"const": True, "description": "Some numbers of `data` are NaN or infinite, and null here; exact as binary data"},
    },
    "required": ["model_name", "outputs"],
}
_BINARY: Schema = {"type": "string", "format": "binary", "description": "JSON as above, and tensors as bytes behind it"}
INFER = Operation(
    "inferTensors",
    "Run a model on tensors",
    ANSWER,
    needs=Role.USER,
    parameters=(
        *RUN_HEADERS,
        Parameter(
            "Inference-Header-Content-Length", "Bytes of the JSON before binary tensors", {"type": "integer", "minimum": 0}, place="header"
        ),
    ),
    takes={"application/json": REQUEST, "application/octet-stream": _BINARY},
    more_answers={"application/octet-stream": _BINARY},
    errors=RUN_ERRORS,
)
SERVER: Schema = {
    "type": "object",
    "properties": {
        "name": {"const": "fornada"},
        "version": {"type": "string"},
        "extensions": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["name", "version", "extensions"],
}
EMPTY: Schema = {"type": "object"}
_PUT_TOGETHER: Schema = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "datatype": DATATYPE, "shape": {"type": "array", "items": {"type": "integer"}}},
}
METADATA: Schema = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "versions": {"type": "array", "items": {"type": "string"}},
        "platform": {"type": "string"},
        "inputs": {"type": "array", "items": _PUT_TOGETHER},
        "outputs": {"type": "array", "items": _PUT_TOGETHER},
    },
    "required": ["name", "versions", "platform", "inputs", "outputs"],
}
CONFIG: Schema = {"type": "object", "properties": {"name": {"type": "string"}, "max_batch_size": {"const": 0}}, "required": ["name"]}
STATS: Schema = {"type": "object", "properties": {"model_stats": {"type": "array"}}, "required": ["model_stats"]}
INDEX: Schema = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {name: {"type": "string"} for name in ("name", "version", "state", "reason")},
        "required": ["name"],
    },
}
REGIONS: Schema = {"type": "array", "maxItems": 0}
MODEL_ERRORS = (BadRequest, UnknownModel)
LOAD_ERRORS = (*MODEL_ERRORS, LoadFailed, Busy, NeverFits, DeadlinePassed, Unavailable)
