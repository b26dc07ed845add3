"""What was used, in the store's file."""

import contextlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from fornada.core.keys import KeyId
from fornada.core.names import AccountId
from fornada.core.usage import DAY_S, Amount, UsageRow, Use
from fornada.store.file import StoreFile

Sums = Mapping[tuple[Use, int], Amount]
"""By use and day (of days since 1970)."""


class UsageRows(StoreFile):
    """Sums, and how far each journal has gone into them."""

    def add_usage(self, sums: Sums, journal: str, position: int) -> None:
        """Both or nothing. On disk within moments."""
        with self._quick_transaction():
            for (use, day), amount in sums.items():
                self._db.execute(
                    "INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET requests = requests + excluded.requests, "
                    "input_tokens = input_tokens + excluded.input_tokens, output_tokens = output_tokens + excluded.output_tokens, "
                    "device_seconds = device_seconds + excluded.device_seconds, neurons = neurons + excluded.neurons",
                    (*use, day, *amount),
                )
            self._db.execute("INSERT OR REPLACE INTO journals VALUES (?, ?)", (journal, position))

    def journal_position(self, journal: str) -> int:
        """0 for one that nothing was taken from."""
        with self._errors():
            row = self._db.execute("SELECT position FROM journals WHERE name = ?", (journal,)).fetchone()
            return int(row[0]) if row else 0

    def forget_journals(self, *, but: Iterable[str]) -> None:
        """The files of all others are gone for good."""
        with self._quick_transaction():
            kept = set(but)
            gone = [(name,) for (name,) in self._db.execute("SELECT name FROM journals") if name not in kept]
            self._db.executemany("DELETE FROM journals WHERE name = ?", gone)

    def neurons_of(self, day: int) -> dict[tuple[AccountId, KeyId], float]:
        """Of each account and key on that day."""
        with self._errors():
            rows = self._db.execute("SELECT account, key, SUM(neurons) FROM usage WHERE day = ? GROUP BY account, key", (day,))
            return {(AccountId(account), KeyId(key)): float(neurons) for account, key, neurons in rows}

    def usage_rows(self, account: AccountId | None) -> list[UsageRow]:
        """The newest day first."""
        with (
            self._errors(),
            contextlib.closing(
                self._db.execute(
                    "SELECT account, key, model, day, requests, input_tokens, output_tokens, device_seconds, neurons FROM usage "
                    "WHERE ?1 IS NULL OR account = ?1 ORDER BY day DESC, account, model, key",
                    (account,),
                )
            ) as rows,
        ):
            return [UsageRow(by, key, model, _date(day), *amounts) for by, key, model, day, *amounts in rows]


def _date(day: int) -> str:
    return datetime.fromtimestamp(day * DAY_S, UTC).date().isoformat()
