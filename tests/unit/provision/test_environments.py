"""Environments, built by uv for real from wheels of a few bytes."""

import asyncio
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from fornada.core.errors import DiskFull, InvalidSpec, LoadFailed
from fornada.core.ports import BundleFile
from fornada.core.specs import spec_from_table
from fornada.node.provision.durable import remove
from fornada.node.provision.environments import MARKER
from tests.bounds import bound, count
from tests.unit.provision.conftest import UNREACHABLE
from tests.unit.provision.wheels import make_wheel

FAST = {"UV_HTTP_RETRIES": "0"}


def spec(*dependencies, **table):
    return spec_from_table({"name": "@test/a", "python": {"dependencies": list(dependencies)}, **table})


async def locked(provisioner, *dependencies, **table):
    return (await provisioner.lock(spec(*dependencies, **table), {})).environment


def ask(environment, code):
    """What the environment's interpreter prints, started as a runner is."""
    done = subprocess.run([f"{environment}/bin/python", "-I", "-B", "-c", code], capture_output=True, text=True, timeout=bound(20), env={})
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def left_behind(data):
    return [path.name for path in (data / "environments").iterdir() if path.name.startswith(".")]


async def test_two_models_see_their_own_versions_of_one_package_on_the_first_call(provisioner, version_of, steps):
    one, two = await asyncio.gather(locked(provisioner, "tiny==1.0"), locked(provisioner, "tiny==2.0"))
    built = await asyncio.gather(*(provisioner.environment(version_of(lock=lock), steps) for lock in (one, two)))
    assert [ask(environment, "import tiny; print(tiny.VERSION)") for environment in built] == ["1.0", "2.0"]


async def test_the_nodes_own_packages_are_not_visible(provisioner, version_of, steps):
    environment = await provisioner.environment(version_of(), steps)
    assert ask(environment, "import importlib.util as u; print([n for n in ('msgspec', 'uv', 'pip', 'tiny') if u.find_spec(n)])") == "[]"
    assert ask(environment, "import sys; print(sys.prefix)") == environment


async def test_models_without_dependencies_share_an_environment_without_packages(provisioner, version_of, steps, keeper):
    assert await locked(provisioner) == ""
    first = await provisioner.environment(version_of(), steps)
    assert await provisioner.environment(version_of(name="@test/b"), steps) == first
    assert keeper.kinds() == ["environment"]  # one `uv venv`, no resolver


async def test_a_second_launch_never_asks_the_network(provisioners, version_of, steps, keeper, index):
    first = provisioners()
    lock = await locked(first, "tiny==1.0")
    environment = await first.environment(version_of(lock=lock), steps)
    keeper.asked.clear()
    for wheel in index.iterdir():
        wheel.unlink()
    again = provisioners(offline=False, find_links=[], index=UNREACHABLE)
    assert await again.environment(version_of(lock=lock), steps) == environment
    assert keeper.asked == []


async def test_an_environment_that_is_gone_is_rebuilt_from_the_cache_with_the_index_unreachable(
    provisioners, version_of, steps, keeper, index
):
    first = provisioners()
    lock = await locked(first, "tiny==1.0")
    environment = Path(await first.environment(version_of(lock=lock), steps))
    remove(environment)
    again = provisioners(offline=False, index=UNREACHABLE)
    assert await again.environment(version_of(lock=lock), steps) == str(environment)
    assert ask(environment, "import tiny; print(tiny.VERSION)") == "1.0"


async def test_a_deploy_with_the_index_gone_is_locked_from_the_cache(provisioners, web, index):
    address = web.serve_index(index)
    online = provisioners(offline=False, find_links=[], index=address, inherited=FAST)
    lock = await locked(online, "tiny==1.0")
    web.stop()
    assert await locked(provisioners(offline=False, find_links=[], index=address, inherited=FAST), "tiny==1.0") == lock


async def test_a_resolver_that_is_killed_is_not_the_authors_fault(provisioner, keeper):
    await locked(provisioner, "tiny==1.0")  # what else has to be built for it is built
    keeper.kill_next_after_s = 0.0
    with pytest.raises(LoadFailed, match=r"can't be locked now: .*signal 9"):
        await locked(provisioner, "tiny==2.0")
    keeper.kill_next_after_s = None
    assert "tiny==2.0" in await locked(provisioner, "tiny==2.0")


async def test_an_index_that_does_not_answer_is_not_the_authors_fault(provisioners):
    provisioner = provisioners(offline=False, index=UNREACHABLE, find_links=[], inherited=FAST)
    with pytest.raises(LoadFailed, match="the package index doesn't answer"):
        await locked(provisioner, "tiny==1.0")


async def test_the_index_may_be_named_by_pips_variables(provisioners, web, index):
    address = web.serve_index(index)
    provisioner = provisioners(offline=False, find_links=[], inherited={"PIP_INDEX_URL": address, **FAST})
    assert (await locked(provisioner, "tiny")).startswith("tiny==2.0 ")


