"""`env.AI.run`: the binding's own forms of a request, as the Workers AI door takes them.

{"inputs": {…}, "options": {…}}                the usual one
/ai-gateway/run, with options.gateway          the same behind a gateway
/ai-gateway/universal/run/{gateway}            entries, tried in their order: `env.AI.gateway(id).run`
?userInputs={…}, the body a stream             one input that is a ReadableStream or a FormData; the others stand in the query
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from fornada.core.errors import BadRequest, FornadaError, UnknownRoute
from fornada.core.gateway import WORKERS_AI, GatewayId, parse_gateway
from fornada.core.names import parse_reference
from fornada.edge.calls import DEFAULT_BODY, Door, Exchange, Target
from fornada.edge.dialects.binding.bare import BareExchange
from fornada.edge.gateway.asked import asked_of_headers, asked_of_options
from fornada.edge.gateway.passage import Passages
from fornada.edge.gateway.steps import Step, Ways
from fornada.edge.invoke import quoted
from fornada.edge.json_bodies import encode, fields_of, value_of
from fornada.edge.platform_options import check_tags
from fornada.edge.problems import Style
from fornada.edge.targets import decoded, query_of

_PATH = re.compile(rb"/binding/-(/ai-gateway)?/run(?:/+(.*))?\Z", re.DOTALL)
_UNIVERSAL = re.compile(rb"/binding/-/ai-gateway/universal/run/([^/]+)/*\Z")
USER_INPUTS = "userInputs"
PASSED_ON = ("rejectIfBusy", "tags", "webhook")
"""Options that the Workers AI door reads. The others are the runtime's business, or another door's."""
_ONCE = (USER_INPUTS, "queueRequest", *PASSED_ON, "body")
"""What stands in the query where the body is a stream, or where there is none."""
_WRAPPING = 4096
"""Bytes of a body beside the inputs."""


class BindingTarget(Target, frozen=True, gc=False):
    """What a request of the binding means."""

    gated: bool = False
    """Its options name a gateway."""
    universal: str = ""
    """The gateway that the path names."""


class BindingDoor:
    """The hot routes of the binding."""

    def __init__(self, run: Door) -> None:
        """`run` is the Workers AI door."""
        self._run = run
        self._gateways: tuple[Passages, Ways] | None = None

    def stand_behind(self, passages: Passages, ways: Ways) -> None:
        """There are gateways."""
        self._gateways = passages, ways

    def match(self, path: bytes, query: bytes) -> Target | None:
        if universal := _UNIVERSAL.match(path):
            try:
                return BindingTarget(door=self, style=Style.BINDING, universal=parse_gateway(decoded(universal[1])))
            except FornadaError as error:
                return Target(door=self, style=Style.BINDING, error=error)
        found = _PATH.match(path)
        if found is None:
            return None
        try:
            name = decoded(found[2] or b"").rstrip("/")
            reference = parse_reference(name) if name else None
            parameters = query_of(query, once=_ONCE)
            if tags := parameters.get("tags", ""):
                check_tags(tags.split(","))
        except FornadaError as error:
            return Target(door=self, style=Style.BINDING, error=error)
        gated = found[1] is not None
        return BindingTarget(door=self, style=Style.BINDING, name=name, reference=reference, query=parameters, gated=gated)

    def limit(self, target: Target) -> int:
        if isinstance(target, BindingTarget) and target.universal:
            return DEFAULT_BODY
        return self._run.limit(target) + _WRAPPING

    def handle(self, exchange: Exchange) -> None:
        target = exchange.target
        try:
            if isinstance(target, BindingTarget) and (target.gated or target.universal):
                self._through_gateway(exchange, target)
                return
            bare = _unwrapped(exchange)
        except FornadaError as error:
            exchange.fail(error)
            return
        self._run.handle(bare)

    def _through_gateway(self, exchange: Exchange, target: BindingTarget) -> None:
        if self._gateways is None:
            raise UnknownRoute("this node has no gateways")
        passages, ways = self._gateways
        facts = exchange.facts
        account = facts.caller.acting_for(None)
        if target.universal:
            steps = ways.entries(exchange.body(), facts, asked_of_headers(facts), account)
            passages.begin(exchange, account=account, gateway=GatewayId(target.universal), steps=steps)
            return
        fields = fields_of(exchange.body().strip() or b"{}")
        options = value_of(fields["options"]) if "options" in fields else None
        named = options.pop("gateway", None) if isinstance(options, dict) else None
        if not isinstance(named, dict) or not isinstance(named.get("id"), str):
            raise BadRequest("required properties at '/options/gateway' are 'id'")
        # Without it, requests that are the same are the same.
        fields["options"] = msgspec.Raw(msgspec.json.encode(options))
        step = Step(
            provider=WORKERS_AI,
            endpoint=target.name,
            target=msgspec.structs.replace(target, gated=False),
            body=encode(fields),
            facts=facts,
            asked=asked_of_options(named),
        )
        passages.begin(exchange, account=account, gateway=parse_gateway(named["id"]), steps=(step,))


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
            queued=_is_true(query, "queueRequest"),
            rejects_busy=_is_true(query, "rejectIfBusy"),
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


def _is_true(query: Mapping[str, str], option: str) -> bool:
    """Options stand in the query where the body is a stream."""
    return query.get(option, "").lower() == "true"


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
