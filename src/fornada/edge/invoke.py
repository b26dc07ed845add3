"""From parsed inputs to a request of the InferencePort: the same for every dialect."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from fornada.core import errors
from fornada.core.names import AccountId, Instant
from fornada.core.ports import CatalogPort, Clock, InferencePort, Resolved
from fornada.core.requests import InferenceRequest, Sink
from fornada.edge.calls import Asked, Exchange, Parameter, Target
from fornada.edge.limits import Limits
from fornada.edge.validation import Contracts

JSON = "application/json"


RUN_ERRORS = (
    errors.BadRequest,
    errors.UnknownModel,
    errors.TooLarge,
    errors.ModelNotAllowed,
    errors.RateLimited,
    errors.QuotaUsedUp,
    errors.Busy,
    errors.DeadlinePassed,
    errors.Unavailable,
    errors.NeverFits,
    errors.RunnerDied,
    errors.LoadFailed,
    errors.ModelRaised,
    errors.OutOfDeviceMemory,
)
"""What running a model can come to, at every door: for /openapi.json."""
TEXT_ERRORS = (*RUN_ERRORS, errors.LoraUnsupported, errors.UnknownFinetune, errors.FinetuneIncomplete)
"""The same at doors that take a fine-tune's name."""
RUN_HEADERS = (
    Parameter("x-session-affinity", "Requests with the same value go to the same instance", place="header"),
    Parameter("x-timeout-ms", "Milliseconds until the request is answered at the latest", {"type": "number"}, place="header"),
    Parameter(
        "x-priority",
        "Order among the account's own requests that wait for the model: high, normal (as without it) or low",
        {"enum": ["high", "normal", "low"]},
        place="header",
    ),
    Parameter("x-request-id", "Echoed, and on every log line; 128 printable characters at most", place="header"),
)
"""Request headers that every door reads."""


class Invoker:
    """What a door needs to have requests run."""

    def __init__(self, *, inference: InferencePort, catalog: CatalogPort, contracts: Contracts, clock: Clock, limits: Limits) -> None:
        self.submit = inference.submit
        self.resolve = catalog.resolve
        self.contracts = contracts
        self.clock = clock
        self.limits = limits

    def limit(self, target: Target) -> int:
        """Bytes that a body for the target's model may have. Raises UnknownModel and its like."""
        assert target.reference is not None, "only for targets that name a model"
        resolved = self.resolve(target.reference, target.account or AccountId("local"))
        return resolved.spec.serving.max_body

    def admit(self, exchange: Asked, resolved: Resolved, account: AccountId) -> None:
        """Whether the caller may run this model now. Raises ModelNotAllowed, RateLimited, QuotaUsedUp."""
        facts = exchange.facts
        models = facts.caller.models
        if models is not None and resolved.entry.name not in models:
            raise errors.ModelNotAllowed(f"this key is for other models than '{resolved.entry.name}'")
        if facts.caller.paced:
            self.limits.admit(facts.caller, account)
        else:
            self.limits.afford(facts.caller, account)

    def run(
        self,
        exchange: Exchange,
        sink: Sink,
        resolved: Resolved,
        account: AccountId,
        body: Sequence[bytes | memoryview],
        *,
        parts: Sequence[tuple[str, int]] = (),
        type: str = JSON,
        stream: bool = False,
        reject_if_busy: bool = False,
        tensors: str = "",
        timeout_s: float | None = None,
    ) -> None:
        """Hands the request over. `tensors`: a core.tensors.TensorsHead as JSON, where that is what the body is. `timeout_s`: a bound that
        stands in the body; the header's counts if it is the lesser."""
        facts = exchange.facts
        if timeout_s is None or (facts.timeout_s is not None and facts.timeout_s < timeout_s):
            timeout_s = facts.timeout_s
        request = InferenceRequest(
            request_id=exchange.request_id,
            trace_id=exchange.trace_id,
            account=account,
            model=resolved.entry.name,
            version=resolved.version,
            deadline=None if timeout_s is None else Instant(self.clock.now() + timeout_s),
            head=invoke_head(exchange, account, parts, type, stream, tensors),
            body=body,
            stream=stream,
            reject_if_busy=reject_if_busy,
            affinity=facts.affinity,
            priority=facts.priority,
            key=facts.caller.key,
        )
        exchange.hold(self.submit(request, sink))

    def requests(
        self, exchange: Exchange, resolved: Resolved, account: AccountId, bodies: Iterable[bytes], *, reject_if_busy: bool
    ) -> Iterator[InferenceRequest]:
        """For an answer that takes several runs: of one version, though there is a deploy on the way, and all by the one deadline."""
        facts = exchange.facts
        timeout_s = resolved.spec.serving.timeout_s if facts.timeout_s is None else facts.timeout_s
        deadline = Instant(self.clock.now() + timeout_s)
        version = resolved.version or resolved.entry.answering.digest
        head = invoke_head(exchange, account, (), JSON, stream=False)
        for body in bodies:
            yield InferenceRequest(
                request_id=exchange.request_id,
                trace_id=exchange.trace_id,
                account=account,
                model=resolved.entry.name,
                version=version,
                deadline=deadline,
                head=head,
                body=(body,),
                reject_if_busy=reject_if_busy,
                affinity=facts.affinity,
                priority=facts.priority,
                key=facts.caller.key,
            )


def invoke_head(exchange: Asked, account: str, parts: Sequence[tuple[str, int]], type: str, stream: bool, tensors: str = "") -> bytes:
    """An InvokeHead as JSON. Put together from pieces: most of it is the same in every request of a connection."""
    trace_id = exchange.trace_id
    request_id = exchange.request_id
    query = exchange.target.shown_query
    more = ""
    if stream or query or parts or type != JSON:
        more = "".join(
            (
                f',"type":{quoted(type)}' if type != JSON else "",
                f',"parts":{quoted(parts)}' if parts else "",
                f',"query":{query}' if query else "",
                ',"stream":true' if stream else "",
                f',"tensors":{tensors}' if tensors else "",
            )
        )
    shown = f'"{request_id}"' if request_id is trace_id else quoted(request_id)
    named = _ACCOUNTS.get(account) or quoted_account(account)
    return f'{{"request_id":{shown},"trace_id":"{trace_id}","account":{named},"headers":{exchange.facts.forwarded}{more}}}'.encode()


def quoted(value: Any) -> str:
    """A value as JSON text."""
    return msgspec.json.encode(value).decode()


_ACCOUNTS: dict[str, str] = {"local": '"local"'}
_MOST_ACCOUNTS = 1024


def quoted_account(account: str) -> str:
    """An account's id as JSON text; kept, since there are few of them."""
    if len(_ACCOUNTS) >= _MOST_ACCOUNTS:
        _ACCOUNTS.clear()
    found = _ACCOUNTS[account] = quoted(account)
    return found
