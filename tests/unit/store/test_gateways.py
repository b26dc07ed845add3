"""Gateways and their logs in the SQLite file."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fornada.core.errors import BadRequest
from fornada.core.gateway import Backoff, Gateway, GatewayId, GatewaySettings, Log, LogId, Payload, WhenFull
from fornada.core.keys import KeyId
from fornada.core.names import AccountId
from fornada.core.ports_gateway import FILTERED, ORDERED, Comparison, Filter, LogQuery, log_size
from fornada.store.log_search import LogSearch
from fornada.store.sqlite import SqliteStore

ACCOUNT, OTHER, G, H = AccountId("a"), AccountId("b"), GatewayId("g"), GatewayId("h")
ALL = LogQuery(limit=1000)


@pytest.fixture
def reopen(tmp_path: Path) -> Iterator[Callable[[], SqliteStore]]:
    """Opens the same store again at each call, as a restarted node would."""
    opened: list[SqliteStore] = []

    def open_again() -> SqliteStore:
        while opened:
            opened.pop().close()
        opened.append(SqliteStore(tmp_path / "store.sqlite"))
        return opened[-1]

    yield open_again
    for store in opened:
        store.close()


@pytest.fixture
def store(reopen: Callable[[], SqliteStore]) -> SqliteStore:
    return reopen()


def log(number: int = 1, *, account: AccountId = ACCOUNT, gateway: GatewayId = G, **fields: Any) -> Log:
    usual: dict[str, Any] = {
        "id": LogId(f"log-{number}"),
        "account": account,
        "gateway": gateway,
        "created": float(number),
        "provider": "workers-ai",
        "model": "@test/a",
        "model_type": "custom",
        "path": "@test/a",
        "request_type": "direct",
        "request_content_type": "application/json",
        "response_content_type": "application/json",
        "status_code": 200,
        "success": True,
        "cached": False,
        "duration_ms": number,
    }
    return Log(**{**usual, **fields})


def ids(store: SqliteStore, account: AccountId = ACCOUNT, gateway: GatewayId = G, **query: Any) -> list[str]:
    return [each.id for each in found(store, account, gateway, LogQuery(**{"limit": 1000, "descending": False, **query}))[0]]


def found(store: SqliteStore, account: AccountId, gateway: GatewayId, query: LogQuery) -> tuple[list[Log], int]:
    return asyncio.run(store.logs(account, gateway, query))


def test_a_gateway_is_there_after_a_restart_and_equal(reopen: Callable[[], SqliteStore]):
    kept = Gateway(
        ACCOUNT, G, GatewaySettings(cache_ttl=60, retry_backoff=Backoff.LINEAR, log_management_strategy=WhenFull.STOP_INSERTING), 1.0, 2.0
    )
    reopen().put_gateway(kept)
    store = reopen()
    assert store.gateway(ACCOUNT, G) == kept and store.gateways(ACCOUNT) == [kept]
    assert store.gateway(OTHER, G) is None and store.gateways(OTHER) == []
    changed = msgspec.structs.replace(kept, settings=GatewaySettings())
    store.put_gateway(changed)
    assert store.gateway(ACCOUNT, G) == changed


def test_a_log_is_there_after_a_restart_and_equal_and_nobody_else_s(reopen: Callable[[], SqliteStore]):
    full = log(tokens_in=3, cost=0.25, metadata={"a": "x", "b": 2.5, "c": True}, feedback=-1, score=7.0, key=KeyId("k"), event_id="e")
    reopen().put_logs([(full, Payload(b"\x00asked", b"answered"))])
    store = reopen()
    assert store.log(ACCOUNT, G, full.id) == full
    assert store.payload(ACCOUNT, G, full.id) == Payload(b"\x00asked", b"answered")
    for account, gateway in ((OTHER, G), (ACCOUNT, H)):
        assert store.log(account, gateway, full.id) is None
        assert store.payload(account, gateway, full.id) == Payload()
        assert ids(store, account, gateway) == []


def test_a_changed_log_keeps_its_payload(store: SqliteStore):
    store.put_logs([(log(), Payload(b"asked", b"answered"))])
    store.change_log(log(feedback=1))
    assert store.log(ACCOUNT, G, LogId("log-1")) == log(feedback=1)
    store.change_log(log(account=OTHER, feedback=-1))
    assert store.log(ACCOUNT, G, LogId("log-1")) == log(feedback=1)
    assert store.payload(ACCOUNT, G, LogId("log-1")) == Payload(b"asked", b"answered")


def test_a_removed_gateway_takes_its_logs_with_it_and_no_other_s(store: SqliteStore):
    for account, gateway, number in ((ACCOUNT, G, 1), (ACCOUNT, H, 2), (OTHER, G, 3)):
        store.put_gateway(Gateway(account, gateway, GatewaySettings(), 0.0, 0.0))
        store.put_logs([(log(number, account=account, gateway=gateway), Payload())])
    store.remove_gateway(ACCOUNT, G)
    assert ids(store) == [] and store.gateway(ACCOUNT, G) is None
    assert ids(store, ACCOUNT, H) == ["log-2"] and ids(store, OTHER, G) == ["log-3"]


def test_the_oldest_go_until_there_is_room(store: SqliteStore):
    logs = [(log(number, gateway=G if number % 2 else H), Payload(b"x" * 100)) for number in range(1, 9)]
    store.put_logs(logs)
    size = log_size(*logs[0])
    assert store.log_sizes(ACCOUNT) == {G: (4, 4 * size), H: (4, 4 * size)}
    assert store.trim_logs(ACCOUNT, G, count=1, size=0) == {G: (1, size)}
    assert store.trim_logs(ACCOUNT, None, count=0, size=size + 1) == {H: (1, size), G: (1, size)}
    assert (ids(store), ids(store, gateway=H)) == (["log-5", "log-7"], ["log-4", "log-6", "log-8"])
    assert store.trim_logs(OTHER, None, count=9, size=9) == {}
    assert not store.forget_logs(created_before=6.0)
    assert (ids(store), ids(store, gateway=H)) == (["log-7"], ["log-6", "log-8"])


def test_what_a_page_shows_is_what_its_removal_removes(store: SqliteStore):
    store.put_logs([(log(number, success=number % 3 > 0), Payload()) for number in range(1, 10)])
    query = LogQuery(filters=(Filter("success", Comparison.EQ, (True,)),), descending=False, limit=2)
    shown, total = found(store, ACCOUNT, G, query)
    assert ([each.id for each in shown], total) == (["log-1", "log-2"], 6)
    page = asyncio.run(store.log_ids(ACCOUNT, G, query))
    store.remove_logs(OTHER, G, page)
    store.remove_logs(ACCOUNT, H, page)
    assert len(ids(store)) == 9, "nobody else can"
    store.remove_logs(ACCOUNT, G, page)
    assert ids(store) == [f"log-{number}" for number in range(3, 10)]


def test_a_search_that_takes_too_long_ends_and_holds_nobody_up(store: SqliteStore, tmp_path: Path):
    store.put_logs([(log(number, metadata={"user": str(number)}), Payload()) for number in range(20_000)])
    slow = LogQuery(filters=tuple(Filter("metadata.value", Comparison.CONTAINS, tuple("abcdefghij")) for _ in range(3)))
    search = LogSearch(tmp_path / "store.sqlite", longest_s=0.0)

    async def beside() -> int:
        searching = asyncio.create_task(search.logs(ACCOUNT, G, slow))
        turns = 0
        while not searching.done():
            await asyncio.sleep(0)
            turns += 1
        with pytest.raises(BadRequest, match="start_date"):
            searching.result()
        return turns

    assert asyncio.run(beside()) > 1, "the loop went on"
    assert asyncio.run(search.ids(ACCOUNT, G, LogQuery(limit=1))) == ["log-19999"], "the next search isn't hurt by it"
    search.close()


VALUES = st.sampled_from([None, True, False, 0, 1, 1.5, "", "a", "A", "@test/a", "x' OR 1=1", "%", "log-1", "workers-ai", "metadata"])
filters = st.builds(Filter, st.sampled_from(FILTERED), st.sampled_from(Comparison), st.lists(VALUES, max_size=3).map(tuple))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(filters, max_size=3), VALUES, st.sampled_from(ORDERED), st.booleans(), st.integers(0, 4), st.integers(1, 4))
def test_pages_of_any_query_are_the_whole_in_pieces(
    store: SqliteStore, wanted: list[Filter], search: object, order: str, descending: bool, offset: int, limit: int
):
    fields: list[dict[str, Any]] = [
        {},
        {"metadata": {"a": "x", "A": 1}},
        {"success": False, "model": "b"},
        {"cached": True, "cost": 1.5, "feedback": 1},
    ]
    store.put_logs([(log(number, **each), Payload()) for number, each in enumerate(fields)])
    query = LogQuery(tuple(wanted), str(search or ""), order, descending, 0, 1000)
    whole, total = found(store, ACCOUNT, G, query)
    assert len(whole) == total
    page, again = found(store, ACCOUNT, G, msgspec.structs.replace(query, offset=offset, limit=limit))
    assert page == whole[offset : offset + limit] and again == total
    assert found(store, OTHER, G, query) == ([], 0), "no words of a filter reach another account"


@pytest.mark.parametrize(
    ("filter", "names"),
    [
        (Filter("tokens", Comparison.GT, (4,)), ["log-2"]),
        (Filter("duration", Comparison.LEAST, (2,)), ["log-2", "log-3"]),
        (Filter("created_at", Comparison.MOST, (2.0,)), ["log-1", "log-2"]),
        (Filter("model", Comparison.EQ, ("b", "c")), ["log-2", "log-3"]),
        (Filter("model", Comparison.NEQ, ("b", "c")), ["log-1"]),
        (Filter("model", Comparison.CONTAINS, ("TEST",)), ["log-1"]),
        (Filter("feedback", Comparison.EQ, (None,)), ["log-1", "log-2"]),
        (Filter("metadata.key", Comparison.EQ, ("user",)), ["log-1", "log-3"]),
        (Filter("metadata.value", Comparison.EQ, ("ann", 7)), ["log-1", "log-3"]),
        (Filter("metadata.value", Comparison.NEQ, ("ann",)), ["log-2", "log-3"]),
        (Filter("cached", Comparison.EQ, (True,)), ["log-3"]),
        (Filter("model", Comparison.EQ, ()), []),
    ],
)
def test_filters_find_what_they_say(store: SqliteStore, filter: Filter, names: list[str]):
    store.put_logs(
        [
            (log(1, metadata={"user": "ann"}), Payload()),
            (log(2, model="b", tokens_in=3, tokens_out=2), Payload()),
            (log(3, model="c", metadata={"user": 7}, feedback=1, cached=True), Payload()),
        ]
    )
    assert ids(store, filters=(filter,)) == names
