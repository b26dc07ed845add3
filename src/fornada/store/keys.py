"""Keys in the store's file."""

import contextlib
import sqlite3
from pathlib import Path

from fornada.core.keys import Key, KeyId, Role
from fornada.core.names import AccountId
from fornada.store.file import BUSY_S, StoreFile
from fornada.store.mark import bump

_COLUMNS = "id, account, role, digest, created, revoked, requests_per_minute, neurons_per_day, models"


def mark_path(store: Path) -> Path:
    """The file whose content changes with the keys of the store (store.mark)."""
    return store.with_name(f"{store.name}-keys")


class SqliteKeys(StoreFile):
    """core.keys.KeysPort."""

    def keys(self) -> list[Key]:
        with self._errors():
            return [_key(row) for row in self._db.execute(f"SELECT {_COLUMNS} FROM keys ORDER BY rowid")]

    def put_key(self, key: Key) -> None:
        row = (
            key.id,
            key.account,
            int(key.role),
            key.digest,
            key.created,
            key.revoked,
            key.requests_per_minute,
            key.neurons_per_day,
            "\n".join(key.models),
        )
        with self._transaction():
            self._db.execute(f"INSERT INTO keys ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        self._keys_changed()

    def revoke_key(self, id: KeyId, *, now: float) -> Key | None:
        with self._transaction():
            self._db.execute("UPDATE keys SET revoked = COALESCE(revoked, ?) WHERE id = ?", (now, id))
            row = self._db.execute(f"SELECT {_COLUMNS} FROM keys WHERE id = ?", (id,)).fetchone()
        self._keys_changed()
        return _key(row) if row else None

    def forget_keys(self) -> int:
        with self._transaction():
            count = self._db.execute("DELETE FROM keys").rowcount
        self._keys_changed()
        return int(count)

    def keys_version(self) -> int:
        with self._errors():
            return int(self._db.execute("PRAGMA data_version").fetchone()[0])

    def _keys_changed(self) -> None:
        # After the commit: whoever looks because of the mark must find what it tells of.
        bump(mark_path(self._path))


def _key(row: tuple[str, str, int, bytes, float, float | None, int, float, str]) -> Key:
    id, account, role, digest, created, revoked, requests, neurons, models = row
    return Key(
        id=KeyId(id),
        account=AccountId(account),
        role=Role(role),
        digest=digest,
        created=created,
        revoked=revoked,
        requests_per_minute=requests,
        neurons_per_day=neurons,
        models=tuple(models.split("\n")) if models else (),
    )


def has_keys(path: Path) -> bool:
    """Whether the store at `path` has a valid key. One that can't be read, or is older than keys, has none."""
    if not path.exists():
        return False
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_S)) as db:
            return db.execute("SELECT 1 FROM keys WHERE revoked IS NULL LIMIT 1").fetchone() is not None
    except sqlite3.Error:
        return False
