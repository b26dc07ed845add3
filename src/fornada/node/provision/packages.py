"""Files out of packages: `pypi:NAME==VERSION#path` and `npm:NAME@VERSION#path`. Nothing of a package is run to get at them."""

import asyncio
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from uv import find_uv_bin

from fornada.core.errors import InvalidSpec
from fornada.core.ports import Limits
from fornada.core.specs import check_inside
from fornada.node.provision.builds import BuildFailed, Builds
from fornada.node.provision.download import SourceFailed
from fornada.node.provision.interpreters import Interpreter
from fornada.node.provision.requirements import parse_requirements
from fornada.node.provision.sandboxes import of_script, of_tool
from fornada.node.provision.variables import Variables

_NPM = re.compile(r"(@[a-z0-9~._-]+/)?[a-z0-9~._-]+@\d[A-Za-z0-9.+-]*\Z")
OTHER_PYTHONS = ("3.12", "3.11")
"""Whose wheels serve where there is none for the interpreter at hand: nothing in them runs, a file is taken out."""
TAKE_OUT = """
import shutil, sys, tarfile
archive, inside, target = sys.argv[1:]
with tarfile.open(archive, "r:gz") as members:
    for member in members:
        if member.isreg() and member.name.partition("/")[2] == inside:
            with open(target, "wb") as file:
                shutil.copyfileobj(members.extractfile(member), file)
            sys.exit()
sys.exit("error: it holds no file " + inside)
"""
"""npm's archives hold one folder, mostly named `package`. Read in a build: a stranger's headers may unfold to gigabytes in memory."""
TAKE_OUT_LIMITS = Limits(memory_bytes=512 * 1024**2, open_files=64, nice=5)
TAKE_OUT_S = 600.0


class Packages:
    """Fetches packages as builds and hands out single files of them."""

    def __init__(self, *, data_dir: Path, builds: Builds, variables: Variables) -> None:
        self._data_dir = data_dir
        self._builds = builds
        self._variables = variables

    async def from_pypi(self, source: str, work: Path, interpreter: Interpreter, told: Callable[[str], None]) -> Path:
        """The file, below the empty folder `work`. `source` is what stands after `pypi:`. Raises SourceFailed, DiskFull."""
        wanted, inside = _split(source, "NAME==VERSION#path/inside")
        try:
            (requirement,) = parse_requirements([wanted], where="source")
        except (InvalidSpec, ValueError):
            raise SourceFailed(f"'{wanted}' is no NAME==VERSION") from None
        if not requirement.pinned:
            raise SourceFailed(f"'{wanted}' doesn't say which version; write NAME==VERSION")
        target = work / "package"
        argv = [
            *(find_uv_bin(), "pip", "install", "--no-deps", "--no-build", "--link-mode", "copy", "--python", interpreter.path),
            *("--target", str(target), requirement.text),
        ]
        failure = await self._installed(argv, work, interpreter, told)
        for python in OTHER_PYTHONS:
            if failure is None or "wheels with a matching Python" not in failure.reason:
                break
            failure = await self._installed([*argv, "--python-version", python], work, interpreter, told) and failure
        if failure is not None:
            raise SourceFailed(failure.reason)
        return _regular(target, inside, requirement.text)

    async def _installed(self, argv: list[str], work: Path, interpreter: Interpreter, told: Callable[[str], None]) -> BuildFailed | None:
        """None once it is there, else why not. Raises DiskFull."""
        env = self._variables.uv()
        sandbox = of_tool(env, data_dir=self._data_dir, programs=argv[:1], python=interpreter.path)
        try:
            # A pinned version that is in the cache needs no index.
            await self._builds.run("package", [*argv, "--offline"], env=env, cwd=work, sandbox=sandbox, told=told)
        except BuildFailed as failure:
            if self._variables.offline:
                return failure
            failure.forget_log()
            try:
                await self._builds.run("package", argv, env=env, cwd=work, sandbox=sandbox, told=told)
            except BuildFailed as second:
                return second
        return None

    async def from_npm(self, source: str, work: Path, interpreter: Interpreter, told: Callable[[str], None]) -> Path:
        """The same for npm. Raises SourceFailed, DiskFull."""
        wanted, inside = _split(source, "NAME@VERSION#path/inside")
        if not _NPM.match(wanted):
            raise SourceFailed(f"'{wanted}' is no NAME@VERSION")
        npm = shutil.which("npm", path=self._variables.search_path)
        if npm is None:
            raise SourceFailed("there is no npm on this machine; install Node.js, or put the file into the mirror")
        cached = "--offline" if self._variables.offline else "--prefer-offline"
        argv = [npm, "pack", "--silent", "--ignore-scripts", cached, "--pack-destination", str(work), "--", wanted]
        try:
            env = self._variables.npm()
            programs = [npm, await asyncio.to_thread(os.path.realpath, npm)]
            sandbox = of_tool(env, data_dir=self._data_dir, programs=programs)
            await self._builds.run("package", argv, env=env, cwd=work, sandbox=sandbox, told=told)
        except BuildFailed as failure:
            raise SourceFailed(failure.reason) from None
        target = work / "member"
        argv = [interpreter.path, "-I", "-S", "-c", TAKE_OUT, str(_archive(work, wanted)), inside, str(target)]
        env = self._variables.script(temporary=work)
        try:
            sandbox = of_script(python=interpreter.path, read=[], write=[work])
            await self._builds.run("package", argv, env=env, cwd=work, sandbox=sandbox, limits=TAKE_OUT_LIMITS, longest_s=TAKE_OUT_S)
        except BuildFailed as failure:
            raise SourceFailed(f"{wanted} can't be unpacked: {failure.reason}") from None
        return target


def _split(source: str, form: str) -> tuple[str, str]:
    wanted, hash_sign, inside = source.partition("#")
    try:
        check_inside(inside, "source")
    except InvalidSpec:
        hash_sign = ""
    if not hash_sign:
        raise SourceFailed(f"'{source}' isn't of the form {form}")
    return wanted.strip(), inside


def _regular(folder: Path, inside: str, package: str) -> Path:
    path = folder / inside
    if not path.is_file() or not path.resolve().is_relative_to(folder.resolve()):
        raise SourceFailed(f"{package} holds no file {inside}")
    return path


def _archive(work: Path, package: str) -> Path:
    archive = next(work.glob("*.tgz"), None)
    if archive is None:
        raise SourceFailed(f"npm packed nothing for {package}")
    return archive
