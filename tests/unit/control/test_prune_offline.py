"""`fornada prune` on a data directory that no node uses."""

import asyncio
import fcntl
import os

import pytest

from fornada.app.prune import prune
from fornada.core.errors import Conflict
from fornada.core.names import LOCAL_ACCOUNT, ModelName
from tests.unit.control.conftest import Node
from tests.unit.control.packing import MODEL, pack, toml


async def make_two_and_forget_one(data, index, keeper):
    node = Node(data, index, keeper)
    versions = []
    for name, pin in (("@test/kept", "1.0"), ("@test/gone", "2.0")):
        bundle = pack({"model.toml": toml(name, f'[python]\ndependencies = ["tiny=={pin}"]'), "model.py": MODEL})
        versions.append(await node.catalog.deploy(bundle, name=None, account=LOCAL_ACCOUNT, label="stable"))
        await node.provision.environment(versions[-1], print)
    node.store.remove_model(ModelName("@test/gone"))
    await node.close()
    return versions


def test_it_removes_what_no_model_needs_and_frees_the_cache(tmp_path, index, keeper):
    data = tmp_path / "data"
    kept, gone = asyncio.run(make_two_and_forget_one(data, index, keeper))
    done = prune(data)
    assert (done["removed"]["environments"], done["removed"]["bundles"], done["removed"]["cache"]) == (1, 1, 1)
    assert done["freed_bytes"] > 0
    assert [os.path.isdir(version.folder) for version in (kept, gone)] == [True, False]
    assert len(os.listdir(data / "environments")) == 1
    assert prune(data)["removed"] == {}


def test_a_directory_in_use_is_left_alone(tmp_path, index, keeper):
    data = tmp_path / "data"
    asyncio.run(make_two_and_forget_one(data, index, keeper))
    lock = os.open(data / "run/lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        with pytest.raises(Conflict, match="in use by the node with pid"):
            prune(data)
    finally:
        os.close(lock)
    assert len(os.listdir(data / "environments")) == 2


def test_a_store_that_can_not_be_read_removes_nothing(tmp_path, index, keeper):
    data = tmp_path / "data"
    asyncio.run(make_two_and_forget_one(data, index, keeper))
    for file in data.glob("store.sqlite*"):
        file.write_bytes(b"no store" * 1000)
    with pytest.raises(Conflict, match=r"store\.sqlite"):
        prune(data)
    assert len(os.listdir(data / "environments")) == 2