async def test_builds_at_the_same_time_make_one_environment(provisioner, version_of, steps, keeper):
    lock = await locked(provisioner, "tiny==1.0")
    keeper.asked.clear()
    built = await asyncio.gather(*(provisioner.environment(version_of(lock=lock, name=f"@test/m{i}"), steps) for i in range(20)))
    assert len(set(built)) == 1
    assert keeper.kinds() == ["environment", "environment", "bytecode"]  # uv venv, uv pip sync, compileall
    assert {step.phase for step in steps} == {"building"}


async def test_two_nodes_building_the_same_key_agree(provisioners, version_of, steps, tmp_path):
    one, two = provisioners(), provisioners()
    lock = await locked(one, "tiny==1.0")
    built = await asyncio.gather(one.environment(version_of(lock=lock), steps), two.environment(version_of(lock=lock), steps))
    assert len(set(built)) == 1
    assert left_behind(tmp_path / "data") == []


async def test_a_build_killed_at_any_moment_leaves_nothing_that_looks_finished(provisioner, version_of, steps, keeper, tmp_path):
    lock = await locked(provisioner, "tiny==1.0")
    chance = random.Random(8250)
    for _ in range(count(6, long=40)):
        keeper.kill_next_after_s = chance.uniform(0.0, 0.12)
        try:
            await provisioner.environment(version_of(lock=lock), steps)
        except LoadFailed:
            assert list(tmp_path.glob("data/environments/[!.]*")) == []
        else:
            remove(tmp_path / "data/environments")
    keeper.kill_next_after_s = None
    environment = await provisioner.environment(version_of(lock=lock), steps)
    assert ask(environment, "import tiny; print(tiny.VERSION)") == "1.0"
    assert left_behind(tmp_path / "data") == []


async def test_what_a_killed_node_left_half_built_is_removed_at_the_next_start(provisioners, version_of, steps, tmp_path):
    root = tmp_path / "data/environments"
    half = root / f".tmp-{'a' * 40}-0123abcd"
    (half / "lib").mkdir(parents=True)
    (root / f"{half.name}.txt").write_text("tiny==1.0\n")
    (root / ".trash-0011223344556677").mkdir()
    provisioner = provisioners()
    await provisioner.start()
    await provisioner.close()
    assert list(root.iterdir()) == []


async def test_builds_of_a_predecessor_are_ended(provisioner, keeper):
    keeper.adopted_builds = ["environment-01234567"]
    await provisioner.start()
    assert keeper.ended == ["environment-01234567"]


async def test_a_folder_without_its_marker_is_discarded_and_built_again(provisioner, version_of, steps):
    environment = Path(await provisioner.environment(version_of(), steps))
    os.chmod(environment, 0o700)
    (environment / MARKER).unlink()
    (environment / "half").mkdir()
    assert await provisioner.environment(version_of(), steps) == str(environment)
    assert not (environment / "half").exists()
    assert json.loads((environment / MARKER).read_bytes())["key"] == environment.name


async def test_who_leaves_does_not_end_a_build_that_others_wait_for_and_the_last_one_does(provisioner, version_of, steps, tmp_path):
    lock = await locked(provisioner, "tiny==1.0")
    callers = [asyncio.create_task(provisioner.environment(version_of(lock=lock), steps)) for _ in range(2)]
    while not steps:
        await asyncio.sleep(0)
    callers[0].cancel()
    assert ask(await callers[1], "import tiny; print(tiny.VERSION)") == "1.0"
    lock = await locked(provisioner, "tiny==2.0")
    steps.clear()
    alone = asyncio.create_task(provisioner.environment(version_of(lock=lock), steps))
    while not steps:
        await asyncio.sleep(0)
    alone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await alone
    await provisioner.close()
    assert len(list((tmp_path / "data/environments").iterdir())) == 1


async def test_a_wheel_that_is_not_the_one_that_was_locked_is_refused(provisioner, provisioners, version_of, steps, index, tmp_path):
    lock = await locked(provisioner, "tiny==1.0")
    make_wheel(index, "tiny", "1.0", {"tiny/__init__.py": b"VERSION = 'somebody else'\n"})
    elsewhere = provisioners(data_dir=tmp_path / "another node")
    with pytest.raises(LoadFailed, match=r"(?i)hash"):
        await elsewhere.environment(version_of(lock=lock), steps)
    assert left_behind(tmp_path / "another node") == []


async def test_a_source_distribution_is_refused(provisioner, index):
    (index / "sourceonly-1.0.tar.gz").write_bytes(b"")
    with pytest.raises(InvalidSpec, match="sourceonly"):
        await locked(provisioner, "sourceonly==1.0")


async def test_what_can_not_be_resolved_is_told_in_one_line(provisioner):
    with pytest.raises(InvalidSpec, match=r"tiny==3\.0") as refusal:
        await locked(provisioner, "tiny==3.0")
    assert "\n" not in refusal.value.message


