"""core.ports_gateway.GatewayStore on the store's file."""

from collections.abc import Sequence
from functools import cached_property

import msgspec

from fornada.core.gateway import Gateway, GatewayId, GatewaySettings, Log, LogId, Payload
from fornada.core.names import AccountId
from fornada.core.ports_gateway import LogQuery, log_size
from fornada.store.file import StoreFile
from fornada.store.log_search import LogSearch, read_log

FORGOTTEN_AT_ONCE = 512
"""Logs: everybody else waits meanwhile."""


class GatewayRows(StoreFile):
    """The gateways' tables."""

    @cached_property
    def _search(self) -> LogSearch:
        return LogSearch(self._path)

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
            return read_log(row[0]) if row is not None else None

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

    async def logs(self, account: AccountId, gateway: GatewayId, query: LogQuery) -> tuple[list[Log], int]:
        return await self._search.logs(account, gateway, query)

    async def log_ids(self, account: AccountId, gateway: GatewayId, query: LogQuery) -> list[LogId]:
        return await self._search.ids(account, gateway, query)

    def remove_logs(self, account: AccountId, gateway: GatewayId, ids: Sequence[LogId]) -> None:
        with self._quick_transaction():
            rows = [(id, account, gateway) for id in ids]
            self._db.executemany("DELETE FROM gateway_logs WHERE id = ? AND account = ? AND gateway = ?", rows)

    def close(self) -> None:
        self._search.close()
        super().close()

    def log_sizes(self, account: AccountId) -> dict[GatewayId, tuple[int, int]]:
        with self._errors():
            rows = self._db.execute("SELECT gateway, COUNT(*), SUM(size) FROM gateway_logs WHERE account = ? GROUP BY gateway", (account,))
            return {GatewayId(gateway): (int(count), int(size)) for gateway, count, size in rows}

    def trim_logs(self, account: AccountId, gateway: GatewayId | None, *, count: int, size: int) -> dict[GatewayId, tuple[int, int]]:
        which, values = ("account = ?", (account,)) if gateway is None else ("account = ? AND gateway = ?", (account, gateway))
        with self._quick_transaction():
            rows = self._db.execute(f"SELECT rowid, gateway, size FROM gateway_logs WHERE {which} ORDER BY created, rowid", values)
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
