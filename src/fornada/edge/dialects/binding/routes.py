"""The binding's routes that aren't inference, and all of them in words and schemas. Most are another dialect's under another path."""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from fornada.core.errors import BadRequest
from fornada.core.keys import Role
from fornada.edge.calls import Call, Operation, Parameter, Reply, Route, json_reply
from fornada.edge.dialects.workers_ai import Converter
from fornada.edge.dialects.workers_ai.descriptions import TALK
from fornada.edge.dialects.workers_ai.markdown import BODY_BYTES, File, options_of
from fornada.edge.envelope import enveloped
from fornada.edge.invoke import TEXT_ERRORS
from fornada.edge.problems import Style

_BASE = "/binding/{key}"
_GATEWAY = f"{_BASE}/ai-gateway/gateways/{{gateway}}"
_LOG = "/ai-gateway/gateways/{gateway}/logs/{log}"
_OBJECT: dict[str, Any] = {"type": "object"}
RUN = Operation(
    "runModelByBinding",
    "`env.AI.run` in a Worker",
    {"description": "What the model answers, without an envelope"},
    parameters=(
        Parameter("cf-consn-model-id", "The model's name", place="header", required=True),
        Parameter("userInputs", "JSON object of the other inputs, where the body is one input: a stream"),
        *(Parameter(name, "`true`: as in `options`, where the body is a stream") for name in ("queueRequest", "rejectIfBusy")),
    ),
    takes={
        "application/json": {
            "type": "object",
            "properties": {
                "inputs": {"description": "The model's inputs"},
                "options": {"type": ["object", "null"], "description": "`queueRequest`, `rejectIfBusy`, `tags`, `gateway`"},
            },
        },
        "application/octet-stream": {"type": "string", "format": "binary"},
    },
    needs=Role.USER,
    errors=TEXT_ERRORS,
)
_ENTRIES: dict[str, Any] = {"anyOf": [_OBJECT, {"type": "array", "items": _OBJECT}]}
UNIVERSAL = Operation(
    "runGatewayEntriesByBinding",
    "`env.AI.gateway(id).run` in a Worker",
    {"description": "What the first entry that answers says"},
    takes={"application/json": _ENTRIES},
    needs=Role.USER,
    errors=TEXT_ERRORS,
)
_FILES: dict[str, Any] = {
    "type": "object",
    "properties": {
        "files": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "mimeType": {"type": "string"}, "data": {"type": "string", "format": "byte"}},
                "required": ["name", "data"],
            },
        },
        "options": {"description": "As `conversionOptions` of ai/tomarkdown"},
    },
    "required": ["files"],
}


class _File(msgspec.Struct):
    name: str
    data: str
    mimeType: str = ""  # noqa: N815 - the wire's name


class _Files(msgspec.Struct):
    files: list[_File]
    options: msgspec.Raw = msgspec.Raw(b"{}")


def routes(workers_ai: Sequence[Route], gateway: Sequence[Route], converter: Converter) -> list[Route]:
    """All routes of the dialect, the hot ones as descriptions. `workers_ai`, `gateway`: those whose answers the binding's are; of the
    second there may be none."""
    found = [
        Route(f"{_BASE}/run", Style.BINDING, {"POST": RUN, "GET": TALK.named("talkWithModelByBinding")}),
        Route(f"{_BASE}/ai-api/models/search", Style.BINDING, {"GET": _taken(workers_ai, "/ai/models/search", "GET")}),
        Route(f"{_BASE}/to-everything/markdown/transformer", Style.BINDING, {"POST": _transform(workers_ai, converter)}),
        Route(f"{_BASE}/to-everything/markdown/supported", Style.BINDING, {"GET": _taken(workers_ai, "/ai/tomarkdown/supported", "GET")}),
    ]
    if not gateway:
        return found
    return [
        *found,
        Route(f"{_BASE}/ai-gateway/run", Style.BINDING, {"POST": RUN.named("runModelBehindGatewayByBinding")}),
        Route(f"{_BASE}/ai-gateway/universal/run/{{gateway}}", Style.BINDING, {"POST": UNIVERSAL}),
        Route(f"{_GATEWAY}/url/{{provider}}", Style.BINDING, {"GET": _url(gateway)}),
        Route(f"{_GATEWAY}/logs/{{log}}", Style.BINDING, {each: _taken(gateway, _LOG, each) for each in ("GET", "PATCH")}),
    ]


def _taken(routes: Sequence[Route], ending: str, method: str) -> Operation:
    route = next(route for route in routes if route.pattern.endswith(ending))
    operation = route.operations[method]
    return operation.named(f"{operation.id}ByBinding")


def _transform(routes: Sequence[Route], converter: Converter) -> Operation:
    async def transform(call: Call) -> Reply:
        try:
            given = msgspec.json.decode(call.body, type=_Files)
        except msgspec.ValidationError as error:
            raise BadRequest(str(error)) from None
        except (msgspec.DecodeError, RecursionError):
            raise BadRequest("the body must be JSON with 'files'") from None
        if not given.files:
            raise BadRequest("required properties at '/' are 'files'")
        files = [File(each.name, each.mimeType, _bytes(each.data, number)) for number, each in enumerate(given.files)]
        results = await converter.convert(files, options_of(bytes(given.options)), facts=call.facts, account=call.account)
        return json_reply(enveloped(results))

    taken = _taken(routes, "/ai/tomarkdown", "POST")
    # In base64 it is a third longer.
    return replace(taken, handler=transform, takes={"application/json": _FILES}, body_limit=BODY_BYTES * 4 // 3 + 64 * 1024)


def _bytes(data: str, number: int) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise BadRequest(f"'/files/{number}/data' is no base64") from None


def _url(routes: Sequence[Route]) -> Operation:
    """`getUrl` wants an object where the others have a text."""
    taken = _taken(routes, "/ai-gateway/gateways/{gateway}/url/{provider}", "GET")
    handler = taken.handler
    assert handler is not None, "it isn't a hot one"

    async def url(call: Call) -> Reply:
        reply = await handler(call)
        said = msgspec.json.decode(reply.body)
        return json_reply({**said, "result": {"url": said["result"]}})

    return replace(taken, handler=url, answer={"type": "object", "properties": {"result": _OBJECT}})
