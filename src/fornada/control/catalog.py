"""CatalogPort: the models that ship with the package and those that were deployed, in memory, with the store behind.

PUT ── bundle ── spec ── (one at a time for a name) owner? aliases? ── lock ── digest ── folder on disk ── store ── changed
"""

import asyncio
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from fornada.control.builtin import folders_in, read_builtin
from fornada.control.bundle import read_bundle
from fornada.control.index import Index
from fornada.control.nearest import Nearest
from fornada.control.reading import digest_of, spec_of
from fornada.core.errors import BadRequest, Conflict, InvalidSpec, ModelNotAllowed, UnknownModel
from fornada.core.names import LABELS, AccountId, ModelName, Reference, VersionDigest
from fornada.core.ports import BundleFile, Entry, EventLog, ProvisionPort, Pruned, Resolved, StorePort, Version
from fornada.core.specs import ModelSpec

AT_ONCE = 2
"""Bundles that are unpacked at the same time: each may take a few hundred MiB of memory."""


class Catalog:
    """Which models there are. `changed` is called with a name after it was deployed or something of it was removed."""

    def __init__(
        self,
        *,
        store: StorePort,
        provision: ProvisionPort,
        builtin: Path | Iterable[Path] = (),
        changed: Callable[[ModelName], None] = lambda name: None,
        in_use: Callable[[], Iterable[Version]] = tuple,
        open_mode: bool = True,
        now: Callable[[], float] = time.time,
        log: EventLog | None = None,
    ) -> None:
        """`builtin` is the folder that holds the shipped models' folders, or these themselves. `in_use` tells versions that still run
        although they are no longer registered. `now` is the wall clock."""
        self.changed = changed
        self.in_use = in_use
        self.open_mode = open_mode
        """While there are no keys: a model that says nothing about its visibility can be seen by every account."""
        self._store = store
        self._provision = provision
        self._now = now
        self._log = log
        self._turns: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self._nearest = Nearest()
        self._unpacking = asyncio.Semaphore(AT_ONCE)
        self._builtin = list(self._read_builtin(folders_in(builtin) if isinstance(builtin, Path) else builtin))
        self._read_store()
        provision.referenced = self._referenced

    # ---- reading

    def resolve(self, reference: Reference, account: AccountId | None) -> Resolved:
        entry = self._index.find(reference.name)
        if entry is None:
            raise self._unknown(reference, account)
        if not self._may_see(entry, account):
            raise ModelNotAllowed("The account is not allowed to access this model")
        if reference.version is None and reference.label is None:
            return Resolved(entry, entry.answering.spec, None)
        version = self._labelled(entry, reference.label) if reference.label else self._by_digest(entry, str(reference.version))
        return Resolved(entry, version.spec, version.digest)

    def entries(self, account: AccountId | None) -> Sequence[Entry]:
        return [entry for entry in self._index.entries.values() if self._may_see(entry, account)]

    def visibility(self, entry: Entry) -> str:
        said = entry.stable.spec.visibility
        if entry.stable.builtin or said == "node" or (said is None and self.open_mode):
            return "node"
        return "account"

    def entry(self, name: ModelName) -> Entry | None:
        return self._index.entries.get(name)

    def version(self, name: ModelName, digest: VersionDigest) -> Version:
        try:
            return self._versions[name, digest]
        except KeyError:
            raise UnknownModel(f"'{name}' has no version {digest[:12]}") from None

    def reload(self, name: ModelName) -> None:
        self._read_store()

    # ---- changing

    async def deploy(self, bundle: bytes, *, name: str | None, account: AccountId, label: str) -> Version:
        if label not in LABELS:
            raise BadRequest(f"'{label}' is no label; labels are {', '.join(sorted(LABELS))}")
        async with self._unpacking:
            unpacked = await asyncio.to_thread(read_bundle, bundle)
            spec = await asyncio.to_thread(spec_of, unpacked.files, name=name, top=unpacked.top)
        async with self._turn(spec.name):
            self._refuse_taken(spec, account)
            locks = await self._provision.lock(spec, unpacked.files)
            files = dict(unpacked.files)
            files.update({path: BundleFile(text.encode()) for path, text in locks.converts.items()})
            digest = await asyncio.to_thread(digest_of, files, locks.environment)
            folder = await self._provision.keep_bundle(digest, files)
            # Locking took its time: somebody else may have taken one of the aliases.
            self._refuse_taken(spec, account)
            return self._register(spec, digest, account=account, folder=folder, lock=locks.environment, label=label)

    async def remove(self, reference: Reference, *, account: AccountId | None) -> None:
        entry = self._index.find(reference.name)
        if entry is None:
            raise self._unknown(reference, account)
        async with self._turn(entry.name):
            found = self._index.find(reference.name)
            if found is None:
                raise self._unknown(reference, account)
            self._refuse_foreign(found, reference, account)
            if reference.name in self._index.aliases and reference.name not in self._index.entries:
                raise Conflict(f"'{reference.name}' is an alias of '{found.name}'; remove it by that name")
            if found.stable.builtin:
                raise Conflict(f"'{found.name}' ships with Fornada and can't be removed")
            self._remove(found, reference)
            if self._log:
                self._log.info("catalog.removed", model=found.name, version=reference.version or reference.label or "all")
            self._read_store()
            self.changed(found.name)

    async def prune(self) -> Pruned:
        return await self._provision.prune()

    # ---- helpers

    def _register(self, spec: ModelSpec, digest: VersionDigest, *, account: AccountId, folder: str, lock: str, label: str) -> Version:
        name = ModelName(spec.name)
        before = self._index.entries.get(name)
        known = self._versions.get((name, digest))
        version = known or Version(name, digest, account, spec, folder, lock, self._now())
        after = self._store.put_version(version, label=label, name_account=account)
        if after != before:
            self._read_store()
            if self._log:
                self._log.info("catalog.deployed", model=name, version=digest, account=account, label=label)
        # Also where nothing is new: whoever deploys the same again believes that what failed before works now.
        self.changed(name)
        return version

    def _remove(self, entry: Entry, reference: Reference) -> None:
        if reference.version is None and reference.label is None:
            self._store.remove_model(entry.name)
            return
        version = self._labelled(entry, reference.label) if reference.label else self._by_digest(entry, str(reference.version))
        if entry.versions == (version.digest,):
            self._store.remove_model(entry.name)
        else:
            self._store.remove_version(entry.name, version.digest)

    def _refuse_taken(self, spec: ModelSpec, account: AccountId) -> None:
        entry = self._index.find(spec.name)
        if entry and entry.stable.builtin and entry.name == spec.name:
            raise Conflict(f"'{spec.name}' ships with Fornada; deploy under another name")
        # As an alias too: a name beats it, and what is asked of somebody else's model would go to this one.
        if entry and entry.account != account and not entry.stable.builtin:
            raise ModelNotAllowed(f"'{spec.name}' belongs to another account")
        self._index.refuse_taken_aliases(spec.name, spec.aliases, may_know=lambda entry: self._may_see(entry, account))

    def _refuse_foreign(self, entry: Entry, reference: Reference, account: AccountId | None) -> None:
        """By the name that was said: an alias tells nothing of what it means."""
        if account not in (None, entry.account) and not entry.stable.builtin:
            raise ModelNotAllowed(f"'{reference.name}' belongs to another account")

    def _unknown(self, reference: Reference, account: AccountId | None) -> UnknownModel:
        def visible() -> Iterator[str]:
            for entry in self.entries(account):
                yield entry.name
                yield from entry.stable.spec.aliases

        return UnknownModel(f"No such model {reference.name} or task", nearest=self._nearest.find(reference.name, visible))

    def _may_see(self, entry: Entry, account: AccountId | None) -> bool:
        return account in (None, entry.account) or self.visibility(entry) == "node"

    def _labelled(self, entry: Entry, label: str) -> Version:
        version = entry.stable if label == "stable" else entry.canary
        if version is None:
            raise UnknownModel(f"'{entry.name}' has no {label} version")
        return version

    def _by_digest(self, entry: Entry, digits: str) -> Version:
        found = [digest for digest in entry.versions if digest.startswith(digits)]
        if not found:
            raise UnknownModel(f"'{entry.name}' has no version {digits[:12]}")
        if len(found) > 1:
            raise BadRequest(f"more than one version of '{entry.name}' begins with {digits}; give more digits")
        return self.version(entry.name, found[0])

    def _turn(self, name: str) -> asyncio.Lock:
        """Deploys and removals of one name come one after the other."""
        return self._turns.setdefault(name, asyncio.Lock())

    def _read_builtin(self, folders: Iterable[Path]) -> Iterable[Entry]:
        for folder in folders:
            try:
                yield read_builtin(folder, self._provision)
            except InvalidSpec as refusal:
                # One bad folder must not keep a node from starting; the tests of the catalogue would have found it.
                if self._log:
                    self._log.warning("catalog.builtin_refused", folder=folder.name, reason=refusal.message)

    def _read_store(self) -> None:
        pins = self._store.pins()
        shipped = [msgspec.structs.replace(entry, pinned=entry.name in pins) for entry in self._builtin]
        stored = self._store.entries()
        self._index = Index(shipped, stored)
        self._versions = {(entry.name, entry.stable.digest): entry.stable for entry in shipped}
        for entry in stored:
            self._versions |= {(entry.name, version.digest): version for version in self._store.versions(entry.name)}

    def _referenced(self) -> list[Version]:
        return [*self._versions.values(), *self.in_use()]
