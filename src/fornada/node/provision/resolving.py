"""From what a model asks for to a lock with hashes: `uv pip compile`, wheels only."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from uv import find_uv_bin

from fornada.core.errors import InvalidSpec, LoadFailed
from fornada.core.ports import BundleFile, Locks
from fornada.core.specs import ModelSpec
from fornada.node.provision.builds import BuildFailed, Builds
from fornada.node.provision.durable import TEMPORARY, disk_errors, remove
from fornada.node.provision.engines import ENGINE_NEEDS, alternatives, with_engine
from fornada.node.provision.interpreters import Interpreter
from fornada.node.provision.locks import CONVERT_LOCK_ENDING, READY_LOCK, covers, entries, rendered
from fornada.node.provision.requirements import Requirement, allows_python, asked_by, parse_requirements
from fornada.node.provision.sandboxes import of_tool
from fornada.node.provision.threads import uninterrupted
from fornada.node.provision.variables import Variables

RETRY_S = 10.0
FLAGS = ("--quiet", "--generate-hashes", "--no-build", "--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links")
_NO_ANSWER = (
    "Failed to fetch",
    "Request failed",
    "error sending request",
    "Failed to download",
    "network was disabled",
    "Network connectivity",
)
"""What uv says where the index didn't answer, which isn't the author's fault."""


class Resolving:
    """Locks what models ask for."""

    def __init__(self, work: Path, *, data_dir: Path, builds: Builds, variables: Variables) -> None:
        """`work` is a folder for files of a moment."""
        self._work = work
        self._data_dir = data_dir
        self._builds = builds
        self._variables = variables

    async def locks(self, spec: ModelSpec, files: Mapping[str, BundleFile], interpreter: Interpreter) -> Locks:
        """Of the environment and of each convert script. Ready locks in the folder are taken where they hold what is asked for.
        Raises InvalidSpec, LoadFailed (the index doesn't answer), DiskFull."""
        asked = asked_by(spec, files)
        if asked.requires_python and not allows_python(asked.requires_python, interpreter.version):
            raise InvalidSpec(
                f"{spec.python.entry}: requires-python '{asked.requires_python}' isn't met by Python {interpreter.version}; "
                "name another with [python] version"
            )
        environment = _ready(files, READY_LOCK, asked.requirements, _engine_names(spec))
        if environment is None:
            environment = await self._compile(with_engine(spec.engine, asked.requirements), interpreter, "the dependencies")
        return Locks(environment, await self._convert_locks(spec, files, interpreter))

    async def _convert_locks(self, spec: ModelSpec, files: Mapping[str, BundleFile], interpreter: Interpreter) -> dict[str, str]:
        wanted: dict[str, list[str]] = {}
        for artifact in spec.artifacts:
            if artifact.convert:
                script, dependencies = artifact.convert.script, artifact.convert.dependencies
                if wanted.setdefault(script, dependencies) != dependencies:
                    raise InvalidSpec(f"convert script {script} is named twice with different dependencies")
        found = {}
        for script, dependencies in wanted.items():
            requirements = parse_requirements(dependencies, where=f"convert of {script}: dependencies")
            path = f"{script}{CONVERT_LOCK_ENDING}"
            if requirements and _ready(files, path, requirements, []) is None:
                found[path] = await self._compile(requirements, interpreter, f"the dependencies of {script}")
        return found

    async def _compile(self, requirements: Sequence[Requirement], interpreter: Interpreter, what: str) -> str:
        if not requirements:
            return ""
        with disk_errors(self._work):
            work = Path(await uninterrupted(tempfile.mkdtemp, prefix=TEMPORARY, dir=self._work))
            try:
                await uninterrupted((work / "in.txt").write_text, "".join(f"{one.text}\n" for one in requirements), encoding="utf-8")
                await self._ask_uv(work, interpreter, what)
                text = await uninterrupted((work / "lock.txt").read_text, encoding="utf-8")
            finally:
                await uninterrupted(remove, work)
        return rendered(text, where=what)

    async def _ask_uv(self, work: Path, interpreter: Interpreter, what: str) -> None:
        argv = [find_uv_bin(), "pip", "compile", *FLAGS, "--python", interpreter.path, "-o", "lock.txt", "in.txt"]
        env = self._variables.uv()
        sandbox = of_tool(env, data_dir=self._data_dir, programs=argv[:1], python=interpreter.path)
        try:
            await self._builds.run("lock", argv, env=env, cwd=work, sandbox=sandbox)
            return
        except BuildFailed as failure:
            if failure.killed:
                raise LoadFailed(f"{what} can't be locked now: {failure.reason}", retry_after_s=RETRY_S) from None
            reason = failure.reason
            if self._variables.offline or not any(sign in reason for sign in _NO_ANSWER):
                raise _refusal(what, reason) from None
        try:
            # The index doesn't answer: what was asked of it lately may be enough.
            await self._builds.run("lock", [*argv, "--offline"], env=env, cwd=work, sandbox=sandbox)
        except BuildFailed as failure:
            failure.forget_log()
            raise _refusal(what, reason) from None


def ready_lock(spec: ModelSpec, files: Mapping[str, BundleFile]) -> str:
    """The lock that the folder ships, empty where nothing is needed. Raises InvalidSpec where there is none or it doesn't fit."""
    asked = asked_by(spec, files)
    engine = _engine_names(spec)
    lock = _ready(files, READY_LOCK, asked.requirements, engine)
    if lock is None:
        if READY_LOCK in files:
            raise InvalidSpec(f"{spec.name}: {READY_LOCK} doesn't hold what the model asks for; lock it again")
        if asked.requirements or engine:
            raise InvalidSpec(f"{spec.name} has dependencies but no {READY_LOCK}")
        return ""
    return lock


def _ready(files: Mapping[str, BundleFile], path: str, asked: Sequence[Requirement], engine: list[set[str]]) -> str | None:
    """The lock at `path` if it is there and holds `asked`, and of each set in `engine` one name."""
    if path not in files:
        return None
    try:
        text = files[path].data.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidSpec(f"{path} is not UTF-8") from None
    names = {entry.name for entry in entries(text, where=path)}
    if not covers(text, asked, where=path) or not all(names & one for one in engine):
        return None
    return rendered(text, where=path)


def _engine_names(spec: ModelSpec) -> list[set[str]]:
    """For each need of the engine the names of which one must be locked."""
    return [alternatives(need) for need in ENGINE_NEEDS[spec.engine]]


def _refusal(what: str, reason: str) -> InvalidSpec | LoadFailed:
    if any(sign in reason for sign in _NO_ANSWER):
        return LoadFailed(f"{what} can't be locked: the package index doesn't answer: {reason}", retry_after_s=RETRY_S)
    return InvalidSpec(f"{what} can't be locked: {reason}")
