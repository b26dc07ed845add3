"""core.files.FileStore on the store's file."""

from fornada.core.files import File, FileId
from fornada.core.names import AccountId
from fornada.store.file import StoreFile

REMOVED_AT_ONCE = 8
"""Pieces: everybody else waits meanwhile."""


class FileRows(StoreFile):
    """The files' tables."""

    def put_piece(self, id: FileId, number: int, data: bytes) -> None:
        with self._quick_transaction():
            self._db.execute("INSERT INTO pieces (file, number, data) VALUES (?, ?, ?)", (id, number, data))

    def put_file(self, file: File) -> None:
        # In full mode a commit puts the whole log on disk, and with it every piece that was written before.
        with self._transaction():
            row = tuple(getattr(file, name) for name in File.__struct_fields__)
            self._db.execute(f"INSERT INTO files ({_FILE}) VALUES (?, ?, ?, ?, ?, ?)", row)

    def file(self, id: FileId) -> File | None:
        with self._errors():
            row = self._db.execute(f"SELECT {_FILE} FROM files WHERE id = ?", (id,)).fetchone()
            return File(*row) if row is not None else None

    def files(self, account: AccountId) -> list[File]:
        with self._errors():
            rows = self._db.execute(f"SELECT {_FILE} FROM files WHERE account = ? ORDER BY created DESC, rowid DESC", (account,))
            return [File(*row) for row in rows]

    def piece(self, id: FileId, number: int) -> bytes:
        with self._errors():
            row = self._db.execute("SELECT data FROM pieces WHERE file = ? AND number = ?", (id, number)).fetchone()
            return bytes(row[0]) if row is not None else b""

    def remove_file(self, id: FileId) -> None:
        with self._transaction():
            self._db.execute("DELETE FROM files WHERE id = ?", (id,))

    def remove_pieces(self, *, created_before: float, writing: frozenset[FileId] = frozenset()) -> bool:
        with self._transaction():
            self._db.execute("DELETE FROM files WHERE created < ?", (created_before,))
            orphans = "SELECT rowid, file FROM pieces WHERE file NOT IN (SELECT id FROM files)"
            found = [rowid for rowid, id in self._db.execute(orphans) if id not in writing][:REMOVED_AT_ONCE]
            self._db.executemany("DELETE FROM pieces WHERE rowid = ?", [(rowid,) for rowid in found])
            return bool(found)


_FILE = ", ".join(File.__struct_fields__)
