"""core.ports_gateway.GatewayStore on the store's file."""

from collections.abc import Sequence

import msgspec

from fornada.core.gateway import Gateway, GatewayId, GatewaySettings, Log, LogId, Payload
from fornada.core.names import AccountId
from fornada.core.ports_gateway import Comparison, Filter, LogQuery, Value, log_size
from fornada.store.file import StoreFile

FORGOTTEN_AT_ONCE = 512
"""Logs: everybody else waits meanwhile."""

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


class GatewayRows(StoreFile):
    """The gateways' tables."""

    def gateways(self, account: AccountId) -> list[Gateway]:
        with self._errors():
            rows = self._db.execute(f"SELECT {_GATEWAY} FROM gateways WHERE account = ? ORDER BY id", (account,))
            return [_gateway(*row) for row in rows]

    def gateway(self, account: AccountId, id: GatewayId) -> Gateway | None:
        with self._errors():
            row = self._db.execute(f"SELECT {_GATEWAY} FROM gateways WHERE account = ? AND id = ?", (account, id)).fetchone()
            return _gateway(*row) if row is not None else None

    def put_gateway(self, gateway: Gateway) -> None:
        with self._transaction():
            row = (gateway.account, gateway.id, msgspec.json.encode(gateway.settings), gateway.created, gateway.modified)
            self._db.execute(f"INSERT OR REPLACE INTO gateways ({_GATEWAY}) VALUES (?, ?, ?, ?, ?)", row)

    def remove_gateway(self, account: AccountId, id: GatewayId) -> None:
        with self._transaction():
            self._db.execute("DELETE FROM gateways WHERE account = ? AND id = ?", (account, id))
            self._db.execute("DELETE FROM gateway_logs WHERE account = ? AND gateway = ?", (account, id))

    def put_logs(self, logs: Sequence[tuple[Log, Payload]]) -> None:
        with self._quick_transaction():
            self._db.executemany(
                "INSERT OR REPLACE INTO gateway_logs (id, account, gateway, created, size, record, request, response) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [(log.id, log.account, log.gateway, log.created, log_size(log, payload), _record(log), *payload) for log, payload in logs],
            )

    def log(self, account: AccountId, gateway: GatewayId, id: LogId) -> Log | None:
        with self._errors():
            row = self._db.execute(
                "SELECT record FROM gateway_logs WHERE id = ? AND account = ? AND gateway = ?", (id, account, gateway)
            ).fetchone()
            return _log(row[0]) if row is not None else None

    def payload(self, account: AccountId, gateway: GatewayId, id: LogId) -> Payload:
        with self._errors():
            row = self._db.execute(
                "SELECT request, response FROM gateway_logs WHERE id = ? AND account = ? AND gateway = ?", (id, account, gateway)
            ).fetchone()
            return Payload(bytes(row[0]), bytes(row[1])) if row is not None else Payload()

    def change_log(self, log: Log) -> None:
        with self._quick_transaction():
            self._db.execute(
                "UPDATE gateway_logs SET record = ? WHERE id = ? AND account = ? AND gateway = ?",
                (_record(log), log.id, log.account, log.gateway),
            )

    def logs(self, account: AccountId, gateway: GatewayId, query: LogQuery) -> tuple[list[Log], int]:
        which, values = _where(account, gateway, query)
        with self._errors():
            (total,) = self._db.execute(f"SELECT COUNT(*) FROM gateway_logs WHERE {which}", values).fetchone()
            rows = self._db.execute(f"SELECT record FROM gateway_logs WHERE {which} {_order(query)}", (*values, query.limit, query.offset))
            return [_log(record) for (record,) in rows], int(total)

    def remove_logs(self, account: AccountId, gateway: GatewayId, query: LogQuery) -> int:
        which, values = _where(account, gateway, query)
        with self._transaction():
            return self._db.execute(
                f"DELETE FROM gateway_logs WHERE rowid IN (SELECT rowid FROM gateway_logs WHERE {which} {_order(query)})",
                (*values, query.limit, query.offset),
            ).rowcount

    def log_sizes(self, account: AccountId) -> dict[GatewayId, tuple[int, int]]:
        with self._errors():
            rows = self._db.execute("SELECT gateway, COUNT(*), SUM(size) FROM gateway_logs WHERE account = ? GROUP BY gateway", (account,))
            return {GatewayId(gateway): (int(count), int(size)) for gateway, count, size in rows}

    def trim_logs(self, account: AccountId, gateway: GatewayId | None, *, count: int, size: int) -> dict[GatewayId, tuple[int, int]]:
        with self._quick_transaction():
            rows = self._db.execute(
                "SELECT rowid, gateway, size FROM gateway_logs WHERE account = ?1 AND (?2 IS NULL OR gateway = ?2) ORDER BY created, rowid",
                (account, gateway),
            )
            gone: list[tuple[int]] = []
            removed: dict[GatewayId, tuple[int, int]] = {}
            for rowid, of, bytes in rows:
                if count <= 0 and size <= 0:
                    break
                gone.append((rowid,))
                count, size = count - 1, size - bytes
                before = removed.get(of, (0, 0))
                removed[of] = (before[0] + 1, before[1] + bytes)
            rows.close()
            self._db.executemany("DELETE FROM gateway_logs WHERE rowid = ?", gone)
            return removed

    def forget_logs(self, *, created_before: float) -> bool:
        with self._quick_transaction():
            done = self._db.execute(
                "DELETE FROM gateway_logs WHERE rowid IN (SELECT rowid FROM gateway_logs WHERE created < ? LIMIT ?)",
                (created_before, FORGOTTEN_AT_ONCE),
            )
            return done.rowcount == FORGOTTEN_AT_ONCE


_GATEWAY = "account, id, settings, created, modified"


def _gateway(account: str, id: str, settings: bytes, created: float, modified: float) -> Gateway:
    return Gateway(AccountId(account), GatewayId(id), msgspec.json.decode(settings, type=GatewaySettings), created, modified)


def _record(log: Log) -> str:
    return msgspec.json.encode(log).decode()


def _log(record: str) -> Log:
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
