"""Searches among the logs of gateways, beside everything else: they read each log of a gateway, which takes as long as it takes.

A connection of its own, in a thread of its own, one search after another. SQLite keeps the locks of all connections of a process together.
"""

import asyncio
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import msgspec

from fornada.core.errors import BadRequest, InternalFault
from fornada.core.gateway import GatewayId, Log, LogId
from fornada.core.names import AccountId
from fornada.core.ports_gateway import Comparison, Filter, LogQuery, Value

LONGEST_S = 5.0
"""Of a search; whoever waits behind it waits so long."""
LOOK_STEPS = 20_000
"""Of SQLite's machine, between two looks at the clock."""

_FIELD = "json_extract(record, '$.{}')"
_EXPRESSIONS = {
    "id": "id",
    "created_at": "created",
    "duration": _FIELD.format("duration_ms"),
    "tokens": f"{_FIELD.format('tokens_in')} + {_FIELD.format('tokens_out')}",
    **{
        name: _FIELD.format(name)
        for name in (
            *("request_content_type", "response_content_type", "request_type", "status_code", "success", "cached", "provider", "model"),
            *("model_type", "cost", "tokens_in", "tokens_out", "feedback", "event_id", "user_agent"),
        )
    },
}
_IN_METADATA = {"metadata.key": "key", "metadata.value": "value"}
_OPERATORS = {
    Comparison.EQ: "{} IS ?",
    Comparison.NEQ: "{} IS NOT ?",
    Comparison.CONTAINS: "instr(lower({}), lower(?)) > 0",
    Comparison.LT: "{} < ?",
    Comparison.GT: "{} > ?",
    Comparison.LEAST: "{} >= ?",
    Comparison.MOST: "{} <= ?",
}
_SEARCHED = " || char(10) || ".join(
    ("id", *(f"ifnull({_FIELD.format(name)}, '')" for name in ("provider", "model", "path", "event_id", "metadata")))
)

_Words = list[str]
_Values = list[str | float | int | None]


T = TypeVar("T")


class LogSearch:
    """Over the store's file `path`."""

    def __init__(self, path: Path, *, longest_s: float = LONGEST_S) -> None:
        self._path = path
        self._longest_s = longest_s
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="log search")
        self._db: sqlite3.Connection | None = None

    async def logs(self, account: AccountId, gateway: GatewayId, query: LogQuery) -> tuple[list[Log], int]:
        """A page, and how many there are in all. Raises BadRequest where that takes too long."""
        which, values = _where(account, gateway, query)

        def search(db: sqlite3.Connection) -> tuple[list[Log], int]:
            (total,) = db.execute(f"SELECT COUNT(*) FROM gateway_logs WHERE {which}", values).fetchone()
            rows = db.execute(f"SELECT record FROM gateway_logs WHERE {which} {_order(query)}", (*values, query.limit, query.offset))
            return [read_log(record) for (record,) in rows], int(total)

        return await self._run(search)

    async def ids(self, account: AccountId, gateway: GatewayId, query: LogQuery) -> list[LogId]:
        """Of the logs of a page. Raises BadRequest where that takes too long."""
        which, values = _where(account, gateway, query)

        def search(db: sqlite3.Connection) -> list[LogId]:
            rows = db.execute(f"SELECT id FROM gateway_logs WHERE {which} {_order(query)}", (*values, query.limit, query.offset))
            return [LogId(id) for (id,) in rows]

        return await self._run(search)

    def close(self) -> None:
        self._thread.shutdown()
        if self._db is not None:
            self._db.close()

    async def _run(self, search: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._searched, search)

    def _searched(self, search: Callable[[sqlite3.Connection], T]) -> T:
        try:
            if self._db is None:
                self._db = sqlite3.connect(f"{self._path.as_uri()}?mode=ro", uri=True, isolation_level=None, check_same_thread=False)
            until = time.monotonic() + self._longest_s
            self._db.set_progress_handler(lambda: time.monotonic() > until, LOOK_STEPS)
            return search(self._db)
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT:
                raise BadRequest(f"the search took more than {self._longest_s:g} s: narrow it by start_date and end_date") from None
            raise InternalFault(f"the logs of {self._path} can't be searched: {error}") from error
        except sqlite3.Error as error:
            raise InternalFault(f"the logs of {self._path} can't be searched: {error}") from error


def read_log(record: str) -> Log:
    """A log as the store keeps it."""
    return msgspec.json.decode(record, type=Log)


def _where(account: AccountId, gateway: GatewayId, query: LogQuery) -> tuple[str, _Values]:
    words: _Words = ["account = ?", "gateway = ?"]
    values: _Values = [account, gateway]
    for filter in query.filters:
        _add(filter, words, values)
    if query.search:
        words.append(f"instr(lower({_SEARCHED}), lower(?)) > 0")
        values.append(query.search)
    return " AND ".join(words), values


def _add(filter: Filter, words: _Words, values: _Values) -> None:
    """Only texts of this module's own go into the statement."""
    form = _OPERATORS[filter.operator]
    inner = _IN_METADATA.get(filter.key)
    among = " AND " if filter.operator is Comparison.NEQ else " OR "
    wanted = [_bound(value, filter.operator) for value in filter.values]
    if inner is None:
        words.append(f"({among.join(form.format(f'({_EXPRESSIONS[filter.key]})') for _ in wanted) or 'FALSE'})")
    else:
        # A log that has one such entry; for `neq` one that has none with the value.
        positive = _OPERATORS[Comparison.EQ] if filter.operator is Comparison.NEQ else form
        each = " OR ".join(positive.format(inner) for _ in wanted) or "FALSE"
        no = "NOT " if filter.operator is Comparison.NEQ else ""
        words.append(f"{no}EXISTS (SELECT 1 FROM json_each(record, '$.metadata') WHERE {each})")
    values += wanted


def _bound(value: Value, operator: Comparison) -> str | float | int | None:
    if isinstance(value, bool):
        return int(value)
    return str(value) if operator is Comparison.CONTAINS else value


def _order(query: LogQuery) -> str:
    way = "DESC" if query.descending else "ASC"
    return f"ORDER BY {_EXPRESSIONS[query.order_by]} {way}, created {way}, rowid {way} LIMIT ? OFFSET ?"
