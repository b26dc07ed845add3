"""The dialect's routes in words and schemas, for /openapi.json."""

from typing import Any

from fornada.core.errors import MethodNotAllowed
from fornada.core.keys import Role
from fornada.edge.calls import Call, Operation, Parameter, Reply
from fornada.edge.envelope import envelope
from fornada.edge.invoke import RUN_HEADERS, TEXT_ERRORS

Object = dict[str, Any]

_ANY: Object = {"description": "Whatever the model answers; `GET …/models/schema` describes it"}
_BYTES: Object = {"type": "string", "format": "binary"}


_RUN_PARAMETERS = (
    Parameter("tags", "At most 5 tags of at most 50 letters, digits or : - . / @, with commas between them"),
    Parameter("queueRequest", "`true`: the answer is a job's id"),
    *RUN_HEADERS,
)
_RESULT = envelope(_ANY, nonfinite={"const": True, "description": "Present where NaN or an infinity became null"})
RUN = Operation(
    "runModel",
    "Run a model",
    _RESULT,
    parameters=_RUN_PARAMETERS,
    takes={
        "application/json": {
            "type": "object",
            "description": "The model's inputs. `options` is the platform's; with `stream: true` the answer is an event stream",
            "properties": {
                "stream": {"description": "true: items are sent as events as they come"},
                "options": {"type": ["object", "null"], "properties": {"rejectIfBusy": {"type": ["boolean", "null"]}}},
            },
        },
        "application/octet-stream": _BYTES,
        "multipart/form-data": {"type": "object", "description": "Fields are inputs, files their bytes"},
    },
    needs=Role.USER,
    errors=TEXT_ERRORS,
)
BODY_QUERY = Parameter(
    "body", "JSON object with `inputs` and `options`; or each input as a parameter of its name, of which the last counts"
)


async def _no_websocket(call: Call) -> Reply:
    raise MethodNotAllowed("GET is for a WebSocket here: send 'Upgrade: websocket'; POST runs the model")


TALK = Operation(
    "talkWithModel",
    "Talk with a model over a WebSocket",
    {"description": "Never: the answer to a request with `Upgrade: websocket` is 101, and messages follow"},
    _no_websocket,
    Role.USER,
    (BODY_QUERY, *RUN_HEADERS),
    errors=(*TEXT_ERRORS, MethodNotAllowed),
)
RUN_UNIVERSAL = Operation(
    "runModelByBody",
    "Run a model that the body names",
    _RESULT,
    parameters=_RUN_PARAMETERS,
    takes={
        "application/json": {
            "type": "object",
            "properties": {"model": {"type": "string"}, "input": {"type": ["object", "null"]}, "options": {"type": ["object", "null"]}},
            "required": ["model"],
        }
    },
    needs=Role.USER,
    errors=TEXT_ERRORS,
)

_TASK: Object = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in ("id", "name", "description")},
    "required": ["id", "name", "description"],
}


def _items(description: str, properties: Object) -> Object:
    """A list of objects that have all of these."""
    each = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "array", "description": description, "items": each}


_TEXTS: Object = {"type": "array", "items": {"type": "string"}}
_TOKENS: Object = {"type": ["integer", "null"]}
MODELS = envelope(
    {
        "anyOf": [
            _items(
                "Workers AI's form, which comes without `format`",
                {
                    "id": {"type": "string", "format": "uuid"},
                    "source": {"type": "integer"},
                    "name": {"type": "string"},
                    "description": {"type": "string"},
                    "task": _TASK,
                    "created_at": {"type": "string"},
                    "tags": {"type": "array"},
                    "properties": {"type": "array", "items": {"type": "object"}},
                },
            ),
            _items(
                "With `format=openrouter`. Prices are US dollars",
                {
                    "id": {"type": "string"},
                    "name": {"type": "string"},
                    "description": {"type": "string"},
                    "created": {"type": "integer"},
                    "input_modalities": _TEXTS,
                    "output_modalities": _TEXTS,
                    "context_length": _TOKENS,
                    "max_output_length": _TOKENS,
                    "pricing": {"type": "object", "additionalProperties": {"type": "string"}},
                    "supported_features": _TEXTS,
                    "supported_sampling_parameters": _TEXTS,
                },
            ),
        ]
    },
    result_info={
        "type": "object",
        "properties": {name: {"type": "integer"} for name in ("page", "per_page", "count", "total_count", "total_pages")},
    },
)
MODELS_QUERY = (
    Parameter("search", "Part of a name, an alias or a description"),
    Parameter("task", "Name or id of a task"),
    Parameter("author", "Author"),
    Parameter("source", "1: the only source there is"),
    Parameter("hide_experimental", "true: without those whose author calls them a beta", {"type": "boolean", "default": False}),
    Parameter("include_deprecated", "true: also those whose planned_deprecation_date has come", {"type": "boolean", "default": False}),
    Parameter("format", "openrouter: items in that marketplace's form", {"enum": ["openrouter"]}),
    Parameter("page", "Page, from 1; those after the last are empty. 0 is the first", {"type": "integer", "minimum": 0, "default": 1}),
    Parameter("per_page", "Models on a page; 0 is the usual number", {"type": "integer", "minimum": 0, "maximum": 1000, "default": 50}),
)
SCHEMA = envelope(
    {"type": "object", "properties": {"input": {"type": "object"}, "output": {"type": "object"}}, "required": ["input", "output"]}
)
AUTHORS = envelope(
    {
        "type": "array",
        "items": {"type": "object", "properties": {"id": {"type": "string"}, "name": {"type": "string"}, "models": {"type": "integer"}}},
    }
)
TASKS = envelope({"type": "array", "items": _TASK})
