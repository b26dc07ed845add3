"""What a prune removes, and what it must not."""

import asyncio
import contextlib
import hashlib
import os
import subprocess

import pytest

from fornada.core.names import VersionDigest
from fornada.core.ports import BundleFile
from fornada.node.provision.prune import prune
from tests.bounds import bound

CONTENT = b"weights"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
async def used(provisioners, version_of, steps, tmp_path):
    """A version, with its environment and artifact made by a node that has ended."""
    source = tmp_path / "weights.bin"
    source.write_bytes(CONTENT)
    first = provisioners()
    wanted = version_of(files={"model.py": b""}, artifacts=[{"path": "w.bin", "sha256": SHA256, "source": [f"file:{source}"]}])
    environment = await first.environment(wanted, steps)
    artifacts = await first.artifacts(wanted, steps)
    first.provisioned(wanted, environment, artifacts)
    await first.close()
    return wanted, environment, artifacts["w.bin"]


def there(*paths):
    return [os.path.exists(path) for path in paths]


@contextlib.contextmanager
def started_from(environment):
    process = subprocess.Popen([f"{environment}/bin/python", "-I", "-c", "print(1, flush=True); input()"], stdin=-1, stdout=-1)
    assert process.stdout and process.stdout.readline()
    try:
        yield
    finally:
        process.communicate(b"\n", timeout=bound(10))


async def test_what_a_registered_version_needs_stays(provisioners, used):
    version, environment, artifact = used
    later = provisioners()
    later.referenced = lambda: [version]
    assert (await later.prune()).removed.get("environments") is None
    assert there(environment, artifact, version.folder) == [True, True, True]


async def test_what_is_handed_out_while_a_prune_is_at_work_stays(provisioners, used, steps, monkeypatch):
    version, environment, artifact = used
    later = provisioners()
    later.referenced = tuple
    loop = asyncio.get_running_loop()
    work = prune

    async def deploy_and_start():
        await later.keep_bundle(VersionDigest("5" * 64), {"model.py": BundleFile(b"")})
        await later.environment(version, steps)
        await later.artifacts(version, steps)

    def after_others(*args, **more):
        """What is needed has been written down before all this."""
        asyncio.run_coroutine_threadsafe(deploy_and_start(), loop).result(bound(10))
        return work(*args, **more)

    monkeypatch.setattr("fornada.node.provision.provisioner.prune", after_others)
    assert (await later.prune()).removed.get("bundles") == 1  # the version's own, which nobody has asked for
    bundle = os.path.join(os.path.dirname(version.folder), "5" * 64)
    assert there(bundle, environment, artifact) == [True, True, True]


async def test_what_nobody_needs_goes(provisioners, used, tmp_path):
    version, environment, artifact = used
    later = provisioners()
    later.referenced = tuple
    removed = (await later.prune()).removed
    assert there(environment, artifact, version.folder) == [False, False, False]
    assert {kind: removed[kind] for kind in ("environments", "artifacts", "bundles", "sdk")} == dict.fromkeys(
        ("environments", "artifacts", "bundles", "sdk"), 1
    )
    data = tmp_path / "data"
    assert [os.listdir(data / name) for name in ("environments", "bundles", "sdk", "artifacts/.seals", "artifacts/named")] == [[]] * 5


async def test_without_a_catalogue_nothing_is_removed(provisioners, used):
    _, environment, artifact = used
    assert (await provisioners().prune()).removed == {}
    assert there(environment, artifact) == [True, True]


async def test_what_a_live_process_was_started_from_stays(provisioners, used):
    _, environment, _ = used
    later = provisioners()
    later.referenced = tuple
    with started_from(environment):
        await later.prune()
        assert there(environment) == [True]
    await later.prune()
    assert there(environment) == [False]


async def test_what_was_handed_out_a_moment_ago_stays(provisioner, version_of, steps):
    provisioner.referenced = tuple
    environment = await provisioner.environment(version_of(), steps)
    await provisioner.prune()
    assert there(environment) == [True]


async def test_a_prune_during_builds_disturbs_none(provisioner, version_of, steps):
    provisioner.referenced = tuple
    lock = (await provisioner.lock(version_of(python={"dependencies": ["tiny==1.0"]}).spec, {})).environment
    build = asyncio.create_task(provisioner.environment(version_of(lock=lock), steps))
    while not build.done():
        await provisioner.prune()
    assert there(await build) == [True]


async def test_the_cache_is_freed_of_what_no_environment_shares(provisioners, version_of, steps, tmp_path):
    first = provisioners()
    lock = (await first.lock(version_of(python={"dependencies": ["tiny==1.0"]}).spec, {})).environment
    wanted = version_of(lock=lock)
    environment = await first.environment(wanted, steps)
    archives = tmp_path / "data/cache/uv/archive-v0"
    later = provisioners()
    later.referenced = lambda: [wanted]
    await later.prune()
    assert len(os.listdir(archives)) == 1
    later = provisioners()
    later.referenced = tuple
    assert (await later.prune()).removed["cache"] == 1
    assert os.listdir(archives) == []
    assert await later.environment(wanted, steps) == environment
    assert there(f"{environment}/bin/python") == [True]


async def test_a_cache_that_is_shared_with_others_is_left_alone(provisioners, version_of, steps, tmp_path):
    shared = provisioners(cache_dir=str(tmp_path / "shared"))
    lock = (await shared.lock(version_of(python={"dependencies": ["tiny==1.0"]}).spec, {})).environment
    await shared.environment(version_of(lock=lock), steps)
    later = provisioners(cache_dir=str(tmp_path / "shared"))
    later.referenced = tuple
    await later.prune()
    assert len(os.listdir(tmp_path / "shared/archive-v0")) == 1
