"""What a runner gets of ours: fornada_sdk, copied into a folder named by its content.

A runner that outlives an upgrade goes on with the copy it was started from.
"""

import contextlib
import hashlib
import importlib.util
import os
import py_compile
from pathlib import Path

from fornada.node.provision.durable import (
    FILE_MODE,
    discard,
    disk_errors,
    freeze,
    remove,
    sync_folder,
    temporary_name,
)

PACKAGE = "fornada_sdk"
KEY_LENGTH = 16


def package_folder() -> Path:
    """Where the package lies that this node runs with."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError(f"{PACKAGE} isn't installed")
    return Path(next(iter(found.submodule_search_locations)))


def sdk_key(package: Path) -> str:
    """Name of the copy: sha256 over paths and contents."""
    digest = hashlib.sha256()
    for relative in _sources(package):
        content = (package / relative).read_bytes()
        digest.update(f"{relative}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:KEY_LENGTH]


def ensure_sdk(root: Path, package: Path) -> Path:
    """The folder to put on a runner's sys.path, made where it isn't there. Raises DiskFull."""
    path = root / sdk_key(package)
    with disk_errors(root):
        if path.is_dir():
            # The copy is written without fsync: what a power loss left of it is told by its name.
            if sdk_key(path / PACKAGE) == path.name:
                return path
            discard(path)
        root.mkdir(parents=True, exist_ok=True)
        temporary = root / temporary_name(path.name)
        try:
            _copy(package, temporary / PACKAGE)
            freeze(temporary)
            with contextlib.suppress(OSError):  # another control plane was first
                os.rename(temporary, path)
            sync_folder(root)
        finally:
            remove(temporary)
    return path


def _copy(package: Path, target: Path) -> None:
    for relative in _sources(package):
        copy = target / relative
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((package / relative).read_bytes())
        if relative.endswith(".py"):
            # For the node's own Python: a runner writes no bytecode, and would compile all of it at each start.
            with contextlib.suppress(py_compile.PyCompileError):
                py_compile.compile(str(copy), doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
        copy.chmod(FILE_MODE)


def _sources(package: Path) -> list[str]:
    return sorted(
        str(path.relative_to(package))
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.relative_to(package).parts
    )
