"""The Pythons of this machine: which one a model's environment is made with."""

import asyncio
import contextlib
import glob
import json
import os
import platform
import re
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fornada.core.errors import InvalidSpec
from fornada.node.provision.builds import BuildFailed, Builds
from fornada.node.provision.sandboxes import of_reader

OLDEST = (3, 9)
"""What fornada_sdk runs on."""
DESCRIBE = (
    "import json, platform, sys, sysconfig; print(json.dumps(["
    "platform.python_version(), sys.implementation.name + ' ' + sys.version + ' ' + str(sysconfig.get_config_var('SOABI')),"
    "platform.machine(), ' '.join(platform.libc_ver())]))"
)
DESCRIBE_S = 20.0
MOST_ASKED = 24
_NAMED = re.compile(r"(?:python|cpython-)?(3\.\d+)(?:\.\d+)?(?:[-+].*)?\Z")


class Interpreter(NamedTuple):
    """One Python, as far as it decides what an environment is."""

    path: str
    version: str
    """"3.11.7"."""
    build: str
    machine: str
    libc: str


class Interpreters:
    """Finds interpreters. The node's own costs nothing; each other one is asked once."""

    def __init__(self, builds: Builds, *, search_path: str, home: str, uv_pythons: str = "", pyenv: str = "") -> None:
        """`search_path` is a PATH; `home`, `uv_pythons` and `pyenv` are where uv and pyenv install interpreters (empty: their defaults)."""
        self._builds = builds
        self._search_path = search_path
        self._installed = [
            f"{pyenv or f'{home}/.pyenv'}/versions/*",
            f"{uv_pythons or f'{home}/.local/share/uv/python'}/cpython-*",
        ]
        self.own = own_interpreter()
        self._known: dict[tuple[str, int, int], Interpreter | None] = {}
        self._asking = asyncio.Lock()

    def at_once(self, version: str) -> Interpreter | None:
        """The interpreter for `[python] version` where nobody must be asked."""
        return self.own if not version or _matches(version, self.own.version) else None

    async def find(self, version: str) -> Interpreter:
        """The interpreter for `[python] version` ("3.11", "3.11.7", empty: the node's). Raises InvalidSpec naming what is there."""
        own = self.at_once(version)
        if own:
            return own
        async with self._asking:
            minor = ".".join(version.split(".")[:2])
            found = [one for path in self._candidates(minor) if (one := await self._describe(path)) and _matches(version, one.version)]
        usable = [one for one in found if _numbers(one.version) >= OLDEST]
        if usable:
            return max(usable, key=lambda one: _numbers(one.version))
        if found:
            raise InvalidSpec(f'[python] version = "{version}": a model runs on Python {OLDEST[0]}.{OLDEST[1]} or newer')
        there = ", ".join(await self.there())
        raise InvalidSpec(f'[python] version = "{version}" isn\'t on this machine; there are {there}')

    async def there(self) -> list[str]:
        """Versions that a model may ask for, sorted."""
        async with self._asking:
            found = [await self._describe(path) for path in self._candidates("")]
        versions = {self.own.version, *(one.version for one in found if one and _numbers(one.version) >= OLDEST)}
        return sorted(versions, key=_numbers)

    def _candidates(self, minor: str) -> list[str]:
        """Distinct executables whose name or folder says `minor` ("3.12"; empty: any)."""
        seen: dict[str, str] = {}
        for path in self._places(minor):
            with contextlib.suppress(OSError):
                if os.access(path, os.X_OK) and os.path.isfile(path):
                    seen.setdefault(os.path.realpath(path), path)
        return [path for real, path in seen.items() if real != os.path.realpath(self.own.path)][:MOST_ASKED]

    def _places(self, minor: str) -> Iterator[str]:
        for folder in self._search_path.split(os.pathsep):
            # pyenv's shims are scripts that answer for whatever version happens to be chosen.
            if not os.path.isabs(folder) or folder.endswith("/shims"):
                continue
            names = [f"python{minor}"] if minor else sorted(map(os.path.basename, glob.glob(f"{glob.escape(folder)}/python3*")))
            yield from (os.path.join(folder, name) for name in names if re.fullmatch(r"python3\.\d+", name))
        for pattern in self._installed:
            for folder in sorted(glob.glob(pattern)):
                named = _NAMED.match(os.path.basename(folder))
                if named and minor in ("", named[1]):
                    yield os.path.join(folder, "bin", f"python{named[1]}")

    async def _describe(self, path: str) -> Interpreter | None:
        with contextlib.suppress(OSError):
            status = os.stat(path)
            key = (path, status.st_mtime_ns, status.st_ino)
            if key not in self._known:
                self._known[key] = await self._ask(path)
            return self._known[key]
        return None

    async def _ask(self, path: str) -> Interpreter | None:
        try:
            output = await self._builds.run(
                "python", [path, "-I", "-S", "-c", DESCRIBE], env={}, cwd=Path("/"), sandbox=of_reader(path), longest_s=DESCRIBE_S
            )
            version, build, machine, libc = map(str, json.loads(output.strip().splitlines()[-1]))
        except (BuildFailed, ValueError, IndexError):
            return None
        return Interpreter(path, version, build, machine, libc)


def own_interpreter() -> Interpreter:
    """What the node itself runs on: the interpreter behind its virtual environment."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    path = os.path.join(sys.base_prefix, "bin", name)
    if not os.access(path, os.X_OK):
        path = os.path.realpath(sys.executable)
    build = f"{sys.implementation.name} {sys.version} {sysconfig.get_config_var('SOABI')}"
    return Interpreter(path, platform.python_version(), build, platform.machine(), " ".join(platform.libc_ver()))


def _matches(wanted: str, version: str) -> bool:
    return version == wanted or version.startswith(f"{wanted}.")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
