"""A copy of Fornada that everybody on this machine can run: the checkout or its interpreter may lie in somebody's home."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import fornada
import fornada_sdk
from tests.bounds import bound

SYSTEM_PATH = "/usr/bin:/usr/local/bin"
MAIN = "import sys; del sys.argv[1]; from fornada.cli.main import main; main()"
"""Behind `python -c`, in place of the command that is named next."""


class NotPossible(Exception):
    """The message is one line."""


def installed(folder: Path) -> Path:
    """The interpreter of a new environment in `folder`, with Fornada and what it needs. Raises NotPossible."""
    python = shutil.which("python3", path=SYSTEM_PATH)
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if python is None or _version(python) != ours:
        raise NotPossible(f"no Python {ours} that everybody may run in {SYSTEM_PATH}")
    subprocess.run([python, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=bound(60))
    packages = folder / "lib" / f"python{ours}" / "site-packages"
    for name in sorted(_needed("fornada")):
        _copy(name, packages, folder / "bin")
    for module in (fornada, fornada_sdk):
        source = Path(module.__path__[0])
        shutil.copytree(source, packages / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder / "bin" / "python"


def prefix(python: Path, *, uid: int | None) -> list[str]:
    """Words before a command of `fornada`, which then runs in that environment, and as that user."""
    become = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"] if uid is not None else []
    return [*become, str(python), "-I", "-c", MAIN]


def _version(python: str) -> str:
    code = "import sys; print(*sys.version_info[:2], sep='.')"
    return subprocess.run([python, "-Ic", code], capture_output=True, text=True, timeout=bound(30)).stdout.strip()


def _needed(name: str, seen: frozenset[str] = frozenset()) -> set[str]:
    """Distributions that `name` needs, without itself and the SDK, which are copied from the checkout."""
    found: set[str] = set()
    for line in metadata.requires(name) or ():
        required = re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0]
        if "extra ==" in line or required in seen | found:
            continue
        try:
            below = _needed(required, seen | found | {required})
        except metadata.PackageNotFoundError:  # needed elsewhere only
            continue
        found |= below if required == "fornada-sdk" else below | {required}
    return found


def _copy(name: str, packages: Path, programs: Path) -> None:
    for source, path in _files(name):
        target = programs / path.name if ".." in path.parts else packages / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


def _files(name: str) -> Iterator[tuple[Path, Path]]:
    for path in metadata.distribution(name).files or ():
        source = Path(os.fspath(path.locate()))
        if source.is_file() and source.suffix != ".pyc":
            yield source, Path(path)
