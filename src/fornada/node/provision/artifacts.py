"""Artifacts: files too large for a bundle, had by their sha256 from the mirror, then from each source in order.

ensure ── intact in the store, and this account has brought it once ──> path
   └── flight and flock by sha256 and account ── mirror ─ sources ── .partial ── sha256 right? ── fsync ─ rename ──> path

One copy lies on disk, whoever brought it. Who only knows its sum hears the same as if nobody had.
"""

import asyncio
import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, urlsplit

import httpx

from fornada.core.errors import LoadFailed
from fornada.core.names import AccountId
from fornada.core.policy.outbound import Outbound, Place
from fornada.core.ports import EventLog, ProgressSink, Step
from fornada.core.proofs import EVERYBODY, ProofStore
from fornada.core.resources import format_size
from fornada.core.settings import ProvisionSettings
from fornada.core.specs import ArtifactSpec
from fornada.node.provision.contents import Contents
from fornada.node.provision.disk import Disk
from fornada.node.provision.download import SourceFailed, download, shown
from fornada.node.provision.durable import TEMPORARY, disk_errors, is_full, remove
from fornada.node.provision.files import Files
from fornada.node.provision.flights import Flights
from fornada.node.provision.hashing import copy_hashed
from fornada.node.provision.held import held
from fornada.node.provision.interpreters import Interpreter
from fornada.node.provision.mirror import MirrorFolder
from fornada.node.provision.outbound import AddressRefused, CheckedTransport, place_of
from fornada.node.provision.packages import Packages
from fornada.node.provision.threads import uninterrupted
from fornada.node.provision.variables import Variables
from fornada.node.whole_path import whole_path

RETRY_S = 10.0
REASON_LONGEST = 200


