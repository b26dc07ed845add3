"""AI gateways: their rules, what they keep of answers, and what they write down (core.ports_gateway.GatewaysPort).

answers   in memory, gone with the process; an account's are found by that account alone, and make room among themselves first
windows   in memory: a successor begins anew
logs      waiting ─every FLUSH_S, and before anybody reads─► the store    kill -9 costs what waits, a full disk what doesn't fit into WAITING
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fornada.core.errors import Conflict, DiskFull, FornadaError, RateLimited, UnknownGateway, UnknownLog
from fornada.core.gateway import (
    DEFAULT_GATEWAY,
    MOST_GATEWAYS,
    USUAL_LOGS,
    Gateway,
    GatewayId,
    GatewaySettings,
    Log,
    LogId,
    Payload,
    WhenFull,
)
from fornada.core.names import AccountId, Instant
from fornada.core.policy.gateway_cache import Kept
from fornada.core.policy.windows import Window, window_of
from fornada.core.ports import Clock, EventLog
from fornada.core.ports_gateway import GatewayStore, LogQuery, log_size
from fornada.core.resources import parse_size
from fornada.core.settings import GatewaysSettings

FLUSH_S = 0.1
AGAIN_S = 5.0
"""After the store has refused logs."""
KEEPING_S = 60.0
"""How often old logs go."""
WAITING_BYTES = 16 * 1024 * 1024
"""Of logs that the store has not taken; beyond it the newest are dropped."""
REMOVED_TOGETHER, REMOVED_AT_ONCE = 10_000, 250
"""Logs that are looked for together, and those that go before anybody else's turn."""
KNOWN = 4096
"""Gateways held in memory, in use or not."""
SHARE = 8
"""One answer may take that part of the cache."""

Place = tuple[AccountId, GatewayId]


@dataclass(slots=True)
class _Known:
    """A gateway in memory."""

    gateway: Gateway
    window: Window | None
    kept: "OrderedDict[bytes, tuple[Kept, Instant]]" = field(default_factory=OrderedDict)
    """Answers and when they end, the one asked for longest ago first."""


