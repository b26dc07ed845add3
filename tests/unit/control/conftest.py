"""A catalogue over a real store and a real provisioner, in an empty data directory."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from fornada.control.catalog import Catalog
from fornada.core.settings import ProvisionSettings
from fornada.node.provision import Provisioner
from fornada.store.sqlite import SqliteStore
from tests.unit.provision.direct_builds import DirectBuilds
from tests.unit.provision.wheels import make_wheel


class Node:
    """The parts behind one catalogue."""

    def __init__(self, data_dir: Path, index: Path, keeper: DirectBuilds, **more: Any) -> None:
        data_dir.mkdir(parents=True, exist_ok=True)
        self.data_dir = data_dir
        self.changed: list[str] = []
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.store = SqliteStore(data_dir / "store.sqlite")
        settings = ProvisionSettings(find_links=[str(index)], offline=True)
        budget = more.pop("disk_budget", "")
        self.provision = Provisioner(data_dir=data_dir, keeper=keeper, settings=settings, proofs=self.store, disk_budget=budget)
        self.catalog = Catalog(store=self.store, provision=self.provision, changed=self.changed.append, log=self, **more)

    def info(self, event: str, /, **fields: Any) -> None:
        self.events.append((event, fields))

    warning = info

    async def close(self) -> None:
        await self.provision.close()
        self.store.close()


@pytest.fixture
def index(tmp_path: Path) -> Path:
    make_wheel(tmp_path / "index", "tiny", "1.0")
    make_wheel(tmp_path / "index", "tiny", "2.0")
    return tmp_path / "index"


@pytest.fixture
def keeper() -> DirectBuilds:
    return DirectBuilds()


@pytest.fixture
async def nodes(tmp_path: Path, index: Path, keeper: DirectBuilds) -> AsyncIterator[Callable[..., Node]]:
    """Starts a node on the one data directory, as often as it is asked."""
    made = []

    def make(**more: Any) -> Node:
        made.append(Node(tmp_path / "data", index, keeper, **more))
        return made[-1]

    yield make
    for node in made:
        await node.close()


@pytest.fixture
def node(nodes: Callable[..., Node]) -> Node:
    return nodes()


@pytest.fixture
def catalog(node: Node) -> Catalog:
    return node.catalog
