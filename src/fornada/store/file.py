"""The SQLite file that the drivers keep their tables in: write-ahead log, safe through kill -9, upgraded in place after a backup."""

import contextlib
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from fornada.core.errors import DiskFull, InternalFault
from fornada.store.late_sync import LateSync
from fornada.store.schema import APPLICATION_ID, MIGRATIONS
from fornada.store.unusable import StoreUnusable

BUSY_S = 5.0
"""How long a write waits for another process (`fornada keys`, a backup) that holds the file."""
NEEDED = 64 * 1024
"""Bytes on disk without which the store can't be opened: its index of the log takes 32 KiB."""


class StoreFile:
    """The file `path`, whose folder must exist, with this release's tables. Drivers are subclasses, joined in SqliteStore: a process opens
    the file once, because its locks are the process's, and closing any descriptor of the file would drop those of all connections."""

    def __init__(self, path: Path, *, migrations: tuple[str, ...] = MIGRATIONS, now: Callable[[], float] = time.time) -> None:
        """Opens or creates it; an older one is upgraded after a backup beside it. Raises StoreUnusable, DiskFull."""
        self._path = Path(path).absolute()
        self._folder = self._path.parent
        self._late = LateSync(self._path.with_name(f"{self._path.name}-wal"))
        try:
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            os.chmod(self._path, 0o600)  # the log and its index beside it take the same mode
        except OSError as error:
            raise StoreUnusable(f"the store {self._path} can't be opened: {error.strerror}") from None
        self._db = sqlite3.connect(self._path, timeout=BUSY_S, isolation_level=None)
        try:
            self._open(migrations, now)
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        """Writes the log back into the file."""
        self._late.close()
        self._db.close()

    def _open(self, migrations: tuple[str, ...], now: Callable[[], float]) -> None:
        with self._unusable():
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            owner = self._db.execute("PRAGMA application_id").fetchone()[0]
            empty = not self._db.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone()
        if not empty and owner != APPLICATION_ID:
            raise StoreUnusable(f"{self._path} is some other program's SQLite file; move it away")
        if version > len(migrations):
            raise StoreUnusable(
                f"the store {self._path} was written by a newer release (schema {version}, this release knows {len(migrations)}); "
                "start that release, or restore a backup"
            )
        with self._unusable():
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute("PRAGMA foreign_keys = ON")
            (verdict,) = self._db.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise StoreUnusable(f"the store {self._path} is damaged ({' '.join(verdict.split())[:200]}); restore a backup")
        if version < len(migrations):
            with self._unusable():
                if version:
                    self._back_up(version, now)
                self._migrate(version, migrations)

    def _back_up(self, version: int, now: Callable[[], float]) -> None:
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now()))
        target = self._path.with_name(f"{self._path.name}.schema{version}-{stamp}.bak")
        os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
        with contextlib.closing(sqlite3.connect(target)) as copy:
            self._db.backup(copy)
        descriptor = os.open(target, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _migrate(self, version: int, migrations: tuple[str, ...]) -> None:
        """All steps in one transaction: a kill in between leaves the old schema."""
        steps = "\n".join(migrations[version:])
        self._db.executescript(
            f"BEGIN IMMEDIATE;\n{steps}\nPRAGMA application_id = {APPLICATION_ID};\nPRAGMA user_version = {len(migrations)};\nCOMMIT;"
        )

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._errors():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def _quick_transaction(self) -> Iterator[None]:
        # A start of a model comes by here, and a disk takes milliseconds. The kernel has it when this returns, which survives every
        # process of ours; the disk has it a moment later, which is before most loads have got anywhere.
        with self._errors():
            self._db.execute("PRAGMA synchronous = NORMAL")
        try:
            with self._transaction():
                yield
        finally:
            with self._errors():
                self._db.execute("PRAGMA synchronous = FULL")
        self._late.soon()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._full(error) or InternalFault(f"the store {self._path} can't be used: {error}") from error

    @contextlib.contextmanager
    def _unusable(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if isinstance(full := self._full(error), DiskFull):
                raise StoreUnusable(full.message) from None
            raise StoreUnusable(f"the store {self._path} can't be opened: {error}; if it is damaged, restore a backup") from None
        except OSError as error:
            raise StoreUnusable(f"the store {self._path} can't be upgraded: {error.strerror}") from None

    def _full(self, error: sqlite3.Error) -> DiskFull | None:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        # What it can't map or cut to size it calls an I/O error, for whatever reason (SQLITE_IOERR_SHMSIZE, say).
        full = code == sqlite3.SQLITE_FULL or (code & 0xFF == sqlite3.SQLITE_IOERR and self._free() < NEEDED)
        if not full:
            return None
        return DiskFull(f"no space left on the disk that holds {self._folder}; free some, or run `fornada prune`", retry_after_s=60)

    def _free(self) -> int:
        try:
            return shutil.disk_usage(self._folder).free
        except OSError:
            return NEEDED


def foreign_schema(path: Path, known: int = len(MIGRATIONS)) -> str:
    """Why the store in use at `path` can't be shared with the release that uses it; empty: it can, or opening it will say more."""
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_S)) as db:
            (version,) = db.execute("PRAGMA user_version").fetchone()
    except sqlite3.Error as error:
        return f"the store {path} can't be read: {error}"
    if version > known:
        return f"the store {path} was written by a newer release (schema {version}, this release knows {known})"
    if version < known:
        return (
            f"this release would upgrade the store from schema {version} to {known}, and the one that serves couldn't go on with it: "
            "stop the node and start this release instead"
        )
    return ""