async def test_dependencies_of_dependencies_are_locked(provisioner, index, version_of, steps):
    make_wheel(index, "upper", "1.0", requires=["tiny<2"])
    lock = await locked(provisioner, "upper")
    assert [line.split(" ")[0] for line in lock.splitlines()] == ["tiny==1.0", "upper==1.0"]
    environment = await provisioner.environment(version_of(lock=lock), steps)
    assert ask(environment, "import tiny, upper; print(tiny.VERSION)") == "1.0"


async def test_a_ready_lock_is_taken_as_it_is_where_it_holds_what_is_asked_for(provisioner, keeper):
    lock = await locked(provisioner, "tiny==1.0")
    keeper.asked.clear()
    files = {"requirements.lock": BundleFile(lock.encode())}
    assert (await provisioner.lock(spec("tiny==1.0"), files)).environment == lock
    assert provisioner.ready_lock(spec("tiny"), files) == lock
    assert keeper.asked == []
    assert "tiny==2.0" in (await provisioner.lock(spec("tiny==2.0"), files)).environment
    with pytest.raises(InvalidSpec, match="doesn't hold"):
        provisioner.ready_lock(spec("tiny==2.0"), files)
    with pytest.raises(InvalidSpec, match=r"no requirements\.lock"):
        provisioner.ready_lock(spec("tiny==2.0"), {})
    assert provisioner.ready_lock(spec(), {}) == ""


async def test_the_dependencies_of_a_convert_script_are_locked_beside_it(provisioner):
    artifact = {"path": "model", "sha256": "a" * 64, "convert": {"script": "convert.py", "dependencies": ["tiny==2.0"]}}
    locks = await provisioner.lock(spec(artifacts=[artifact]), {})
    assert list(locks.converts) == ["convert.py.lock"]
    assert locks.converts["convert.py.lock"].startswith("tiny==2.0 --hash=sha256:")
    ready = {"convert.py.lock": BundleFile(locks.converts["convert.py.lock"].encode())}
    assert (await provisioner.lock(spec(artifacts=[artifact]), ready)).converts == {}


async def test_an_interpreter_that_is_not_there_is_refused_naming_those_that_are(provisioner):
    own = ".".join(map(str, sys.version_info[:2]))
    with pytest.raises(InvalidSpec, match=rf"\"3\.99\" isn't on this machine; there are .*{own}"):
        await provisioner.lock(spec(python={"version": "3.99"}), {})


async def test_requires_python_of_a_script_header_is_heard(provisioner):
    files = {"model.py": BundleFile(b'# /// script\n# requires-python = ">=3.99"\n# ///\n')}
    with pytest.raises(InvalidSpec, match=r"requires-python '>=3\.99'"):
        await provisioner.lock(spec_from_table({"name": "@test/a", "python": {"entry": "model.py"}}), files)


async def test_what_is_installed_is_compiled_and_read_only(provisioner, version_of, steps):
    lock = await locked(provisioner, "tiny==1.0")
    environment = Path(await provisioner.environment(version_of(lock=lock), steps))
    compiled = ask(environment, "import tiny; print(tiny.__cached__)")
    assert ask(environment, f"print(open({compiled!r}, 'rb').read()[4])") == "1"  # hash-based, unchecked (PEP 552)
    assert os.stat(os.path.dirname(compiled)).st_mode & 0o222 == 0


async def test_a_build_on_a_full_disk_names_it_and_leaves_nothing(provisioners, version_of, steps, index, small_disk):
    make_wheel(index, "large", "1.0", {"large/data.bin": os.urandom(30_000_000)})
    lock = await locked(provisioners(), "large==1.0")
    elsewhere = provisioners(data_dir=small_disk / "data")
    with pytest.raises(DiskFull, match=str(small_disk / "data")):
        await elsewhere.environment(version_of(lock=lock), steps)
    assert left_behind(small_disk / "data") == []


async def test_a_budget_refuses_a_build_with_the_numbers(provisioners, version_of, steps, tmp_path):
    provisioner = provisioners(disk_budget="10kB")
    (tmp_path / "data/artifacts" / ("a" * 64)).write_bytes(b"x" * 20000)
    provisioner.referenced = lambda: [version_of(artifacts=[{"path": "x", "sha256": "a" * 64}])]
    with pytest.raises(DiskFull, match=r"data holds .* of its budget of 9\.8 KiB"):
        await provisioner.environment(version_of(), steps)
    assert left_behind(tmp_path / "data") == []


async def test_room_is_made_by_removing_what_nothing_refers_to(provisioners, version_of, steps, tmp_path):
    provisioner = provisioners(disk_budget="2MB")
    stray = tmp_path / "data/artifacts" / ("a" * 64)
    stray.write_bytes(b"x" * 3_000_000)
    provisioner.referenced = tuple
    await provisioner.environment(version_of(), steps)
    assert not stray.exists()
