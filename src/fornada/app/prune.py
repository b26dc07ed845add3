"""`fornada prune` without a node: the same prune, under the data directory's lock."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

import fornada
from fornada.app.data_directory import STORE, DataDirectoryRefused, locked
from fornada.app.owner import as_its_owner
from fornada.control.catalog import Catalog
from fornada.core.errors import Conflict
from fornada.core.ports import Pruned
from fornada.core.settings import ProvisionSettings
from fornada.node.provision import Provisioner
from fornada.node.provision.interpreters import own_interpreter
from fornada.node.whole_path import whole_path
from fornada.store.sqlite import SqliteStore, StoreUnusable


def prune(folder: Path) -> Mapping[str, Any]:
    """Removes from the data directory what no registered model needs: {"removed": {kind: count}, "freed_bytes"}.

    Raises Conflict where a node uses the directory or its store can't be opened: without the store nothing is known to be superfluous.
    """
    folder = whole_path(folder)
    own_interpreter()  # read now: another user may not see a Python that lies in root's home
    try:
        with as_its_owner(folder), locked(folder):
            done: Mapping[str, Any] = msgspec.to_builtins(asyncio.run(_prune(folder)))
            return done
    except (DataDirectoryRefused, StoreUnusable) as refusal:
        raise Conflict(str(refusal)) from None


async def _prune(folder: Path) -> Pruned:
    store = SqliteStore(folder / STORE)
    try:
        provision = Provisioner(data_dir=folder, keeper=None, settings=ProvisionSettings(), proofs=store)
        catalog = Catalog(store=store, provision=provision, builtin=Path(fornada.__file__).parent / "models")
        return await catalog.prune()
    finally:
        store.close()
