"""What each kind of build may see and use. Only tools that we or the operator ship reach a network, and they run no code of packages."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from fornada.core.ports import Access, Network, Sandbox

_SEPARATORS = ",;: \n"
"""Of lists in variables, as uv and the system read them."""
_TEMPORARY_BYTES = 1024**3
CACHES = ("UV_CACHE_DIR", "npm_config_cache")
"""The operator may share them with other programs of his."""


def of_tool(env: Mapping[str, str], *, data_dir: Path, programs: Iterable[str], python: str = "") -> Sandbox:
    """uv and npm: the data directory and the caches, the programs' own folders, what the variables name, and the network."""
    write = dict.fromkeys([str(data_dir), *(env[name] for name in CACHES if name in env)])
    read = [path for path in (*programs, *_named(env)) if not any(_below(path, folder) for folder in write)]
    return Sandbox(
        files=[*((path, Access.READ) for path in read), *((path, Access.WRITE) for path in write)],
        python=python,
        network=Network.HOST,
        temporary_bytes=_TEMPORARY_BYTES,
        own_uid=False,
    )


def of_reader(python: str) -> Sandbox:
    """An interpreter that is asked about itself."""
    return Sandbox(python=python)


def of_compiler(environment: Path, python: str) -> Sandbox:
    """The writer of bytecode, which only reads what it compiles."""
    return Sandbox(files=[(str(environment), Access.WRITE)], python=python, own_uid=False)


def of_script(*, python: str, read: Iterable[Path], write: Iterable[Path]) -> Sandbox:
    """A deployer's own script with its packages: what it is given, and where its result goes."""
    files = [*((str(path), Access.READ) for path in read), *((str(path), Access.WRITE) for path in write)]
    return Sandbox(files=files, python=python, temporary_bytes=_TEMPORARY_BYTES)


def _named(env: Mapping[str, str]) -> list[str]:
    """Files and folders that the variables hand to the tool: certificates, netrc, folders of wheels."""
    found: dict[str, None] = {}
    for name, value in env.items():
        if name in ("PATH", "HOME"):
            continue
        text = value.replace("file://", "")
        for separator in _SEPARATORS:
            text = text.replace(separator, "\0")
        for word in (value, *text.split("\0")):
            path = os.path.normpath(word) if word.startswith("/") and "\0" not in word else ""
            if path not in ("", "/") and os.path.exists(path):
                found[path] = None
    return list(found)


def _below(path: str, folder: str) -> bool:
    return path == str(folder) or path.startswith(f"{folder}/")
