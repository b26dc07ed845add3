"""core.responses.ResponseStore on the store's file."""

from fornada.core.names import AccountId
from fornada.core.responses import KeptResponse
from fornada.store.file import StoreFile


class ResponseRows(StoreFile):
    """The table of responses."""

    def keep_response(self, kept: KeptResponse, *, since: float, most: int, most_bytes: int) -> None:
        with self._quick_transaction():
            self._db.execute(
                "INSERT OR REPLACE INTO responses (id, account, created, size, body, input, turns) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (kept.id, kept.account, kept.created, kept.size, kept.body, kept.input, kept.turns),
            )
            self._db.execute("DELETE FROM responses WHERE created < ?", (since,))
            count, size = self._db.execute("SELECT COUNT(*), SUM(size) FROM responses WHERE account = ?", (kept.account,)).fetchone()
            while count > most or (size or 0) > most_bytes:
                oldest, gone = self._db.execute(
                    "SELECT rowid, size FROM responses WHERE account = ? ORDER BY created, rowid LIMIT 1", (kept.account,)
                ).fetchone()
                self._db.execute("DELETE FROM responses WHERE rowid = ?", (oldest,))
                count, size = count - 1, size - gone

    def response(self, id: str, account: AccountId, *, since: float) -> KeptResponse | None:
        with self._errors():
            row = self._db.execute(
                "SELECT id, account, created, body, input, turns FROM responses WHERE id = ? AND account = ? AND created >= ?",
                (id, account, since),
            ).fetchone()
            return KeptResponse(*row) if row is not None else None

    def remove_response(self, id: str, account: AccountId) -> bool:
        with self._quick_transaction():
            return self._db.execute("DELETE FROM responses WHERE id = ? AND account = ?", (id, account)).rowcount > 0
