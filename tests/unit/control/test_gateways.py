"""What AI gateways keep in memory and on disk: bounded, an account's own, and never in a request's way."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fornada.control.gateways import AGAIN_S, FLUSH_S, KEEPING_S, WAITING_BYTES, Gateways
from fornada.core.errors import Conflict, DiskFull, RateLimited, UnknownGateway, UnknownLog
from fornada.core.gateway import DEFAULT_GATEWAY, MOST_GATEWAYS, GatewayId, GatewaySettings, Log, LogId, Payload, WhenFull
from fornada.core.names import AccountId, ModelName, VersionDigest
from fornada.core.policy.gateway_cache import Kept
from fornada.core.ports_gateway import LogQuery, log_size
from fornada.core.settings import GatewaysSettings
from fornada.store.sqlite import SqliteStore
from tests.loops.virtual import VirtualClock, virtual
from tests.unit.store.test_gateways import log

ACCOUNT, OTHER, G, H = AccountId("a"), AccountId("b"), GatewayId("g"), GatewayId("h")


class Told:
    """An EventLog that remembers."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def info(self, event: str, /, **fields: Any) -> None:
        self.events.append(event)

    warning = info


class Desk:
    """Gateways over a store, in a loop of virtual time."""

    def __init__(self, path: Path, settings: GatewaysSettings) -> None:
        self.store = SqliteStore(path)
        self.told = Told()
        self.clock = VirtualClock()
        self.numbers = 0
        self.gateways = Gateways(store=self.store, clock=self.clock, log=self.told, settings=settings, new_id=self._new_id)
        self.gateways.create(ACCOUNT, G, GatewaySettings())

    def _new_id(self) -> str:
        self.numbers += 1
        return str(self.numbers)

    def write(self, number: int, payload: bytes = b"", **fields: Any) -> None:
        made = log(number, **fields)
        self.gateways.record(self.gateways.gateway(made.account, made.gateway), made, Payload(payload))

    async def ids(self, account: AccountId = ACCOUNT, gateway: GatewayId = G) -> list[str]:
        return [each.id for each in (await self.gateways.logs(account, gateway, LogQuery(limit=10_000, descending=False)))[0]]

    async def written(self) -> int:
        """Logs in the store, without asking for those that wait."""
        return (await self.store.logs(ACCOUNT, G, LogQuery()))[1]


Make = Callable[..., Desk]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Desk] = []

    def desk(**settings: Any) -> Desk:
        made.append(Desk(tmp_path / f"{len(made)}.sqlite", GatewaysSettings(**settings)))
        return made[-1]

    yield desk
    for each in made:
        each.store.close()


def kept(size: int = 100, model: str = "@test/a") -> Kept:
    return Kept(ModelName(model), VersionDigest("1"), "text/plain", b"", b"x" * size)


# ---- what is kept of answers


@virtual
async def test_an_answer_is_kept_for_its_time_and_no_longer(make: Make):
    desk = make()
    gateway = desk.gateways.gateway(ACCOUNT, G)
    desk.gateways.keep(gateway, b"k", kept(), ttl_s=60)
    await asyncio.sleep(59)
    assert desk.gateways.kept(gateway, b"k") == kept()
    await asyncio.sleep(1)
    assert desk.gateways.kept(gateway, b"k") is None


