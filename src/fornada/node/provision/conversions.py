"""Conversions: `python convert.py INPUT OUTPUT`, run once for each script, lock and input, as a build.

The result is named by what it was made from. What the files were is written beside them, so that a damaged result is found
out at its next use and made again.
"""

import asyncio
import hashlib
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from fornada.core.errors import LoadFailed
from fornada.core.names import AccountId
from fornada.core.ports import EventLog, Limits, ProgressSink, Step
from fornada.core.proofs import EVERYBODY
from fornada.core.specs import ArtifactSpec, ConvertSpec
from fornada.node.provision.builds import LIMITS as BUILD_LIMITS
from fornada.node.provision.builds import BuildFailed, Builds
from fornada.node.provision.contents import Seal, seal_of
from fornada.node.provision.disk import Disk
from fornada.node.provision.durable import (
    disk_errors,
    freeze,
    remove,
    sync_file_system,
    sync_folder,
    temporary_name,
    write_file,
)
from fornada.node.provision.flights import Flights
from fornada.node.provision.hashing import digest_of
from fornada.node.provision.held import held
from fornada.node.provision.locks import CONVERT_LOCK_ENDING, KEY_LENGTH, lock_hash
from fornada.node.provision.sandboxes import of_script
from fornada.node.provision.threads import uninterrupted
from fornada.node.provision.variables import Variables

FOLDER = "converted"
RECORD = ".files.json"
OUTPUT = "output"
RETRY_S = 30.0
LIMITS = Limits(
    memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2, processes=256, open_files=BUILD_LIMITS.open_files, nice=5
)
"""A deployer's own code. What it needs isn't declared, and may be several times its model: this much keeps the machine alive."""

Record = dict[str, tuple[str, Seal]]
"""Relative path -> (sha256, how the file looked when it was hashed)."""


class Conversions:
    """The folder DATA_DIR/artifacts/converted."""

    def __init__(self, root: Path, locks: Path, *, builds: Builds, variables: Variables, disk: Disk, log: EventLog | None) -> None:
        self.root = root
        self._locks = locks
        self._builds = builds
        self._variables = variables
        self._disk = disk
        self._log = log
        self.flights: Flights[Path] = Flights()

    async def find(self, key: str, name: str) -> Path | None:
        """The intact result, None where there is none."""
        folder = self.root / key
        if not await self._is_intact(folder):
            return None
        path = folder / OUTPUT / name
        return path if _is_there(path) else None

    async def ensure(
        self,
        key: str,
        artifact: ArtifactSpec,
        *,
        script: Path,
        python: Callable[[ProgressSink], Awaitable[Path]],
        source: Callable[[ProgressSink], Awaitable[Path]],
        progress: ProgressSink,
    ) -> Path:
        """The result, a file or a folder with the name of the artifact. `python` and `source` are asked for only where it must be
        made. Raises LoadFailed, DiskFull."""
        name = Path(artifact.path).name
        found = await self.find(key, name)
        if found:
            return found

        async def make(tell: ProgressSink) -> Path:
            async with held(self.lock_file(key)):
                again = await self.find(key, name)
                if again:
                    return again
                fetched = await source(tell)
                interpreter = await python(tell)
                return await self._make(key, name, script=script, interpreter=interpreter, fetched=fetched, tell=tell)

        return await self.flights.join(key, make, progress)

    def rename(self, key: str, other: str) -> None:
        """Where there is a result `key` and none `other`. Blocking."""
        if (self.root / key).is_dir() and not (self.root / other).exists():
            os.rename(self.root / key, self.root / other)
            sync_folder(self.root)

    def lock_file(self, key: str) -> Path:
        """Held by whoever makes the result."""
        return self._locks / f"converted-{key}"

    async def _make(self, key: str, name: str, *, script: Path, interpreter: Path, fetched: Path, tell: ProgressSink) -> Path:
        tell(Step("building", f"converting {name}"))
        await uninterrupted(self.root.mkdir, parents=True, exist_ok=True)
        await self._disk.room_for(0, what=f"the conversion of {name}")
        temporary = self.root / temporary_name(key)
        try:
            with disk_errors(self.root):
                await uninterrupted(_prepare, temporary)
                await self._run(temporary, name, script=script, interpreter=interpreter, fetched=fetched, tell=tell)
                await self._finish(temporary, key, name)
        finally:
            await uninterrupted(remove, temporary)
        if self._log:
            self._log.info("provision.converted", artifact=name, conversion=key)
        return self.root / key / OUTPUT / name

    async def _run(self, temporary: Path, name: str, *, script: Path, interpreter: Path, fetched: Path, tell: ProgressSink) -> None:
        scratch = temporary / "scratch"
        argv = [str(interpreter), "-I", "-B", str(script), str(fetched), str(temporary / OUTPUT / name)]
        env = self._variables.script(temporary=scratch)
        environment = interpreter.parent.parent
        sandbox = of_script(python=str(interpreter), read=[environment, script.parent, fetched], write=[scratch, temporary / OUTPUT])
        try:
            await self._builds.run(
                "convert",
                argv,
                env=env,
                cwd=scratch,
                sandbox=sandbox,
                limits=LIMITS,
                told=lambda line: tell(Step("building", f"converting {name}: {line}")),
            )
        except BuildFailed as failure:
            raise LoadFailed(f"{script.name} can't convert {name}: {failure.reason}", retry_after_s=RETRY_S) from None
        await uninterrupted(remove, scratch)

    async def _finish(self, temporary: Path, key: str, name: str) -> None:
        files = await uninterrupted(_files_below, temporary / OUTPUT)
        if not _is_there(temporary / OUTPUT / name):
            raise LoadFailed(f"the conversion ended well but wrote no {name}", retry_after_s=RETRY_S)
        await uninterrupted(freeze, temporary / OUTPUT)
        record: Record = {}
        for relative in files:
            path = temporary / OUTPUT / relative
            record[relative] = (await digest_of(path), seal_of(path) or Seal(0, 0, 0, 0))

        def finish() -> None:
            write_file(temporary / RECORD, json.dumps(record).encode(), mode=0o644)
            sync_file_system(temporary)
            target = self.root / key
            remove(target)  # a damaged one
            os.rename(temporary, target)
            sync_folder(self.root)

        await uninterrupted(finish)

    async def _is_intact(self, folder: Path) -> bool:
        record = _read_record(folder)
        if record is None or sorted(record) != await asyncio.to_thread(_files_below, folder / OUTPUT):
            return False
        for relative, (sha256, seal) in record.items():
            path = folder / OUTPUT / relative
            if seal_of(path) != seal and await digest_of(path) != sha256:
                if self._log:
                    self._log.warning("provision.damaged", file=str(path))
                return False
        return True


