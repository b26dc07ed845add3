"""Ports of AI gateways: between who lets requests through (`edge`), who keeps their rules, answers and logs (`control`), and the disk."""

import enum
from collections.abc import Sequence
from typing import Protocol

import msgspec

from fornada.core.gateway import Gateway, GatewayId, GatewaySettings, Log, LogId, Payload
from fornada.core.names import AccountId
from fornada.core.policy.gateway_cache import Kept


class Comparison(enum.StrEnum):
    """How a filter compares."""

    EQ = "eq"
    NEQ = "neq"
    CONTAINS = "contains"
    LT = "lt"
    GT = "gt"
    LEAST = "least"
    MOST = "most"


Value = str | float | bool | None


class Filter(msgspec.Struct, frozen=True):
    """Of logs: those whose field `key` compares so with one of the values (with each of them for `neq`)."""

    key: str
    operator: Comparison
    values: tuple[Value, ...]


FILTERED = (
    "id",
    "created_at",
    "request_content_type",
    "response_content_type",
    "request_type",
    "status_code",
    "success",
    "cached",
    "provider",
    "model",
    "model_type",
    "cost",
    "tokens",
    "tokens_in",
    "tokens_out",
    "duration",
    "feedback",
    "event_id",
    "metadata.key",
    "metadata.value",
    "user_agent",
)
"""Fields that a filter may name. `created_at` is in seconds since 1970, `duration` in milliseconds."""
ORDERED = ("created_at", "provider", "model", "model_type", "success", "cached", "cost", "tokens_in", "tokens_out", "duration", "feedback")


class LogQuery(msgspec.Struct, frozen=True):
    """Which logs, and in which order."""

    filters: tuple[Filter, ...] = ()
    search: str = ""
    """Part of an id, a model, a path, an event's id or of metadata, in any case of its letters."""
    order_by: str = "created_at"
    """Of ORDERED; ties go by age."""
    descending: bool = True
    offset: int = 0
    limit: int = 50


class GatewayStore(Protocol):
    """Gateways and their logs on disk. Every call may raise DiskFull; InternalFault where the disk fails otherwise."""

    def gateways(self, account: AccountId) -> list[Gateway]:
        """By their ids."""

    def gateway(self, account: AccountId, id: GatewayId) -> Gateway | None: ...

    def put_gateway(self, gateway: Gateway) -> None:
        """New, or in place of the one that was there. On disk when it returns."""

    def remove_gateway(self, account: AccountId, id: GatewayId) -> None:
        """With its logs. On disk when it returns."""

    def put_logs(self, logs: Sequence[tuple[Log, Payload]]) -> None:
        """All or none. May be lost with the machine's power for some moments, never with a process."""

    def log(self, account: AccountId, gateway: GatewayId, id: LogId) -> Log | None: ...

    def payload(self, account: AccountId, gateway: GatewayId, id: LogId) -> Payload:
        """Empty for one that isn't there."""

    def change_log(self, log: Log) -> None:
        """In place of the one with its id, with the payload as it was. As durable as `put_logs`."""

    async def logs(self, account: AccountId, gateway: GatewayId, query: LogQuery) -> tuple[list[Log], int]:
        """A page, and how many there are in all. Nobody waits for a search but whoever asked. Raises BadRequest where it takes too long."""

    async def log_ids(self, account: AccountId, gateway: GatewayId, query: LogQuery) -> list[LogId]:
        """Of those on the page. Raises BadRequest where that takes too long."""

    def remove_logs(self, account: AccountId, gateway: GatewayId, ids: Sequence[LogId]) -> None:
        """As durable as `put_logs`."""

    def log_sizes(self, account: AccountId) -> dict[GatewayId, tuple[int, int]]:
        """How many there are, and their bytes."""

    def trim_logs(self, account: AccountId, gateway: GatewayId | None, *, count: int, size: int) -> dict[GatewayId, tuple[int, int]]:
        """Removes the oldest, of one gateway or of all of the account, until at least `count` and at least `size` bytes are gone, or all.
        How many and how large they were."""

    def forget_logs(self, *, created_before: float) -> bool:
        """A piece of what is older; whether there may be more."""


def log_size(log: Log, payload: Payload) -> int:
    """Bytes that a log counts for."""
    texts = (log.model, log.path, log.event_id, log.request_content_type, log.response_content_type, log.user_agent)
    metadata = sum(len(str(value)) + len(name) for name, value in log.metadata.items())
    return 512 + sum(map(len, texts)) + metadata + len(payload.request) + len(payload.response)


class GatewaysPort(Protocol):
    """An account's gateways. What belongs to another account isn't there."""

    def gateway(self, account: AccountId, id: GatewayId) -> Gateway:
        """Kept in memory. Raises UnknownGateway."""

    def admit(self, gateway: Gateway) -> None:
        """Counts a request. Raises RateLimited, with when to come again."""

    def kept(self, gateway: Gateway, key: bytes) -> Kept | None:
        """The answer to the same request, where it is still good."""

    def keep(self, gateway: Gateway, key: bytes, kept: Kept, *, ttl_s: int) -> None:
        """Where there is room for it."""

    def forget(self, gateway: Gateway, key: bytes) -> None:
        """The answer isn't good any more."""

    def new_log_id(self) -> LogId:
        """Not to be guessed."""

    def record(self, gateway: Gateway, log: Log, payload: Payload) -> None:
        """Written down within moments, in the order in which they come; a full disk or a full gateway costs the log, never the request.
        Of one that was removed meanwhile nothing is, whoever has its name now."""

    # ---- by their owners

    def all(self, account: AccountId) -> Sequence[Gateway]:
        """By their ids, the default one among them."""

    def create(self, account: AccountId, id: GatewayId, settings: GatewaySettings) -> Gateway:
        """Raises Conflict where it is there, or where the account has too many."""

    def update(self, account: AccountId, id: GatewayId, settings: GatewaySettings) -> Gateway:
        """Raises UnknownGateway."""

    async def remove(self, account: AccountId, id: GatewayId) -> Gateway:
        """With its logs and what it keeps. Raises UnknownGateway."""

    def log(self, account: AccountId, gateway: GatewayId, id: LogId) -> Log:
        """Raises UnknownGateway, UnknownLog."""

    def payload(self, log: Log) -> Payload: ...

    async def logs(self, account: AccountId, gateway: GatewayId, query: LogQuery) -> tuple[Sequence[Log], int]:
        """A page, and how many there are in all. Raises UnknownGateway; BadRequest for a search that takes too long."""

    def change_log(self, log: Log) -> None:
        """With the id of one that is there."""

    async def remove_logs(self, account: AccountId, gateway: GatewayId, query: LogQuery) -> int:
        """Those of the page, and how many they were. Raises UnknownGateway, BadRequest."""