@virtual
async def test_all_answers_together_stay_within_the_bound_and_who_holds_most_gives_way(make: Make):
    desk = make(cache="16KiB")
    other = desk.gateways.gateway(OTHER, DEFAULT_GATEWAY)
    desk.gateways.keep(other, b"little", kept(), ttl_s=60)
    mine = desk.gateways.gateway(ACCOUNT, G)
    for number in range(1000):
        desk.gateways.keep(mine, b"%d" % number, kept(), ttl_s=60)
    held = [number for number in range(1000) if desk.gateways.kept(mine, b"%d" % number)]
    assert 0 < len(held) * kept().bytes <= 16 * 1024 and held[-1] == 999
    assert desk.gateways.kept(other, b"little"), "what somebody else does costs an account nothing"
    desk.gateways.keep(mine, b"large", kept(16 * 1024 // 8), ttl_s=60)
    assert desk.gateways.kept(mine, b"large") is None, "one answer may not push all others out"


@virtual
async def test_what_was_asked_for_stays_longest(make: Make):
    desk = make(cache="8KiB")
    gateway = desk.gateways.gateway(ACCOUNT, G)
    desk.gateways.keep(gateway, b"liked", kept(), ttl_s=60)
    for number in range(100):
        desk.gateways.keep(gateway, b"%d" % number, kept(), ttl_s=60)
        assert desk.gateways.kept(gateway, b"liked")


@virtual
async def test_a_change_forgets_what_is_kept_only_where_the_gateway_says_so(make: Make):
    desk = make()
    desk.gateways.keep(desk.gateways.gateway(ACCOUNT, G), b"k", kept(), ttl_s=60)
    changed = desk.gateways.update(ACCOUNT, G, GatewaySettings(cache_ttl=5))
    assert desk.gateways.kept(changed, b"k")
    changed = desk.gateways.update(ACCOUNT, G, GatewaySettings(cache_invalidate_on_update=True))
    assert desk.gateways.kept(changed, b"k") is None
    desk.gateways.keep(changed, b"k", kept(), ttl_s=60)
    await desk.gateways.remove(ACCOUNT, G)
    assert desk.gateways.kept(desk.gateways.create(ACCOUNT, G, GatewaySettings()), b"k") is None


# ---- rates


@virtual
async def test_a_change_of_other_settings_opens_no_new_window(make: Make):
    desk = make()
    limit: dict[str, Any] = {"rate_limiting_interval": 60, "rate_limiting_limit": 2}
    gateway = desk.gateways.update(ACCOUNT, G, GatewaySettings(**limit))
    desk.gateways.admit(gateway)
    gateway = desk.gateways.update(ACCOUNT, G, GatewaySettings(cache_ttl=5, **limit))
    desk.gateways.admit(gateway)
    with pytest.raises(RateLimited) as refused:
        desk.gateways.admit(gateway)
    await asyncio.sleep(refused.value.retry_after_s or 0)
    desk.gateways.admit(gateway)


# ---- gateways


@virtual
async def test_an_account_has_its_gateways_the_default_one_and_not_too_many(make: Make):
    desk = make()
    assert [each.id for each in desk.gateways.all(ACCOUNT)] == [DEFAULT_GATEWAY, G]
    with pytest.raises(Conflict):
        desk.gateways.create(ACCOUNT, G, GatewaySettings())
    with pytest.raises(UnknownGateway):
        desk.gateways.gateway(OTHER, G)
    desk.gateways.update(ACCOUNT, DEFAULT_GATEWAY, GatewaySettings(cache_ttl=7))
    assert desk.gateways.gateway(ACCOUNT, DEFAULT_GATEWAY).settings.cache_ttl == 7
    assert desk.gateways.gateway(OTHER, DEFAULT_GATEWAY).settings.cache_ttl is None
    for number in range(MOST_GATEWAYS - 2):
        desk.gateways.create(ACCOUNT, GatewayId(str(number)), GatewaySettings())
    with pytest.raises(Conflict, match=str(MOST_GATEWAYS)):
        desk.gateways.create(ACCOUNT, H, GatewaySettings())


# ---- logs


@virtual
async def test_logs_are_written_within_moments_and_before_anybody_reads(make: Make):
    desk = make()
    desk.write(1)
    assert await desk.written() == 0, "no request waits for the disk"
    assert await desk.ids() == ["log-1"]
    desk.write(2)
    await asyncio.sleep(FLUSH_S)
    assert await desk.written() == 2
    desk.write(3)
    desk.gateways.close()
    assert await desk.written() == 3


@virtual
async def test_a_full_disk_costs_no_request_and_what_waits_is_written_when_there_is_room(make: Make):
    desk = make()
    full, puts = [True], desk.store.put_logs

    class Full:
        """The store, on a disk that is full for a while."""

        def __getattr__(self, name: str) -> Any:
            return getattr(desk.store, name)

        def put_logs(self, logs: list[tuple[Log, Payload]]) -> None:
            if full[0]:
                raise DiskFull("no space left")
            puts(logs)

    gateways = Gateways(store=Full(), clock=desk.clock, log=desk.told, settings=GatewaysSettings(), new_id=str)  # type: ignore[arg-type]
    for number in range(3):
        gateways.record(gateways.gateway(ACCOUNT, G), log(number), Payload())
    await asyncio.sleep(FLUSH_S)
    assert desk.told.events == ["gateway.logs_waiting"]
    piece = Payload(b"x" * (WAITING_BYTES // 8))
    for number in range(3, 23):
        gateways.record(gateways.gateway(ACCOUNT, G), log(number), piece)
    assert "gateway.log_dropped" in desk.told.events, "what waits is bounded"
    full[0] = False
    await asyncio.sleep(AGAIN_S)
    assert await desk.written() == 3 + 7
    gateways.close()


@virtual
async def test_logs_that_do_not_fit_cost_another_account_none(make: Make):
    desk = make()
    desk.gateways.update(ACCOUNT, G, GatewaySettings(log_management=5))
    full, puts = [True], desk.store.put_logs

    class Full:
        """The store, on a disk that has room for one account's logs alone."""

        def __getattr__(self, name: str) -> Any:
            return getattr(desk.store, name)

        def put_logs(self, logs: list[tuple[Log, Payload]]) -> None:
            if full[0] and logs[0][0].account == OTHER:
                raise DiskFull("no space left")
            puts(logs)

    gateways = Gateways(store=Full(), clock=desk.clock, log=desk.told, settings=GatewaysSettings(), new_id=str)  # type: ignore[arg-type]
    gateways.record(gateways.gateway(OTHER, DEFAULT_GATEWAY), log(100, account=OTHER, gateway=DEFAULT_GATEWAY), Payload())
    for number in range(5):
        gateways.record(gateways.gateway(ACCOUNT, G), log(number), Payload())
    await asyncio.sleep(3 * AGAIN_S)
    assert await desk.ids() == [f"log-{number}" for number in range(5)], "written, and counted once"
    gateways.record(gateways.gateway(ACCOUNT, G), log(5), Payload())
    full[0] = False
    await asyncio.sleep(AGAIN_S)
    assert await desk.ids() == [f"log-{number}" for number in range(1, 6)]
    assert await desk.ids(OTHER, DEFAULT_GATEWAY) == ["log-100"]
    gateways.close()


@virtual
async def test_a_gateway_keeps_as_many_logs_as_it_says(make: Make):
    desk = make()
    desk.gateways.update(ACCOUNT, G, GatewaySettings(log_management=5))
    for number in range(20):
        desk.write(number)
        await asyncio.sleep(FLUSH_S)
    assert await desk.ids() == [f"log-{number}" for number in range(15, 20)]
    desk.gateways.update(ACCOUNT, G, GatewaySettings(log_management=5, log_management_strategy=WhenFull.STOP_INSERTING))
    desk.write(20)
    assert await desk.ids() == [f"log-{number}" for number in range(15, 20)]
    await desk.gateways.remove_logs(ACCOUNT, G, LogQuery(limit=1, descending=False))
    for number in range(21, 24):
        desk.write(number)
    assert await desk.ids() == ["log-16", "log-17", "log-18", "log-19", "log-21"]


@virtual
async def test_an_account_s_logs_stay_within_their_bytes_and_another_s_are_left_alone(make: Make):
    desk = make(max_logs="64KiB")
    desk.write(1000, account=OTHER, gateway=DEFAULT_GATEWAY)
    for number in range(100):
        desk.write(number, b"x" * 4096)
        await asyncio.sleep(FLUSH_S)
    sizes = desk.store.log_sizes(ACCOUNT)
    one = log_size(log(), Payload(b"x" * 4096))
    assert 64 * 1024 - one < sum(size for _, size in sizes.values()) <= 64 * 1024
    assert (await desk.ids())[-1] == "log-99"
    assert await desk.ids(OTHER, DEFAULT_GATEWAY) == ["log-1000"]


@virtual
async def test_old_logs_go_in_their_time(make: Make):
    desk = make(keep_logs_s=1000)
    now = desk.clock.wall()
    desk.write(1, created=now)
    desk.write(2, created=now + 1000)
    desk.gateways.start()
    await asyncio.sleep(1000 + KEEPING_S)
    assert await desk.ids() == ["log-2"]
    desk.gateways.close()


@virtual
async def test_a_removed_gateway_s_logs_are_not_written_afterwards(make: Make):
    desk = make()
    desk.write(1)
    await desk.gateways.remove(ACCOUNT, G)
    await asyncio.sleep(FLUSH_S)
    desk.gateways.create(ACCOUNT, G, GatewaySettings())
    assert await desk.ids() == []
    with pytest.raises(UnknownLog):
        desk.gateways.log(ACCOUNT, G, LogId("log-1"))
