"""StorePort on one SQLite file: write-ahead log, safe through kill -9, and all but the counters on disk before it is answered."""

import contextlib
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from fornada.core.errors import Conflict, DiskFull, InternalFault, ModelNotAllowed, UnknownModel
from fornada.core.names import AccountId, ModelName, VersionDigest
from fornada.core.ports import Entry, Peak, PeakKey, Version
from fornada.core.specs import ModelSpec
from fornada.store.late_sync import LateSync
from fornada.store.schema import APPLICATION_ID, MIGRATIONS
from fornada.store.unusable import StoreUnusable

__all__ = ["SqliteStore", "StoreUnusable", "foreign_schema"]

BUSY_S = 5.0
"""How long a write waits for another process (`fornada keys`, a backup) that holds the file."""
NEEDED = 64 * 1024
"""Bytes on disk without which the store can't be opened: its index of the log takes 32 KiB."""


class SqliteStore:
    """The store in the file `path`, whose folder must exist."""

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

    def entries(self) -> list[Entry]:
        with self._errors():
            names = [name for (name,) in self._db.execute("SELECT name FROM models ORDER BY name")]
            return [self._entry(name) for name in names]

    def versions(self, name: ModelName) -> list[Version]:
        with self._errors():
            rows = self._db.execute(f"SELECT {_COLUMNS} FROM versions WHERE model = ? ORDER BY rowid", (name,)).fetchall()
            return [self._version(row) for row in rows]

    def put_version(self, version: Version, *, label: str, name_account: AccountId) -> Entry:
        name = version.model
        with self._transaction():
            found = self._db.execute("SELECT account, stable FROM models WHERE name = ?", (name,)).fetchone()
            if found and found[0] != name_account:
                raise ModelNotAllowed(f"'{name}' belongs to another account")
            spec = msgspec.json.encode(version.spec)
            row = (name, version.digest, version.account, spec, self._relative(version.folder), version.lock, version.created)
            self._db.execute(f"INSERT OR IGNORE INTO versions ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            if not found:
                self._db.execute("INSERT INTO models (name, account, stable) VALUES (?, ?, ?)", (name, name_account, version.digest))
            else:
                self._point(name, label, version.digest)
            return self._entry(name)

    def set_label(self, name: ModelName, *, label: str, digest: VersionDigest | None) -> Entry:
        with self._transaction():
            self._entry(name)
            if digest and not self._db.execute("SELECT 1 FROM versions WHERE model = ? AND digest = ?", (name, digest)).fetchone():
                raise UnknownModel(f"'{name}' has no version {digest[:12]}")
            self._point(name, label, digest)
            return self._entry(name)

    def remove_model(self, name: ModelName) -> None:
        with self._transaction():
            self._db.execute("DELETE FROM models WHERE name = ?", (name,))
            self._db.execute("DELETE FROM versions WHERE model = ?", (name,))
            self._db.execute("DELETE FROM pins WHERE name = ?", (name,))
            self._db.execute("DELETE FROM counters WHERE name = ?", (name,))
            self._db.execute("DELETE FROM peaks WHERE model = ?", (name,))

    def remove_version(self, name: ModelName, digest: VersionDigest) -> None:
        with self._transaction():
            if self._db.execute("SELECT 1 FROM models WHERE name = ? AND stable = ?", (name, digest)).fetchone():
                raise Conflict(
                    f"version {digest[:12]} of '{name}' is the stable one; deploy or roll back to another first, or remove the model"
                )
            self._db.execute("UPDATE models SET previous = NULL WHERE name = ? AND previous = ?", (name, digest))
            self._db.execute("UPDATE models SET canary = NULL, canary_share = 0 WHERE name = ? AND canary = ?", (name, digest))
            self._db.execute("UPDATE models SET serving = NULL WHERE name = ? AND serving = ?", (name, digest))
            self._db.execute("DELETE FROM versions WHERE model = ? AND digest = ?", (name, digest))
            self._db.execute("DELETE FROM peaks WHERE model = ? AND digest = ?", (name, digest))

    def set_serving(self, name: ModelName, digest: VersionDigest) -> Entry:
        with self._transaction():
            self._entry(name)
            if not self._db.execute("SELECT 1 FROM versions WHERE model = ? AND digest = ?", (name, digest)).fetchone():
                raise UnknownModel(f"'{name}' has no version {digest[:12]}")
            self._db.execute("UPDATE models SET serving = NULLIF(?, stable) WHERE name = ?", (digest, name))
            return self._entry(name)

    def set_pinned(self, name: ModelName, *, pinned: bool) -> None:
        with self._transaction():
            if pinned:
                self._db.execute("INSERT OR IGNORE INTO pins (name) VALUES (?)", (name,))
            else:
                self._db.execute("DELETE FROM pins WHERE name = ?", (name,))

    def pins(self) -> set[ModelName]:
        with self._errors():
            return {ModelName(name) for (name,) in self._db.execute("SELECT name FROM pins")}

    def counters(self, name: ModelName) -> tuple[int, int]:
        with self._errors():
            row = self._db.execute("SELECT loads, attempts FROM counters WHERE name = ?", (name,)).fetchone()
            return (row[0], row[1]) if row else (0, 0)

    def set_counters(self, name: ModelName, *, loads: int, attempts: int) -> None:
        with self._quick_transaction():
            self._db.execute("INSERT OR REPLACE INTO counters (name, loads, attempts) VALUES (?, ?, ?)", (name, loads, attempts))

    def peaks(self, name: ModelName) -> dict[PeakKey, Peak]:
        with self._errors():
            rows = self._db.execute(
                "SELECT digest, device, parameters, device_bytes, memory_bytes FROM peaks WHERE model = ?", (name,)
            ).fetchall()
            return {PeakKey(name, VersionDigest(digest), device, how): Peak(*counts) for digest, device, how, *counts in rows}

    def set_peak(self, key: PeakKey, peak: Peak | None) -> None:
        with self._quick_transaction():
            if peak is None:
                self._db.execute("DELETE FROM peaks WHERE model = ? AND digest = ? AND device = ? AND parameters = ?", key)
            else:
                self._db.execute("INSERT OR REPLACE INTO peaks VALUES (?, ?, ?, ?, ?, ?)", (*key, *peak))

    def fences(self) -> dict[str, str]:
        with self._errors():
            return dict(self._db.execute("SELECT device, reason FROM fences"))

    def set_fence(self, device: str, reason: str) -> None:
        with self._transaction():
            self._db.execute("DELETE FROM fences WHERE device = ?", (device,))
            if reason:
                self._db.execute("INSERT INTO fences (device, reason) VALUES (?, ?)", (device, reason))

    # ---- rows

    def _point(self, name: ModelName, label: str, digest: VersionDigest | None) -> None:
        if label == "canary":
            self._db.execute("UPDATE models SET canary = ?, canary_share = 0 WHERE name = ? AND stable IS NOT ?", (digest, name, digest))
            return
        if digest is None:
            raise Conflict(f"'{name}' must have a stable version; remove the model instead")
        # Who served goes on serving until whoever runs the model says otherwise.
        self._db.execute(
            "UPDATE models SET previous = CASE WHEN previous = ?1 THEN NULL ELSE stable END, stable = ?1, "
            "serving = NULLIF(COALESCE(serving, stable), ?1) WHERE name = ?2 AND stable <> ?1",
            (digest, name),
        )
        self._db.execute("UPDATE models SET canary = NULL, canary_share = 0 WHERE name = ? AND canary = ?", (name, digest))

    def _entry(self, name: ModelName) -> Entry:
        row = self._db.execute(
            "SELECT account, stable, previous, canary, canary_share, serving FROM models WHERE name = ?", (name,)
        ).fetchone()
        if row is None:
            raise UnknownModel(f"no such model '{name}'")
        account, stable, previous, canary, share, serving = row
        versions = {version.digest: version for version in self.versions(name)}
        pinned = self._db.execute("SELECT 1 FROM pins WHERE name = ?", (name,)).fetchone() is not None
        return Entry(
            name=name,
            account=account,
            stable=versions[stable],
            previous=versions.get(previous),
            canary=versions.get(canary),
            canary_share=share,
            serving=versions.get(serving, versions[stable]),
            versions=tuple(versions),
            pinned=pinned,
        )

    def _version(self, row: tuple[str, str, str, bytes, str, str, float]) -> Version:
        model, digest, account, spec, folder, lock, created = row
        return Version(
            model=ModelName(model),
            digest=VersionDigest(digest),
            account=AccountId(account),
            spec=msgspec.json.decode(spec, type=ModelSpec),
            folder=str(self._folder / folder),
            lock=lock,
            created=created,
        )

    def _relative(self, folder: str) -> str:
        """A data directory may be moved: what lies in it is found again."""
        path = Path(folder)
        return str(path.relative_to(self._folder)) if path.is_relative_to(self._folder) else folder

    # ---- the file

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
    with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_S)) as db:
        try:
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


_COLUMNS = "model, digest, account, spec, folder, lock, created"
