"""A provisioner over an empty data directory, and an index that is a folder of wheels."""

import hashlib
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from fornada.core.names import LOCAL_ACCOUNT, ModelName, VersionDigest
from fornada.core.ports import BundleFile, Step, Version
from fornada.core.settings import ProvisionSettings
from fornada.core.specs import spec_from_table
from fornada.node.provision import Provisioner
from fornada.store.sqlite import SqliteStore
from tests.unit.provision.direct_builds import DirectBuilds
from tests.unit.provision.web import Web
from tests.unit.provision.wheels import make_wheel

UNREACHABLE = "http://127.0.0.1:9/simple"
"""Nothing listens on the discard port."""


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """A folder with tiny 1.0 and tiny 2.0."""
    folder = tmp_path / "index"
    make_wheel(folder, "tiny", "1.0")
    make_wheel(folder, "tiny", "2.0")
    return folder


@pytest.fixture
def keeper() -> DirectBuilds:
    return DirectBuilds()


@pytest.fixture
def proofs(tmp_path: Path) -> Iterator[SqliteStore]:
    """Who has brought what: the store of all provisioners of a test."""
    store = SqliteStore(tmp_path / "store.sqlite")
    yield store
    store.close()


@pytest.fixture
async def provisioners(
    tmp_path: Path, index: Path, keeper: DirectBuilds, proofs: SqliteStore, request: pytest.FixtureRequest
) -> AsyncIterator[Callable[..., Provisioner]]:
    """Makes provisioners over tmp_path/data; offline, with that index and allowed to ask the test's web server unless told otherwise."""
    made = []
    served = [urlsplit(request.getfixturevalue("web").url).netloc] if "web" in request.fixturenames else []

    def make(
        *,
        data_dir: Path | None = None,
        inherited: Mapping[str, str] | None = None,
        disk_budget: str = "",
        allow_private: Sequence[str] = tuple(served),
        **settings: Any,
    ) -> Provisioner:
        chosen = ProvisionSettings(**{"find_links": [str(index)], "offline": True, **settings})
        folder = data_dir or tmp_path / "data"
        provisioner = Provisioner(
            data_dir=folder,
            keeper=keeper,
            settings=chosen,
            proofs=proofs,
            allow_private=allow_private,
            inherited=inherited or {},
            disk_budget=disk_budget,
        )
        made.append(provisioner)
        return provisioner

    yield make
    for provisioner in made:
        await provisioner.close()


@pytest.fixture
def provisioner(provisioners: Callable[..., Provisioner]) -> Provisioner:
    return provisioners()


@pytest.fixture
def web() -> Iterator[Web]:
    server = Web()
    yield server
    server.stop()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("a small file system can't be mounted here (needs root)")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


class Steps(list[Step]):
    """A progress sink that remembers."""

    def __call__(self, step: Step, /) -> None:
        self.append(step)

    @property
    def texts(self) -> list[str]:
        return [step.text for step in self]


@pytest.fixture
def steps() -> Steps:
    return Steps()


@pytest.fixture
def version_of(tmp_path: Path) -> Callable[..., Version]:
    """A version from model.toml's table, its lock and its files."""

    def make(*, lock: str = "", files: Mapping[str, bytes] | None = None, **table: Any) -> Version:
        spec = spec_from_table({"name": "@test/a", **table})
        content = {path: BundleFile(data) for path, data in (files or {}).items()}
        digest = hashlib.sha256(repr((sorted(table.items()), lock, sorted(content.items()))).encode()).hexdigest()
        folder = tmp_path / "data" / "bundles" / digest
        for path, file in content.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(file.data)
        return Version(ModelName(spec.name), VersionDigest(digest), LOCAL_ACCOUNT, spec, str(folder), lock, 0.0)

    return make