class Artifacts:
    """Fetches artifacts into the content store."""

    def __init__(
        self,
        contents: Contents,
        locks: Path,
        *,
        settings: ProvisionSettings,
        variables: Variables,
        packages: Packages,
        files: Files,
        outbound: Outbound,
        disk: Disk,
        proofs: ProofStore,
        log: EventLog | None,
    ) -> None:
        self.contents = contents
        self._proofs = proofs
        self._locks = locks
        self._offline = settings.offline
        self._hub = variables.hub()
        self._packages = packages
        self._files = files
        self._proxies = variables.proxies()
        self._outbound = outbound
        self._shipped: set[str] = set()
        """Sources that came with the node: they are asked wherever they lie, as a network may have copies of public hosts."""
        self._disk = disk
        self._log = log
        self._mirror_url = settings.mirror.rstrip("/") if urlsplit(settings.mirror).scheme in ("http", "https") else ""
        folder = whole_path(settings.mirror) if settings.mirror and not self._mirror_url else None
        self._mirror = MirrorFolder(folder, contents.root / ".mirror.json") if folder else None
        self._mirror_turn = asyncio.Lock()  # files of a mirror are hashed once, not once for each artifact asked for
        self.flights: Flights[Path] = Flights()

    async def ensure(self, artifact: ArtifactSpec, interpreter: Interpreter, progress: ProgressSink, *, account: AccountId) -> Path:
        """The file in the store, intact. For EVERYBODY: it and its sources came with the node, from nobody who deploys. Raises LoadFailed
        with what each source said, DiskFull."""
        if account == EVERYBODY:
            self._shipped.update(artifact.source)
        path = await self._find(artifact, account)
        if path:
            return path
        flight = fetch_name(artifact.sha256, account)
        return await self.flights.join(flight, lambda tell: self._fetch(artifact, interpreter, account, tell), progress)

    def may_read(self, sha256: str, account: AccountId) -> bool:
        """Whether the account has brought that file itself, or it is everybody's: the catalogue that ships says what its files are."""
        return account == EVERYBODY or self._proofs.has_proved(account, sha256)

    def lock_file(self, sha256: str, account: AccountId) -> Path:
        """Held by whoever fetches the file: nobody waits for what another account's source takes its time over."""
        return self._locks / f"artifact-{fetch_name(sha256, account)}"

    async def _find(self, artifact: ArtifactSpec, account: AccountId) -> Path | None:
        if not self.may_read(artifact.sha256, account):
            return None
        path = await self.contents.find(artifact.sha256)
        if path and account == EVERYBODY:
            self._proved(artifact, account)
        return path

    async def _fetch(self, artifact: ArtifactSpec, interpreter: Interpreter, account: AccountId, tell: ProgressSink) -> Path:
        tell(Step("fetching", artifact.path))
        await uninterrupted(self.contents.prepare)
        async with held(self.lock_file(artifact.sha256, account)):
            path = await self._find(artifact, account)
            if path:
                return path
            had = self.may_read(artifact.sha256, account)
            with disk_errors(self.contents.root):
                reasons = await self._try_all(artifact, interpreter, account, tell)
            path = await self._find(artifact, account)
            if path:
                return path
        said = "; ".join(reasons) or "it has no source, and there is no mirror (FORNADA_MIRROR)"
        if reasons and not self._mirror_name():
            said += "; where the network doesn't lead there, a mirror may hold the file (FORNADA_MIRROR)"
        was = "the stored copy was damaged and is removed; " if had and artifact.sha256 in self.contents.damaged else ""
        raise LoadFailed(f"artifact {artifact.path} (sha256 {artifact.sha256[:12]}…) can't be had: {was}{said}", retry_after_s=RETRY_S)

    def _proved(self, artifact: ArtifactSpec, account: AccountId) -> None:
        if not self._proofs.has_proved(account, artifact.sha256):
            self._proofs.put_proved(account, artifact.sha256)

    async def _try_all(self, artifact: ArtifactSpec, interpreter: Interpreter, account: AccountId, tell: ProgressSink) -> list[str]:
        """Returns once the file is in the store, or with what each place said."""
        reasons = []
        places = [(f"mirror {self._mirror_name()}", "mirror")] if self._mirror_name() else []
        places += [(shown(source) if "://" in source else source, source) for source in artifact.source]
        for name, place in places:
            work = Path(await uninterrupted(tempfile.mkdtemp, prefix=TEMPORARY, dir=self.contents.partial))
            try:
                part = self.contents.partial / fetch_name(artifact.sha256, account)
                other = await self._try(place, artifact, interpreter, _Work(work, part), tell)
                if not other:
                    self._proved(artifact, account)
                    if self._log:
                        self._log.info("provision.artifact_fetched", artifact=artifact.path, sha256=artifact.sha256, source=name)
                    return []
                # Of a file of this machine nothing is told that would let its content be guessed.
                which = "" if place.startswith("file:") else f" (sha256 {other[:12]}…)"
                reasons.append(f"{name} holds another file{which}")
            except SourceFailed as failure:
                reasons.append(f"{name}: {str(failure)[:REASON_LONGEST]}")
            finally:
                await uninterrupted(remove, work)
        return reasons

    async def _try(self, place: str, artifact: ArtifactSpec, interpreter: Interpreter, work: "_Work", tell: ProgressSink) -> str:
        """ "" once the file is in the store, else the sha256 of what came instead. Raises SourceFailed."""
        gone_on_with = work.part.exists()
        while True:
            candidate = await self._candidate(place, artifact, interpreter, work, tell)
            tell(Step("fetching", f"checking {artifact.path}"))
            other = await self.contents.admit(candidate, artifact.sha256)
            if not other or not gone_on_with or candidate != work.part:
                return other
            gone_on_with = False  # perhaps the beginning, from an earlier try, was not of this file: once more, from zero

    async def _candidate(self, place: str, artifact: ArtifactSpec, interpreter: Interpreter, work: "_Work", tell: ProgressSink) -> Path:
        """A file on our file system that should be the one. Raises SourceFailed."""

        def told(text: str) -> None:
            tell(Step("fetching", f"{artifact.path}: {text}"))

        if place == "mirror":
            if self._mirror_url:
                return await self._download(
                    f"{self._mirror_url}/sha256/{artifact.sha256}", artifact, work.part, tell, named=self._mirror_url
                )
            return await self._from_mirror_folder(artifact, work.folder, told)
        scheme, _, rest = place.partition(":")
        match scheme:
            case "https" | "http":
                return await self._download(place, artifact, work.part, tell, offline=self._offline)
            case "hf":
                return await self._download(
                    _hub_address(self._hub, rest), artifact, work.part, tell, offline=self._offline, named=self._hub
                )
            case "pypi":
                return await self._packages.from_pypi(rest, work.folder, interpreter, told)
            case "npm":
                return await self._packages.from_npm(rest, work.folder, interpreter, told)
            case "file":
                with self._files.opened(rest.removeprefix("//")) as path:
                    return await self._copied(path, work.folder, artifact, told)
            case _:
                raise SourceFailed(f"sources of {scheme}: can't be fetched by this release; put the file into the mirror")

    async def _from_mirror_folder(self, artifact: ArtifactSpec, work: Path, told: Callable[[str], None]) -> Path:
        assert self._mirror
        async with self._mirror_turn:
            found = await self._mirror.find(artifact.sha256, likely=Path(artifact.path).name, told=told)
        if found is None:
            raise SourceFailed("no file with that sha256 in it")
        return await self._copied(found, work, artifact, told)

    async def _copied(self, source: Path, work: Path, artifact: ArtifactSpec, told: Callable[[str], None]) -> Path:
        size = (await uninterrupted(source.stat)).st_size
        await self._disk.room_for(size, what=f"artifact {artifact.path}")
        told(f"copying {format_size(size)}")
        target = work / "copy"
        try:
            await copy_hashed(source, target)
        except OSError as error:
            if is_full(error):
                raise
            raise SourceFailed(f"the file can't be read: {error.strerror}") from None
        return target

    async def _download(
        self, url: str, artifact: ArtifactSpec, part: Path, tell: ProgressSink, *, offline: bool = False, named: str = ""
    ) -> Path:
        """`named` is what the operator has named himself: that place is asked wherever it lies."""
        if offline:
            raise SourceFailed("not asked: [provision] offline is set")
        outbound = self._outbound.and_also(_place(named)) if named else None if url in self._shipped else self._outbound

        async def room(count: int) -> None:
            await self._disk.room_for(count, what=f"artifact {artifact.path}")

        def told(count: int, total: int | None) -> None:
            of = f" of {format_size(total)}" if total else ""
            tell(Step("fetching", f"{artifact.path}: {format_size(count)}{of}", count / total if total else None))

        try:
            await download(url, part, transport=CheckedTransport(outbound, self._proxies), room=room, told=told)
        except (SourceFailed, asyncio.CancelledError):
            raise  # what is there is gone on with
        except BaseException:
            await uninterrupted(remove, part)
            raise
        return part

    def _mirror_name(self) -> str:
        return shown(self._mirror_url) if self._mirror_url else str(self._mirror.folder) if self._mirror else ""


class _Work(NamedTuple):
    """Where a try leaves its files."""

    folder: Path
    """Goes with the try."""
    part: Path
    """The beginning of a download, gone on with by the next one of the same account: another's would be a piece of a file to guess from."""


def fetch_name(sha256: str, account: AccountId) -> str:
    """Of one account's fetching of one file, among all fetches."""
    return f"{sha256}-{hashlib.sha256(account.encode()).hexdigest()[:16]}"


def _place(url: str) -> Place:
    try:
        return place_of(httpx.URL(url))
    except (httpx.HTTPError, httpx.InvalidURL, AddressRefused):
        raise SourceFailed(f"{shown(url)} is no address that can be asked") from None


def _hub_address(hub: str, source: str) -> str:
    """`ORG/REPO@REV/path/of/file`; without @REV the main branch."""
    parts = source.split("/", 2)
    if len(parts) != 3 or not all(parts):
        raise SourceFailed("isn't of the form hf:ORG/REPO@REV/path")
    organisation, repository, path = parts
    repository, _, revision = repository.partition("@")
    return f"{hub}/{quote(organisation)}/{quote(repository)}/resolve/{quote(revision or 'main', safe='')}/{quote(path)}"
