"""AI gateways: an account's named rules for its requests (cache, retries, rate, logs). Values; the ports are in core.ports_gateway.

settings   what the gateway says
Asked      what one request says, which beats the settings
Rules      what counts for the request: `rules_of` joins the two
Log        what is written down about it
"""

import enum
import re
from collections.abc import Mapping
from typing import Annotated, NamedTuple, NewType

import msgspec

from fornada.core.errors import BadRequest
from fornada.core.keys import NO_KEY, KeyId
from fornada.core.names import AccountId

GatewayId = NewType("GatewayId", str)
LogId = NewType("LogId", str)

DEFAULT_GATEWAY = GatewayId("default")
"""Every account has it without making it."""
WORKERS_AI = "workers-ai"
"""The one provider: this node's own models."""
MOST_GATEWAYS = 100
"""Of one account."""
MOST_ATTEMPTS = 5
MOST_DELAY_MS = 5000
"""Between two attempts, as a request may ask for it, and before any back-off."""
MOST_KEPT_DELAY_MS = 60_000
"""The same as a gateway's settings may say it."""
LEAST_TTL_S, MOST_TTL_S = 60, 30 * 86400
"""Seconds that a request may ask its answer to be kept."""
KEYED_TTL_S = 300
"""Of a request that names a cache key and nothing else."""
MOST_TIMEOUT_MS = 24 * 3600 * 1000
MOST_METADATA = 5
LONGEST_METADATA = 512
"""Characters of a key, and of a value."""
LONGEST_KEY = 512
MOST_DOLLARS = 1e9
"""That a request may say it costs, and each token of it."""
MOST_INTERVAL_S = 86400
MOST_LIMIT = 100_000
"""Requests of an interval: a sliding window remembers each."""
USUAL_LOGS, MOST_LOGS = 10_000, 1_000_000
ID_PATTERN = "[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
_ID = re.compile(ID_PATTERN)


class Backoff(enum.StrEnum):
    """How the waits between attempts grow."""

    CONSTANT = "constant"
    LINEAR = "linear"
    EXPONENTIAL = "exponential"


class Technique(enum.StrEnum):
    """What an interval of the rate limit is: the clock's, or any that long."""

    FIXED = "fixed"
    SLIDING = "sliding"


class WhenFull(enum.StrEnum):
    """What becomes of a log for which there is no room."""

    STOP_INSERTING = "STOP_INSERTING"
    DELETE_OLDEST = "DELETE_OLDEST"


class GatewaySettings(msgspec.Struct, frozen=True):
    """What an account says about one of its gateways. None: not limited, not cached, not tried again."""

    cache_ttl: int | None = None
    """Seconds that answers are kept; None or 0: they aren't, unless a request asks for it."""
    cache_invalidate_on_update: bool = False
    """A change of the settings forgets what is kept."""
    collect_logs: bool = True
    rate_limiting_interval: int | None = None
    """Seconds."""
    rate_limiting_limit: int | None = None
    rate_limiting_technique: Technique | None = None
    """None: fixed."""
    authentication: bool = False
    """A request by HTTP needs a token, also where the node has no keys and takes any."""
    retry_max_attempts: int | None = None
    """In all, the first one among them."""
    retry_delay: int | None = None
    """Milliseconds."""
    retry_backoff: Backoff | None = None
    log_management: int | None = None
    """Logs that are kept at most."""
    log_management_strategy: WhenFull | None = None
    """None: the oldest goes."""
    zdr: bool = False
    """Zero data retention: of no request anything is written down or kept."""


class Gateway(msgspec.Struct, frozen=True):
    """A gateway of an account. Times are seconds since 1970."""

    account: AccountId
    id: GatewayId
    settings: GatewaySettings
    created: float
    modified: float


class CustomCost(msgspec.Struct, frozen=True):
    """What the caller says that its request costs."""

    per_token_in: Annotated[float, msgspec.Meta(ge=0, le=MOST_DOLLARS)] = 0.0
    per_token_out: Annotated[float, msgspec.Meta(ge=0, le=MOST_DOLLARS)] = 0.0
    total_cost: Annotated[float, msgspec.Meta(ge=0, le=MOST_DOLLARS)] | None = None


Metadata = Mapping[str, str | float | bool]


