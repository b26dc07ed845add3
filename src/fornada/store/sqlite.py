"""StorePort on one SQLite file: write-ahead log, safe through kill -9, and all but the counters on disk before it is answered."""

from pathlib import Path

import msgspec

from fornada.core.errors import Conflict, ModelNotAllowed, UnknownModel
from fornada.core.names import AccountId, ModelName, VersionDigest
from fornada.core.ports import Entry, Peak, PeakKey, Version
from fornada.core.specs import ModelSpec
from fornada.store.file import foreign_schema
from fornada.store.files import FileRows
from fornada.store.finetunes import FinetuneRows
from fornada.store.gateways import GatewayRows
from fornada.store.hooks import HookRows
from fornada.store.jobs import JobRows
from fornada.store.keys import SqliteKeys
from fornada.store.proofs import ProofRows
from fornada.store.responses import ResponseRows
from fornada.store.unusable import StoreUnusable
from fornada.store.usage import UsageRows

__all__ = ["SqliteStore", "StoreUnusable", "foreign_schema"]


class SqliteStore(FileRows, FinetuneRows, GatewayRows, HookRows, JobRows, ProofRows, ResponseRows, SqliteKeys, UsageRows):
    """The store in the file `path`, whose folder must exist."""

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


_COLUMNS = "model, digest, account, spec, folder, lock, created"
