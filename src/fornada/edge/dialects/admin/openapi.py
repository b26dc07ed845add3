"""/openapi.json out of the tables of routes: it can't tell of a route that isn't there."""

import re
from collections.abc import Sequence
from typing import Any

import fornada
from fornada.core.errors import BadRequest, Forbidden, ForeignOrigin, FornadaError, InternalFault, Unauthorized
from fornada.core.keys import Role
from fornada.edge.calls import Operation, Parameter, Route
from fornada.edge.problems import Style, phrase, status_of

Object = dict[str, Any]

_PARAMETER = re.compile(r"\{(\w+)(:path)?\}")
_ALWAYS: tuple[type[FornadaError], ...] = (ForeignOrigin, InternalFault)
_ITEM: Object = {
    "type": "object",
    "properties": {"code": {"type": "integer"}, "message": {"type": "string"}},
    "required": ["code", "message"],
}
_PATH_WORDS = {
    "account": "Account id; any non-empty one in open mode",
    "model": "Name, with slashes as they are or as %2F; `name:label` or `name:digest` for a version",
    "name": "Name, with slashes as they are or as %2F; `name:label` or `name:digest` for a version",
    "id": "Name of a model",
    "device": "Id of a device, such as cpu or cuda:0",
    "key": "A key, which the Workers runtime can't send in a header; `-` or anything else in open mode",
}
_SCHEMAS: Object = {
    "EnvelopeError": {
        "type": "object",
        "properties": {
            "result": {"type": ["object", "null"]},
            "success": {"const": False},
            "errors": {"type": "array", "items": _ITEM, "minItems": 1},
            "messages": {"type": "array"},
        },
        "required": ["result", "success", "errors", "messages"],
    },
    "BindingError": {
        "type": "object",
        "properties": {
            "internalCode": {"type": "integer"},
            "name": {"const": "AiError"},
            "message": {"type": "string"},
            "description": {"type": "string"},
            "httpCode": {"type": "integer"},
            "requestId": {"type": "string"},
            "result": {"type": "object"},
            "success": {"const": False},
            "errors": {"type": "array", "items": _ITEM, "minItems": 1},
            "messages": {"type": "array"},
        },
        "required": ["internalCode", "name", "message", "description", "httpCode", "requestId", "errors"],
    },
    "Error": {
        "type": "object",
        "properties": {
            "error": {
                "type": "object",
                "properties": {
                    "message": {"type": "string"},
                    "type": {"type": "string"},
                    "param": {"type": "null"},
                    "code": {"type": "string"},
                },
                "required": ["message", "type", "param", "code"],
            },
            "success": {"const": False},
            "errors": {"type": "array", "items": _ITEM, "minItems": 1},
            "result": {"type": "object"},
            "messages": {"type": "array"},
        },
        "required": ["error", "success", "errors", "result", "messages"],
    },
}
_ERRORS = {Style.ENVELOPE: "EnvelopeError", Style.SUPERSET: "Error", Style.BINDING: "BindingError", Style.TEXT: "TextError"}

_SCHEMAS["TextError"] = {
    **_SCHEMAS["Error"],
    "properties": {
        **_SCHEMAS["Error"]["properties"],
        "error": {"type": "string", "description": "The message alone, as clients look for it"},
    },
}


def describe(routes: Sequence[Route]) -> Object:
    """An OpenAPI 3.1 document of the routes."""
    paths: Object = {}
    for route in routes:
        path = _PARAMETER.sub(lambda found: "{" + found[1] + "}", route.pattern)
        paths[path] = {method.lower(): _operation(route, operation) for method, operation in route.operations.items()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Fornada",
            "version": fornada.__version__,
            "description": "Self-hosted inference: the APIs of Workers AI and its binding, AI Gateway, OpenAI, Anthropic, the Open Inference "
            "Protocol and TensorFlow Serving, and the node's own.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {"schemas": _SCHEMAS, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
    }


def _operation(route: Route, operation: Operation) -> Object:
    found: Object = {"operationId": operation.id, "summary": operation.summary, "tags": [_tag(route.pattern)]}
    parameters = [_path_parameter(name) for name, _ in _PARAMETER.findall(route.pattern)]
    parameters += [_parameter(parameter) for parameter in operation.parameters]
    if parameters:
        found["parameters"] = parameters
    if operation.takes:
        content = {kind: {"schema": schema} for kind, schema in operation.takes.items()}
        found["requestBody"] = {"required": operation.id != "pinModel", "content": content}
    if operation.needs is not Role.NOBODY:
        # Without keys none is needed, which the empty one says.
        found["security"] = [{"key": []}, {}]
        found["description"] = f"With keys: for the role {operation.needs.name.lower()}."
    found["responses"] = {"200": _success(operation), **_refusals(route, operation)}
    return found


def _success(operation: Operation) -> Object:
    content: Object = {operation.answer_type.partition(";")[0]: {"schema": operation.answer}}
    content.update({kind: {"schema": schema} for kind, schema in operation.more_answers.items()})
    if operation.id in ("runModel", "runModelByBody"):
        content["text/event-stream"] = {"schema": {"type": "string", "description": "`data:` with one item each, then `data: [DONE]`"}}
        content["*/*"] = {"schema": {"type": "string", "format": "binary", "description": "What the model answers in a type of its own"}}
    if operation.id == "readModelLogs":
        content["text/event-stream"] = {"schema": {"type": "string"}}
    headers = {name: {"schema": {"type": "string"}} for name in ("cf-ai-req-id", "x-request-id")}
    return {"description": "Success", "headers": headers, "content": content}


def _refusals(route: Route, operation: Operation) -> Object:
    by_status: dict[int, list[type[FornadaError]]] = {}
    locked = () if operation.needs is Role.NOBODY else (Unauthorized, Forbidden)
    # A piece of a path that can't be one, and a parameter that isn't what it must be.
    named = (BadRequest,) if _PARAMETER.search(route.pattern) or operation.parameters else ()
    for kind in dict.fromkeys((*operation.errors, *named, *locked, *_ALWAYS)):
        by_status.setdefault(status_of(kind, route.style), []).append(kind)
    schema = _ERRORS[route.style]
    found: Object = {}
    for status in sorted(by_status):
        codes = ", ".join(f"{kind.code} {kind.__name__}" for kind in by_status[status])
        content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
        found[str(status)] = {"description": f"{phrase(status)}: {codes}", "content": content}
    return found


def _path_parameter(name: str) -> Object:
    return {"name": name, "in": "path", "required": True, "description": _PATH_WORDS.get(name, name), "schema": {"type": "string"}}


def _parameter(parameter: Parameter) -> Object:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.required,
        "description": parameter.description,
        "schema": dict(parameter.schema),
    }


def _tag(pattern: str) -> str:
    if pattern.startswith("/v2"):
        return "Open Inference Protocol"
    if "/ai/v1/" in pattern or pattern.startswith("/v1/"):
        return "OpenAI"
    if pattern.startswith("/client/v4"):
        return "Workers AI"
    if pattern.startswith("/binding/"):
        return "Workers binding"
    return "Node"
