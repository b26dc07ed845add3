"""Environments of models: one for each lock and interpreter, named by their content, shared by all who need the same.

    ensure ── marker there ──> path
       └── flight and flock by key ── .tmp-KEY-x: uv venv ─ uv pip sync ─ marker ─ syncfs ─ rename ──> path

What carries the key's name is complete, whatever was killed when: everything else is a .tmp- that the next sweep removes.
"""

import contextlib
import json
import os
from pathlib import Path

from uv import find_uv_bin

from fornada.core.errors import LoadFailed
from fornada.core.ports import EventLog, ProgressSink, Step
from fornada.node.provision.builds import BuildFailed, Builds
from fornada.node.provision.disk import Disk
from fornada.node.provision.durable import (
    discard,
    disk_errors,
    freeze,
    remove,
    sync_file_system,
    sync_folder,
    temporary_name,
    write_file,
)
from fornada.node.provision.flights import Flights
from fornada.node.provision.held import held
from fornada.node.provision.interpreters import Interpreter
from fornada.node.provision.locks import entries, environment_key, lock_hash
from fornada.node.provision.sandboxes import of_compiler, of_tool
from fornada.node.provision.threads import uninterrupted
from fornada.node.provision.variables import SEARCH_PATH, Variables

MARKER = ".fornada.json"
COMPILED = ("--invalidation-mode", "unchecked-hash")
"""The environment is read-only: nothing would ever be compiled again, so no file time needs checking at import."""
RETRY_S = 10.0


class Environments:
    """The folder DATA_DIR/environments."""

    def __init__(
        self, root: Path, locks: Path, *, data_dir: Path, builds: Builds, variables: Variables, disk: Disk, log: EventLog | None
    ) -> None:
        self.root = root
        self._data_dir = data_dir
        self._locks = locks
        self._builds = builds
        self._variables = variables
        self._disk = disk
        self._log = log
        self.flights: Flights[Path] = Flights()

    async def ensure(self, interpreter: Interpreter, lock: str, progress: ProgressSink) -> Path:
        """The environment's folder, built if it isn't there. Raises LoadFailed, DiskFull. Never asks the network for one that exists."""
        key = environment_key(interpreter, lock)
        path = self.root / key
        if is_complete(path):
            return path
        return await self.flights.join(key, lambda tell: self._build(key, interpreter, lock, tell), progress)

    def lock_file(self, key: str) -> Path:
        """Held by whoever builds the environment."""
        return self._locks / f"environment-{key}"

    async def _build(self, key: str, interpreter: Interpreter, lock: str, tell: ProgressSink) -> Path:
        path = self.root / key
        tell(Step("building", "waiting for the builder"))
        self.root.mkdir(parents=True, exist_ok=True)
        async with held(self.lock_file(key)):
            if is_complete(path):
                return path
            await uninterrupted(discard, path)
            await self._disk.room_for(0, what="an environment")
            temporary = self.root / temporary_name(key)
            requirements = temporary.with_name(f"{temporary.name}.txt")
            try:
                with disk_errors(self.root):
                    await self._fill(temporary, requirements, interpreter, lock, tell)
                    await self._finish(temporary, path, interpreter, lock)
            except BuildFailed as failure:
                raise LoadFailed(f"the environment can't be built: {failure.reason}", retry_after_s=RETRY_S) from None
            finally:
                for leftover in (temporary, requirements):
                    await uninterrupted(remove, leftover)
        if self._log:
            self._log.info("provision.environment_built", environment=key, packages=len(entries(lock, where="lock")))
        return path

    async def _fill(self, temporary: Path, requirements: Path, interpreter: Interpreter, lock: str, tell: ProgressSink) -> None:
        uv = [find_uv_bin()]
        env = self._variables.uv()
        venv = ["venv", "--quiet", "--relocatable", "--no-project", "--python", interpreter.path, str(temporary)]
        tell(Step("building", f"making an environment with Python {interpreter.version}"))
        sandbox = of_tool(env, data_dir=self._data_dir, programs=uv, python=interpreter.path)
        await self._builds.run("environment", uv + venv, env=env, cwd=self.root, sandbox=sandbox)
        packages = entries(lock, where="lock")
        if not packages:
            return
        await uninterrupted(requirements.write_text, "".join(f"{entry.line}\n" for entry in packages), encoding="utf-8")
        sync = [
            "pip",
            "sync",
            "--python",
            f"{temporary}/bin/python",
            "--require-hashes",
            "--no-build",
            str(requirements),
        ]

        def told(line: str) -> None:
            tell(Step("building", line))

        tell(Step("building", f"installing {len(packages)} package{'s' * (len(packages) != 1)}"))
        try:
            # With hashes and versions fixed, a cache that has all of it needs no index: an unreachable one costs nothing then.
            await self._builds.run("environment", [*uv, *sync, "--offline"], env=env, cwd=self.root, sandbox=sandbox, told=told)
        except BuildFailed as failure:
            if self._variables.offline:
                raise
            failure.forget_log()
            await self._builds.run("environment", uv + sync, env=env, cwd=self.root, sandbox=sandbox, told=told)
        tell(Step("building", "compiling"))
        # Without site: a package's .pth files are code that every start of its interpreter would run.
        compiler = [interpreter.path, "-I", "-S", "-m", "compileall", "-q", "-q", "-j", "0", *COMPILED, str(temporary / "lib")]
        await self._compile(compiler, temporary, interpreter)

    async def _compile(self, argv: list[str], temporary: Path, interpreter: Interpreter) -> None:
        """Sources that no Python of this version compiles are data for it, such as templates: they are left alone, as pip does."""
        environment = {"PATH": SEARCH_PATH, "LANG": "C.UTF-8"}
        with contextlib.suppress(BuildFailed):
            await self._builds.run("bytecode", argv, env=environment, cwd=temporary, sandbox=of_compiler(temporary, interpreter.path))

    async def _finish(self, temporary: Path, path: Path, interpreter: Interpreter, lock: str) -> None:
        await self._disk.room_for(0, what="this environment")
        marker = {"key": path.name, "python": interpreter.version, "interpreter": interpreter.path, "lock_sha256": lock_hash(lock)}

        def finish() -> None:
            write_file(temporary / MARKER, json.dumps(marker).encode(), mode=0o644)
            freeze(temporary)
            sync_file_system(temporary)
            os.rename(temporary, path)
            sync_folder(self.root)

        await uninterrupted(finish)


def is_complete(path: Path) -> bool:
    """Whether the folder is a finished environment whose interpreter is still there."""
    return os.access(path / "bin" / "python", os.X_OK) and (path / MARKER).is_file()


def read_marker(path: Path) -> dict[str, str]:
    """What a finished environment says of itself; empty for anything else."""
    try:
        marker = json.loads((path / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return marker if isinstance(marker, dict) else {}