class Gateways:
    """Implements GatewaysPort."""

    def __init__(self, *, store: GatewayStore, clock: Clock, log: EventLog, settings: GatewaysSettings, new_id: Callable[[], str]) -> None:
        self._store = store
        self._clock = clock
        self._log = log
        self._keep_logs_s = settings.keep_logs_s
        self._most_logs = parse_size(settings.max_logs)
        self._most_kept = parse_size(settings.cache)
        self._new_id = new_id
        self._known: OrderedDict[Place, _Known] = OrderedDict()
        self._bytes: dict[AccountId, int] = {}
        """Of kept answers."""
        self._waiting: list[tuple[Log, Payload]] = []
        self._waiting_bytes = 0
        self._sizes: dict[AccountId, dict[GatewayId, tuple[int, int]]] = {}
        """Logs in the store: how many, and their bytes; of accounts that have been written for."""
        self._flushing: asyncio.TimerHandle | None = None
        self._keeping: asyncio.TimerHandle | None = None

    # ---- requests

    def gateway(self, account: AccountId, id: GatewayId) -> Gateway:
        return self._of(account, id).gateway

    def admit(self, gateway: Gateway) -> None:
        window = self._of(gateway.account, gateway.id).window
        if window is None:
            return
        now = self._clock.now()
        if (wait_s := window.wait_s(now)) > 0:
            raise RateLimited(f"the gateway '{gateway.id}' takes {window.most} requests in {window.window_s:g} s", retry_after_s=wait_s)
        window.take(now)

    def kept(self, gateway: Gateway, key: bytes) -> Kept | None:
        known = self._still(gateway)
        found = known.kept.get(key) if known is not None else None
        if known is None or found is None:
            return None
        if found[1] <= self._clock.now():
            self._drop(gateway.account, known, key)
            return None
        known.kept.move_to_end(key)
        return found[0]

    def keep(self, gateway: Gateway, key: bytes, kept: Kept, *, ttl_s: int) -> None:
        if kept.bytes > self._most_kept // SHARE:
            return
        account = gateway.account
        known = self._still(gateway)
        if known is None:
            return
        self._drop(account, known, key)
        known.kept[key] = (kept, Instant(self._clock.now() + ttl_s))
        self._bytes[account] = self._bytes.get(account, 0) + kept.bytes
        while sum(self._bytes.values()) > self._most_kept:
            self._make_room()

    def forget(self, gateway: Gateway, key: bytes) -> None:
        known = self._still(gateway)
        if known is not None:
            self._drop(gateway.account, known, key)

    def new_log_id(self) -> LogId:
        return LogId(self._new_id())

    def record(self, gateway: Gateway, log: Log, payload: Payload) -> None:
        if self._still(gateway) is None:
            return
        size = log_size(log, payload)
        if self._waiting_bytes + size > WAITING_BYTES:
            self._log.warning(
                "gateway.log_dropped", account=log.account, gateway=log.gateway, reason="the store has not taken those before it"
            )
            return
        self._waiting.append((log, payload))
        self._waiting_bytes += size
        if self._flushing is None:
            self._flushing = asyncio.get_running_loop().call_later(FLUSH_S, self._flush_due)

    # ---- owners

    def all(self, account: AccountId) -> Sequence[Gateway]:
        found = self._store.gateways(account)
        if not any(gateway.id == DEFAULT_GATEWAY for gateway in found):
            found.insert(0, self.gateway(account, DEFAULT_GATEWAY))
        return found

    def create(self, account: AccountId, id: GatewayId, settings: GatewaySettings) -> Gateway:
        there = self._store.gateways(account)
        if any(gateway.id == id for gateway in there):
            raise Conflict(f"there is a gateway '{id}' already")
        if len(there) >= MOST_GATEWAYS:
            raise Conflict(f"an account may have {MOST_GATEWAYS} gateways: remove one that isn't needed any more")
        now = self._clock.wall()
        return self._put(Gateway(account, id, settings, now, now), forget=False)

    def update(self, account: AccountId, id: GatewayId, settings: GatewaySettings) -> Gateway:
        old = self.gateway(account, id)
        return self._put(Gateway(account, id, settings, old.created, self._clock.wall()), forget=settings.cache_invalidate_on_update)

    async def remove(self, account: AccountId, id: GatewayId) -> Gateway:
        gone = self.gateway(account, id)
        while await self.remove_logs(account, id, LogQuery(limit=REMOVED_TOGETHER, descending=False)) == REMOVED_TOGETHER:
            pass  # most of them in pieces, so that nobody waits for all of them
        self._waiting = [entry for entry in self._waiting if (entry[0].account, entry[0].gateway) != (account, id)]
        self._store.remove_gateway(account, id)
        self._sizes.pop(account, None)
        self._let_go((account, id))
        return gone

    def log(self, account: AccountId, gateway: GatewayId, id: LogId) -> Log:
        self._of(account, gateway)
        self._flush()
        found = self._store.log(account, gateway, id)
        if found is None:
            raise UnknownLog(f"no such log '{id[:64]}'")
        return found

    def payload(self, log: Log) -> Payload:
        return self._store.payload(log.account, log.gateway, log.id)

    async def logs(self, account: AccountId, gateway: GatewayId, query: LogQuery) -> tuple[Sequence[Log], int]:
        self._of(account, gateway)
        self._flush()
        return await self._store.logs(account, gateway, query)

    def change_log(self, log: Log) -> None:
        self._store.change_log(log)

    async def remove_logs(self, account: AccountId, gateway: GatewayId, query: LogQuery) -> int:
        self._of(account, gateway)
        self._flush()
        ids = await self._store.log_ids(account, gateway, query)
        for begin in range(0, len(ids), REMOVED_AT_ONCE):
            self._store.remove_logs(account, gateway, ids[begin : begin + REMOVED_AT_ONCE])
            self._sizes.pop(account, None)
            await asyncio.sleep(0)
        return len(ids)

    # ---- as long as the node runs

    def start(self) -> None:
        """Forgets old logs from now on."""
        self._keep()

    def close(self) -> None:
        """Writes down what waits."""
        for timer in (self._keeping, self._flushing):
            if timer is not None:
                timer.cancel()
        self._flush()

    # ---- gateways in memory

    def _of(self, account: AccountId, id: GatewayId) -> _Known:
        known = self._known.get((account, id))
        if known is not None:
            self._known.move_to_end((account, id))
            return known
        gateway = self._store.gateway(account, id)
        if gateway is None and id == DEFAULT_GATEWAY:
            gateway = Gateway(account, id, GatewaySettings(), 0.0, 0.0)
        if gateway is None:
            raise UnknownGateway(
                f"the account has no gateway '{id}': POST …/ai-gateway/gateways makes one; '{DEFAULT_GATEWAY}' is always there"
            )
        known = self._known[account, id] = _Known(gateway, window_of(gateway.settings))
        if len(self._known) > KNOWN:
            self._let_go(next(iter(self._known)))
        return known

    def _still(self, gateway: Gateway) -> _Known | None:
        """None: it was removed under a request that is on its way, or another one has its name."""
        try:
            known = self._of(gateway.account, gateway.id)
        except UnknownGateway:
            return None
        return known if known.gateway.created == gateway.created else None

    def _put(self, gateway: Gateway, *, forget: bool) -> Gateway:
        self._store.put_gateway(gateway)
        place = (gateway.account, gateway.id)
        known = self._known.get(place)
        if known is None:
            return gateway
        if forget:
            self._let_go(place)
            return gateway
        before, now = known.gateway.settings, gateway.settings
        same = all(getattr(before, name) == getattr(now, name) for name in _OF_WINDOW)
        known.gateway = gateway
        known.window = known.window if same else window_of(now)
        return gateway

    def _let_go(self, place: Place) -> None:
        known = self._known.pop(place, None)
        for key in tuple(known.kept) if known is not None else ():
            assert known is not None
            self._drop(place[0], known, key)

    def _drop(self, account: AccountId, known: _Known, key: bytes) -> None:
        gone = known.kept.pop(key, None)
        if gone is None:
            return
        left = self._bytes[account] - gone[0].bytes
        if left:
            self._bytes[account] = left
        else:
            del self._bytes[account]

    def _make_room(self) -> None:
        """Takes from whoever holds the most, so that nobody learns from his own answers' going what little somebody else keeps."""
        account = max(self._bytes, key=self._bytes.__getitem__)
        known = max((each for place, each in self._known.items() if place[0] == account), key=lambda each: len(each.kept))
        self._drop(account, known, next(iter(known.kept)))

    # ---- logs

    def _flush_due(self) -> None:
        self._flushing = None
        self._flush()

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        refusals: list[FornadaError] = []
        for account in dict.fromkeys(log.account for log, _ in waiting):
            entries = [entry for entry in waiting if entry[0].account == account]
            try:
                if all(isinstance(refusal, DiskFull) for refusal in refusals):  # what is little may fit; of a locked store each would wait
                    self._write(account, entries)
                    continue
            except FornadaError as error:
                refusals.append(error)
                self._sizes.pop(account, None)  # what of it is there is counted once it is written again, under the same ids
            self._waiting += entries
        self._waiting_bytes = sum(log_size(*entry) for entry in self._waiting)
        if refusals:
            self._log.warning("gateway.logs_waiting", logs=len(self._waiting), reason=refusals[0].message)
            if self._flushing is None:
                self._flushing = asyncio.get_running_loop().call_later(AGAIN_S, self._flush_due)

    def _write(self, account: AccountId, entries: list[tuple[Log, Payload]]) -> None:
        sizes = self._sizes.pop(account, None)
        if sizes is None:
            sizes = self._store.log_sizes(account)
        held = sum(size for _, size in sizes.values())
        written: list[tuple[Log, Payload]] = []
        for log, payload in entries:
            settings = self._settings_of(account, log.gateway)
            size = log_size(log, payload)
            count, mine = sizes.get(log.gateway, (0, 0))
            stops = settings.log_management_strategy is WhenFull.STOP_INSERTING
            if stops and (count >= (settings.log_management or USUAL_LOGS) or held + size > self._most_logs):
                continue
            sizes[log.gateway] = (count + 1, mine + size)
            held += size
            written.append((log, payload))
        self._store.put_logs(written)
        self._sizes[account] = sizes
        for gateway, (count, _) in tuple(sizes.items()):
            most = self._settings_of(account, gateway).log_management or USUAL_LOGS
            if count > most:
                self._trim(account, gateway, count=count - most, size=0)
        held = sum(size for _, size in self._sizes[account].values())
        if held > self._most_logs:
            self._trim(account, None, count=0, size=held - self._most_logs)

    def _trim(self, account: AccountId, gateway: GatewayId | None, *, count: int, size: int) -> None:
        sizes = self._sizes[account]
        for of, (gone, bytes) in self._store.trim_logs(account, gateway, count=count, size=size).items():
            before = sizes.get(of, (gone, bytes))
            sizes[of] = (before[0] - gone, before[1] - bytes)

    def _settings_of(self, account: AccountId, id: GatewayId) -> GatewaySettings:
        try:
            return self.gateway(account, id).settings
        except UnknownGateway:  # it was removed meanwhile
            return GatewaySettings()

    def _keep(self) -> None:
        self._keeping = asyncio.get_running_loop().call_later(KEEPING_S, self._keep)
        try:
            self._sizes.clear()
            if self._store.forget_logs(created_before=self._clock.wall() - self._keep_logs_s):
                self._keeping.cancel()
                self._keeping = asyncio.get_running_loop().call_later(FLUSH_S, self._keep)
        except FornadaError as error:
            self._log.warning("gateway.store_failed", reason=error.message)


_OF_WINDOW = ("rate_limiting_interval", "rate_limiting_limit", "rate_limiting_technique")