class Asked(msgspec.Struct, frozen=True):
    """What one request says. None: nothing."""

    skip_cache: bool | None = None
    cache_ttl_s: int | None = None
    cache_key: str | None = None
    collect_log: bool | None = None
    zdr: bool | None = None
    """True: as the setting. It can't be taken back by a request."""
    collect_payload: bool | None = None
    """Whether the log may hold what was asked and answered."""
    metadata: Metadata = {}
    event_id: str | None = None
    timeout_ms: int | None = None
    """Until the first byte of an answer."""
    max_attempts: int | None = None
    retry_delay_ms: int | None = None
    backoff: Backoff | None = None
    custom_cost: CustomCost | None = None


class Rules(NamedTuple):
    """What counts for one entry of a request."""

    ttl_s: int
    """0: nothing is looked up and nothing kept."""
    cache_key: str | None
    logged: bool
    payload: bool
    timeout_ms: int | None
    attempts: int
    delay_ms: int
    backoff: Backoff


def rules_of(settings: GatewaySettings, asked: Asked) -> Rules:
    """The request's word beats the gateway's."""
    attempts = asked.max_attempts if asked.max_attempts is not None else settings.retry_max_attempts
    delay_ms = asked.retry_delay_ms if asked.retry_delay_ms is not None else settings.retry_delay
    logged = settings.collect_logs if asked.collect_log is None else asked.collect_log
    zdr = settings.zdr or bool(asked.zdr)
    return Rules(
        ttl_s=0 if zdr else _ttl_s(settings, asked),
        cache_key=asked.cache_key,
        logged=logged and not zdr,
        payload=asked.collect_payload is not False,
        timeout_ms=asked.timeout_ms,
        attempts=min(max(1, attempts or 1), MOST_ATTEMPTS),
        delay_ms=delay_ms or 0,
        backoff=asked.backoff or settings.retry_backoff or Backoff.CONSTANT,
    )


def _ttl_s(settings: GatewaySettings, asked: Asked) -> int:
    if asked.skip_cache:
        return 0
    if asked.cache_ttl_s is not None:
        return asked.cache_ttl_s
    return settings.cache_ttl or (KEYED_TTL_S if asked.cache_key is not None else 0)


class Log(msgspec.Struct, frozen=True):
    """What is written down about one request that came through a gateway."""

    id: LogId
    account: AccountId
    gateway: GatewayId
    created: float
    """Seconds since 1970."""
    provider: str
    model: str
    """As the caller named it."""
    model_type: str
    path: str
    request_type: str
    request_content_type: str
    response_content_type: str
    status_code: int
    success: bool
    cached: bool
    duration_ms: int
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float = 0.0
    """Dollars, by the model's neurons or by what the caller said."""
    custom_cost: bool = False
    step: int = 0
    attempts: int = 1
    """That the answering entry took."""
    metadata: Metadata = {}
    event_id: str = ""
    request_size: int = 0
    response_size: int = 0
    request_complete: bool = True
    """Whether all of it is kept."""
    response_complete: bool = True
    feedback: int | None = None
    score: float | None = None
    key: KeyId = NO_KEY
    """The key that it came with."""
    user_agent: str = ""


class Payload(NamedTuple):
    """The bodies that a log keeps."""

    request: bytes = b""
    response: bytes = b""


def parse_gateway(text: str) -> GatewayId:
    """Raises BadRequest."""
    if not _ID.fullmatch(text):
        raise BadRequest("a gateway's id must be 1 to 64 letters, digits, '-' or '_', with a letter or digit first")
    return GatewayId(text)


class Number(NamedTuple):
    """Bounds of a number, for checks and for the API's description."""

    least: int
    most: int

    def checked(self, name: str, value: int) -> int:
        """Raises BadRequest."""
        if not self.least <= value <= self.most:
            raise BadRequest(f"'{name}' must be a whole number from {self.least} to {self.most}")
        return value


NUMBERS = {
    "cache_ttl": Number(0, MOST_TTL_S),
    "rate_limiting_interval": Number(0, MOST_INTERVAL_S),
    "rate_limiting_limit": Number(0, MOST_LIMIT),
    "retry_max_attempts": Number(1, MOST_ATTEMPTS),
    "retry_delay": Number(0, MOST_KEPT_DELAY_MS),
    "log_management": Number(1, MOST_LOGS),
}
"""Of the settings."""
