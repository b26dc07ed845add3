"""ProvisionPort on this machine's disk: joins interpreters, locks, environments, artifacts, conversions, bundles and prune."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from uv import find_uv_bin

from fornada.core.errors import LoadFailed
from fornada.core.finetunes import shows_adapters
from fornada.core.names import AccountId, VersionDigest
from fornada.core.policy.outbound import outbound
from fornada.core.ports import BundleFile, EventLog, Locks, ProgressSink, Provisioned, Pruned, Version
from fornada.core.proofs import EVERYBODY, ProofStore
from fornada.core.resources import parse_size
from fornada.core.settings import ProvisionSettings
from fornada.core.specs import ArtifactSpec, ModelSpec
from fornada.node.provision.adapters import Adapters, adapters_folder
from fornada.node.provision.artifacts import Artifacts
from fornada.node.provision.builds import BuildFailed, Builds, Keeper
from fornada.node.provision.bundles import Bundles
from fornada.node.provision.contents import Contents
from fornada.node.provision.conversions import FOLDER as CONVERTED
from fornada.node.provision.conversions import Conversions, conversion_key, convert_lock
from fornada.node.provision.disk import Disk
from fornada.node.provision.durable import discard, disk_bytes, disk_errors
from fornada.node.provision.environments import Environments
from fornada.node.provision.files import ANY, Files
from fornada.node.provision.interpreters import Interpreters
from fornada.node.provision.lent import Lent
from fornada.node.provision.locks import environment_key, lock_hash
from fornada.node.provision.packages import Packages
from fornada.node.provision.prune import Needed, prune, sweep, unshared_packages
from fornada.node.provision.resolving import Resolving, ready_lock
from fornada.node.provision.sandboxes import of_tool
from fornada.node.provision.sdk import ensure_sdk, package_folder
from fornada.node.provision.threads import uninterrupted
from fornada.node.provision.variables import Variables

CACHE_CLEAN_S = 60.0
LENT_S = 600.0
"""How long what was handed out stays, though no registered version needs it: a deploy or a start may be under way."""


class Provisioner:
    """Makes what models need, under `data_dir`."""

    def __init__(
        self,
        *,
        data_dir: Path,
        keeper: Keeper | None,
        settings: ProvisionSettings,
        proofs: ProofStore,
        allow_private: Iterable[str] = (),
        open_mode: bool = True,
        inherited: Mapping[str, str] | None = None,
        disk_budget: str = "",
        log: EventLog | None = None,
    ) -> None:
        """`allow_private` is [outbound] allow_private: where artifacts may be fetched from beyond public addresses. In `open_mode` `file:`
        sources may name any file unless the settings list directories, otherwise none. `inherited` is the node's environment, of which
        builds get certificates, proxies and index settings; `disk_budget` is [node] disk_budget. Without a keeper (a prune while no node
        runs) nothing can be built."""
        self.referenced: Callable[[], Iterable[Version]] = _nobody_said
        self._log = log
        self._keeper = keeper
        self._data_dir = data_dir = Path(data_dir).absolute()
        self._locks = data_dir / "run" / "locks"
        self._cache = data_dir / "cache"
        self._private_cache = not settings.cache_dir
        self._lent = Lent(LENT_S)
        self._sdk: Path | None = None
        self._sweeping: asyncio.Task[int] | None = None
        environ = inherited or {}
        self._variables = variables = Variables(environ, settings, cache=self._cache, home=self._cache / "home")
        self._disk = disk = Disk(data_dir, budget=parse_size(disk_budget) if disk_budget else 0, make_room=self.prune)
        self._builds = builds = Builds(keeper, data_dir / "logs" / "builds")
        self._interpreters = Interpreters(
            builds,
            search_path=variables.search_path,
            home=environ.get("HOME", "/nonexistent"),
            uv_pythons=environ.get("UV_PYTHON_INSTALL_DIR", ""),
            pyenv=environ.get("PYENV_ROOT", ""),
        )
        self._resolving = Resolving(self._cache, data_dir=data_dir, builds=builds, variables=variables)
        self._environments = Environments(
            data_dir / "environments", self._locks, data_dir=data_dir, builds=builds, variables=variables, disk=disk, log=log
        )
        self._contents = Contents(data_dir / "artifacts", log=log)
        packages = Packages(data_dir=data_dir, builds=builds, variables=variables)
        self._listed = settings.allow_files
        self._files = Files((), private=data_dir)
        self.serve_everybody(open_mode)
        self._artifacts = Artifacts(
            self._contents,
            self._locks,
            settings=settings,
            variables=variables,
            packages=packages,
            files=self._files,
            outbound=outbound(allow_private),
            disk=disk,
            proofs=proofs,
            log=log,
        )
        self._proofs = proofs
        converted = data_dir / "artifacts" / CONVERTED
        self._conversions = Conversions(converted, self._locks, builds=builds, variables=variables, disk=disk, log=log)
        self._bundles = Bundles(data_dir / "bundles", self._locks, disk=disk)
        self.adapters = Adapters(data_dir, disk=disk)
        with disk_errors(data_dir):
            for folder in (self._cache / "home", variables.uv_cache, self._locks, data_dir / "bundles", data_dir / "environments"):
                folder.mkdir(parents=True, exist_ok=True)
            self._contents.prepare()

    def serve_everybody(self, open_mode: bool) -> None:
        """Whether only this machine can deploy, since there are no keys: it may name any file then. What the settings list holds anyway."""
        self._files.allow(self._listed if self._listed is not None else ANY if open_mode else ())

    async def start(self) -> None:
        """Copies the SDK where this release's isn't there yet, and begins to remove what a kill left behind."""
        if self._keeper:
            for build in list(self._keeper.adopted_builds):
                # Nobody waits for it any more, and what it makes has a name that only its caller knew.
                self._keeper.end_build(build)
        self._sdk = await uninterrupted(ensure_sdk, self._data_dir / "sdk", package_folder())
        await uninterrupted(self._hand_over_results, list(self.referenced()))
        self._sweeping = asyncio.create_task(uninterrupted(sweep, self._data_dir, locks=self._locks), name="provision sweep")

    async def close(self) -> None:
        """Ends builds and downloads; what is on disk of them is gone on with next time."""
        if self._sweeping:
            await asyncio.wait({self._sweeping})
        for flights in (self._environments.flights, self._artifacts.flights, self._conversions.flights):
            await flights.close()

    async def lock(self, spec: ModelSpec, files: Mapping[str, BundleFile]) -> Locks:
        interpreter = await self._interpreters.find(spec.python.version)
        await self._disk.room_for(0, what="a deploy")
        return await self._resolving.locks(spec, files, interpreter)

    def ready_lock(self, spec: ModelSpec, files: Mapping[str, BundleFile]) -> str:
        return ready_lock(spec, files)

    async def keep_bundle(self, digest: VersionDigest, files: Mapping[str, BundleFile]) -> str:
        self._lent.lend(digest)
        return str(await self._bundles.keep(digest, files))

    async def environment(self, version: Version, progress: ProgressSink) -> str:
        interpreter = await self._interpreters.find(version.spec.python.version)
        self._lent.lend(environment_key(interpreter, version.lock))
        return str(await self._environments.ensure(interpreter, version.lock, progress))

    async def artifacts(self, version: Version, progress: ProgressSink) -> dict[str, str]:
        found = {}
        for artifact in version.spec.artifacts:
            found[artifact.path] = str(await self._artifact(version, artifact, progress))
        return found

    def provisioned(self, version: Version, environment: str, artifacts: Mapping[str, str]) -> Provisioned:
        self._lent.lend(version.digest)
        if self._sdk is None or not self._sdk.is_dir():
            self._sdk = ensure_sdk(self._data_dir / "sdk", package_folder())
        python = str(Path(environment) / "bin" / "python")
        adapters = str(adapters_folder(self._data_dir, version.model)) if shows_adapters(version) else ""
        return Provisioned(python, environment, version.folder, dict(artifacts), str(self._sdk), adapters)

    async def prune(self) -> Pruned:
        if self.referenced is _nobody_said:
            return Pruned({}, 0)  # without a catalogue nothing is known to be superfluous
        needed = await uninterrupted(self._needed, list(self.referenced()))
        pruned = await uninterrupted(prune, self._data_dir, needed, locks=self._locks, lent=self._lent)
        self._proofs.keep_proved(needed.artifacts | self._lent.names())
        cached = await self._prune_cache() if self._private_cache and not self._builds.running else Pruned({}, 0)
        whole = Pruned({**pruned.removed, **cached.removed}, pruned.freed_bytes + cached.freed_bytes)
        if self._log and whole.removed:
            self._log.info("provision.pruned", freed_bytes=whole.freed_bytes, **whole.removed)
        return whole

    async def _prune_cache(self) -> Pruned:
        """Has uv forget the packages that no environment shares any more; it locks its cache against itself."""
        cache = self._variables.uv_cache
        packages = await asyncio.to_thread(unshared_packages, cache)
        if not packages:
            return Pruned({}, 0)
        before = await asyncio.to_thread(disk_bytes, cache)
        if self._keeper is None:
            await uninterrupted(discard, cache)  # no uv is at work, and none can be asked: a cache may go as a whole
            return Pruned({"cache": len(packages)}, before - await asyncio.to_thread(disk_bytes, cache))
        try:
            argv = [find_uv_bin(), "cache", "clean", "--quiet", *packages]
            env = self._variables.uv()
            sandbox = of_tool(env, data_dir=self._data_dir, programs=argv[:1])
            await self._builds.run("cache", argv, env=env, cwd=self._data_dir, sandbox=sandbox, longest_s=CACHE_CLEAN_S)
        except BuildFailed:
            return Pruned({}, 0)  # another uv is at work: next time
        return Pruned({"cache": len(packages)}, max(0, before - await asyncio.to_thread(disk_bytes, cache)))

    async def _artifact(self, version: Version, artifact: ArtifactSpec, progress: ProgressSink) -> Path:
        interpreter = await self._interpreters.find(version.spec.python.version)
        account = _whose(version)

        async def fetched(tell: ProgressSink) -> Path:
            self._lent.lend(artifact.sha256)
            return await self._artifacts.ensure(artifact, interpreter, tell, account=account)

        convert = artifact.convert
        if convert is None:
            await fetched(progress)
            return await uninterrupted(self._contents.named, artifact.sha256, Path(artifact.path).name)
        if not self._artifacts.may_read(artifact.sha256, account):
            await fetched(progress)  # what is made of a file tells of it
        folder = Path(version.folder)
        script = folder / convert.script
        lock = await uninterrupted(convert_lock, convert, folder)
        key = await uninterrupted(conversion_key, convert, script=script, lock=lock, input_sha256=artifact.sha256, account=account)
        self._lent.lend(key)

        async def python(tell: ProgressSink) -> Path:
            self._lent.lend(environment_key(interpreter, lock))
            return await self._environments.ensure(interpreter, lock, tell) / "bin" / "python"

        return await self._conversions.ensure(key, artifact, script=script, python=python, source=fetched, progress=progress)

    def _needed(self, versions: list[Version]) -> Needed:
        lent = self._lent.names()
        environments, locks = set(), set()
        converted: set[str] = set()
        for version in versions:
            interpreter = self._interpreters.at_once(version.spec.python.version)
            if interpreter:
                environments.add(environment_key(interpreter, version.lock))
            else:
                locks.add(lock_hash(version.lock))
            converted.update(_conversion_keys(version, _whose(version)))
        return Needed(
            environments=lent | environments,
            locks=frozenset(locks),
            artifacts=lent | {artifact.sha256 for version in versions for artifact in version.spec.artifacts},
            converted=lent | converted,
            bundles=lent | {Path(version.folder).name for version in versions},
            sdk=frozenset({self._sdk.name} if self._sdk else set()),
        )

    def _hand_over_results(self, versions: list[Version]) -> None:
        """Releases up to 0.1 named results of conversions without their account: they stay with the one that alone has such a version.
        What several have is made anew, since nobody knows beside whose files it was made."""
        owners: dict[str, set[AccountId]] = {}
        successors: dict[str, str] = {}
        for version in versions:
            former, latter = (_conversion_keys(version, account) for account in (EVERYBODY, _whose(version)))
            for before, after in zip(former, latter, strict=True):
                owners.setdefault(before, set()).add(_whose(version))
                successors[before] = after
        for before, after in successors.items():
            if len(owners[before]) == 1 and EVERYBODY not in owners[before]:
                self._conversions.rename(before, after)


def _whose(version: Version) -> AccountId:
    return EVERYBODY if version.builtin else version.account


def _nobody_said() -> Iterable[Version]:
    return ()


def _conversion_keys(version: Version, account: AccountId) -> list[str]:
    found = []
    folder = Path(version.folder)
    for artifact in version.spec.artifacts:
        if artifact.convert:
            with contextlib.suppress(LoadFailed):  # its script is gone: the result can't be asked for any more
                lock = convert_lock(artifact.convert, folder)
                script = folder / artifact.convert.script
                key = conversion_key(artifact.convert, script=script, lock=lock, input_sha256=artifact.sha256, account=account)
                found.append(key)
    return found
