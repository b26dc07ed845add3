"""`env.AI.run`: the binding's own forms of a request, as the Workers AI door takes them.

{"inputs": {…}, "options": {…}}                the usual one
?userInputs={…}, the body a stream             one input that is a ReadableStream or a FormData; the others stand in the query
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from fornada.core.errors import BadRequest, FornadaError
from fornada.core.names import parse_reference
from fornada.edge.calls import Door, Exchange, Target
from fornada.edge.dialects.binding.bare import BareExchange
from fornada.edge.invoke import quoted
from fornada.edge.json_bodies import encode, fields_of, value_of
from fornada.edge.platform_options import check_tags
from fornada.edge.problems import Style
from fornada.edge.targets import decoded, query_of

_PATH = re.compile(rb"/binding/-/run(?:/+(.*))?\Z", re.DOTALL)
USER_INPUTS = "userInputs"
PASSED_ON = ("rejectIfBusy", "tags", "webhook")
"""Options that the Workers AI door reads. The others are the runtime's business, or another door's."""
_WRAPPING = 4096
"""Bytes of a body beside the inputs."""


class BindingDoor:
    """The hot route of the binding."""

    def __init__(self, run: Door) -> None:
        """`run` is the Workers AI door."""
        self._run = run

    def match(self, path: bytes, query: bytes) -> Target | None:
        found = _PATH.match(path)
        if found is None:
            return None
        try:
            name = decoded(found[1] or b"").rstrip("/")
            reference = parse_reference(name) if name else None
            parameters = query_of(query)
            if tags := parameters.get("tags", ""):
                check_tags(tags.split(","))
        except FornadaError as error:
            return Target(door=self, style=Style.BINDING, error=error)
        return Target(door=self, style=Style.BINDING, name=name, reference=reference, query=parameters)

    def limit(self, target: Target) -> int:
        return self._run.limit(target) + _WRAPPING

    def handle(self, exchange: Exchange) -> None:
        try:
            bare = _unwrapped(exchange)
        except FornadaError as error:
            exchange.fail(error)
            return
        self._run.handle(bare)


def _unwrapped(exchange: Exchange) -> BareExchange:
    target = exchange.target
    if target.reference is None:
        raise BadRequest("required headers are 'cf-consn-model-id': the model's name")
    query = target.query
    if USER_INPUTS in query:
        inputs = _as_query(query[USER_INPUTS])
        meant = Target(
            door=target.door,
            style=Style.BINDING,
            name=target.name,
            reference=target.reference,
            query=inputs,
            shown_query=quoted(inputs) if inputs else "",
            queued=query.get("queueRequest", "").lower() == "true",
        )
        return BareExchange(exchange, meant)
    fields = fields_of(exchange.body().strip() or b"{}")
    options = value_of(fields["options"]) if "options" in fields else None
    if options is not None and not isinstance(options, dict):
        raise BadRequest("Type mismatch of '/options', it must be an object")
    inputs_text = bytes(fields.get("inputs", b"{}"))
    meant = Target(
        door=target.door,
        style=Style.BINDING,
        name=target.name,
        reference=target.reference,
        queued=(options or {}).get("queueRequest") in (True, "true"),
    )
    return BareExchange(exchange, meant, _with_options(inputs_text, options or {}))


def _with_options(inputs: bytes, options: Mapping[str, Any]) -> bytes:
    """The inputs as `ai/run` takes them, which has the options among them."""
    passed = {name: options[name] for name in PASSED_ON if options.get(name) is not None}
    if inputs == b"null":
        inputs = b"{}"
    if not passed or inputs.lstrip()[:1] != b"{":
        return inputs
    fields = fields_of(inputs)
    fields["options"] = msgspec.Raw(msgspec.json.encode(passed))
    return encode(fields)


def _as_query(text: str) -> dict[str, str]:
    """Inputs beside a stream, as texts: whoever reads them knows their types from the model's schema."""
    values = value_of(text.encode())
    if not isinstance(values, dict):
        raise BadRequest(f"'{USER_INPUTS}' must be a JSON object")
    return {name: value if isinstance(value, str) else quoted(value) for name, value in values.items() if value is not None}
