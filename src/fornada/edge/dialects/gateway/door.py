"""The hot routes of a gateway.

/gateway/v1/{account}/{gateway}                             a list of entries, tried in their order
/gateway/v1/{account}/{gateway}/workers-ai/{model}          ai/run, in three spellings: {model}, run/{model}, v1/…
/gateway/v1/{account}/{gateway}/compat/chat/completions     OpenAI's routes; the model may be called workers-ai/{model}
any other hot route, with cf-aig-gateway-id                 itself
"""

import re

import msgspec

from fornada.core.errors import BadRequest, FornadaError
from fornada.core.gateway import DEFAULT_GATEWAY, WORKERS_AI, GatewayId, parse_gateway
from fornada.edge.auth import account_of
from fornada.edge.calls import DEFAULT_BODY, Exchange, Target
from fornada.edge.gateway.asked import asked_of_headers
from fornada.edge.gateway.passage import Passages
from fornada.edge.gateway.steps import COMPAT, Step, Ways, without_provider
from fornada.edge.problems import Style
from fornada.edge.targets import decoded

_PATH = re.compile(rb"/gateway/v1/([^/]+)/([^/]+)(?:/+(.*))?\Z", re.DOTALL)


class GatewayTarget(Target, frozen=True, gc=False):
    """What a request through a gateway means."""

    gateway: GatewayId = DEFAULT_GATEWAY
    provider: str = ""
    endpoint: str = ""
    behind: Target | None = None
    """What the gateway stands before; None: the body says it, entry by entry."""


class GatewayDoor:
    """See the module's docstring."""

    def __init__(self, *, passages: Passages, ways: Ways) -> None:
        self._passages = passages
        self._ways = ways

    def match(self, path: bytes, query: bytes) -> Target | None:
        found = _PATH.match(path)
        if found is None:
            return None
        try:
            account = account_of(decoded(found[1]))
            gateway = parse_gateway(decoded(found[2]))
            provider, _, endpoint = decoded((found[3] or b"").rstrip(b"/")).partition("/")
            text = query.decode("ascii")
        except UnicodeDecodeError:
            return Target(door=self, style=Style.ENVELOPE, error=BadRequest("the query can't be read: it is no ASCII"))
        except FornadaError as error:
            return Target(door=self, style=Style.ENVELOPE, error=error)
        if not provider:
            return GatewayTarget(door=self, style=Style.ENVELOPE, account=account, gateway=gateway)
        behind = self._ways.find(account, provider, endpoint, text)
        return GatewayTarget(
            door=self,
            style=behind.style,
            account=account,
            name=behind.name,
            reference=behind.reference,
            error=behind.error,
            gateway=gateway,
            provider=provider,
            endpoint=endpoint,
            behind=behind,
        )

    def through(self, target: Target, named: str) -> Target:
        """The same target behind the gateway that a header names."""
        if target.door is self or target.error is not None:
            return target
        try:
            gateway = parse_gateway(named)
        except FornadaError as error:
            return msgspec.structs.replace(target, error=BadRequest(f"cf-aig-gateway-id: {error.message}"))
        return GatewayTarget(
            door=self,
            style=target.style,
            account=target.account,
            name=target.name,
            reference=target.reference,
            gateway=gateway,
            provider=WORKERS_AI,
            endpoint=target.name or type(target.door).__name__,
            behind=target,
        )

    def limit(self, target: Target) -> int:
        behind = target.behind if isinstance(target, GatewayTarget) else None
        if behind is None:
            return DEFAULT_BODY
        limit: int = behind.door.limit(behind)
        return limit

    def handle(self, exchange: Exchange) -> None:
        target = exchange.target
        assert isinstance(target, GatewayTarget)
        try:
            facts = exchange.facts
            account = facts.caller.acting_for(target.account)
            self._passages.authenticate(facts, account=account, gateway=target.gateway)
            asked = asked_of_headers(facts)
            body = exchange.body()
            steps: tuple[Step, ...]
            if target.behind is None:
                steps = self._ways.entries(body, facts, asked, account)
            else:
                if target.provider == COMPAT:
                    body = without_provider(body)
                steps = (Step(target.provider, target.endpoint, target.behind, body, facts, asked),)
            self._passages.begin(exchange, account=account, gateway=target.gateway, steps=steps)
        except FornadaError as error:
            exchange.fail(error)