def conversion_key(convert: ConvertSpec, *, script: Path, lock: str, input_sha256: str, account: AccountId) -> str:
    """Name of the result: sha256 over the script, its lock, its input and, unless it is EVERYBODY, the account: a script may read what
    lies beside it, and another account's would decide what is loaded here. Raises LoadFailed where the script is gone."""
    try:
        code = hashlib.sha256(script.read_bytes()).hexdigest()
    except OSError as error:
        raise LoadFailed(f"convert script {convert.script} can't be read: {error.strerror}", retry_after_s=RETRY_S) from None
    whose = f"\n{account}" if account != EVERYBODY else ""
    return hashlib.sha256(f"{code}\n{lock_hash(lock)}\n{input_sha256}{whose}".encode()).hexdigest()[:KEY_LENGTH]


def convert_lock(convert: ConvertSpec, folder: Path) -> str:
    """The lock beside the script, empty where it has no dependencies. Raises LoadFailed where one is missing."""
    try:
        return (folder / f"{convert.script}{CONVERT_LOCK_ENDING}").read_text(encoding="utf-8")
    except FileNotFoundError:
        if not convert.dependencies:
            return ""
        raise LoadFailed(
            f"{convert.script} has dependencies but no lock beside it; deploy the model again", retry_after_s=RETRY_S
        ) from None


def _prepare(temporary: Path) -> None:
    (temporary / OUTPUT).mkdir(parents=True, mode=0o700)
    (temporary / "scratch").mkdir(mode=0o700)


def _is_there(path: Path) -> bool:
    return path.exists()


def _files_below(folder: Path) -> list[str]:
    """Relative paths of all files, sorted. Raises LoadFailed for anything else: a link could let a model read what isn't its own,
    and whoever reads a pipe waits for ever."""
    found = []
    for below, folders, names in os.walk(folder):
        for name in folders + names:
            path = Path(below, name)
            if path.is_symlink():
                raise LoadFailed("the conversion's result holds a symbolic link, which is refused", retry_after_s=RETRY_S)
            if name in names:
                if not path.is_file():
                    raise LoadFailed(f"the conversion's result holds {name}, which is neither a file nor a folder", retry_after_s=RETRY_S)
                found.append(str(path.relative_to(folder)))
    return sorted(found)


def _read_record(folder: Path) -> Record | None:
    try:
        table = json.loads((folder / RECORD).read_bytes())
        return {str(relative): (str(sha256), Seal(*seal)) for relative, (sha256, seal) in table.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return None
