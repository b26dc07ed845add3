"""Conversions: a script of the model's, run once."""

import asyncio
import hashlib
import os
import random
from pathlib import Path

import pytest

from fornada.core.errors import LoadFailed
from tests.bounds import count

CONTENT = b"what was fetched"
SHA256 = hashlib.sha256(CONTENT).hexdigest()
SCRIPT = """
import os, pathlib, sys
source, target = map(pathlib.Path, sys.argv[1:])
assert not target.exists() and target.parent.is_dir()
assert os.getcwd() == os.environ["HOME"] == os.environ["TMPDIR"], "a scratch folder of its own"
assert not any(name.startswith(("UV_", "PIP_", "FORNADA_")) or name.lower().endswith("_proxy") for name in os.environ)
print("converting", file=sys.stderr)
target.mkdir()
(target / "saved").mkdir()
(target / "saved" / "upper").write_bytes(source.read_bytes().upper())
"""
TO_A_FILE = "import sys, shutil; shutil.copy(sys.argv[1], sys.argv[2])"
SLOW = "import sys, time, shutil; shutil.copy(sys.argv[1], sys.argv[2]); time.sleep(0.5)"


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "fetched.pth"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def version(version_of, source):
    def make(script=SCRIPT, *, path="weights/model", dependencies=(), files=None, **more):
        convert = {"script": "tools/convert.py", "dependencies": list(dependencies)}
        artifact = {"path": path, "sha256": SHA256, "source": [f"file:{source}"], "convert": convert}
        return version_of(artifacts=[artifact], files={"tools/convert.py": script.encode(), **(files or {})}, **more)

    return make


async def converted(provisioner, version, progress):
    ((_, place),) = (await provisioner.artifacts(version, progress)).items()
    return Path(place)


def read(path):
    return path.read_bytes()


async def test_a_script_turns_what_was_fetched_into_what_the_engine_loads_once(provisioner, version, steps, keeper):
    place = await converted(provisioner, version(), steps)
    assert (place.name, read(place / "saved/upper")) == ("model", CONTENT.upper())
    assert keeper.kinds() == ["environment", "convert"]
    assert await converted(provisioner, version(), steps) == place
    assert keeper.kinds().count("convert") == 1
    assert {step.phase for step in steps} == {"fetching", "building"}


async def test_a_script_may_take_half_of_the_memory_and_so_many_processes(provisioner, version, steps, keeper):
    """It is a stranger's, and runs for an hour if it likes."""
    await converted(provisioner, version(), steps)
    (limits,) = [asked.limits for asked in keeper.asked if asked.build.startswith("convert-")]
    assert limits.processes == 256
    assert limits.memory_bytes == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


async def test_the_result_keeps_the_artifacts_name_because_engines_look_at_endings(provisioner, version, steps):
    place = await converted(provisioner, version(TO_A_FILE, path="deep/model.keras"), steps)
    assert (place.name, read(place)) == ("model.keras", CONTENT)


async def test_the_script_sees_the_packages_that_it_names(provisioner, version, steps):
    script = "import sys, tiny; open(sys.argv[2], 'w').write(tiny.VERSION)"
    wanted = version(script, dependencies=["tiny==1.0"])
    locks = await provisioner.lock(wanted.spec, {})
    place = await converted(
        provisioner,
        version(script, dependencies=["tiny==1.0"], files={"tools/convert.py.lock": locks.converts["tools/convert.py.lock"].encode()}),
        steps,
    )
    assert read(place) == b"1.0"


async def test_dependencies_without_a_lock_are_refused(provisioner, version, steps):
    with pytest.raises(LoadFailed, match="no lock beside it"):
        await provisioner.artifacts(version(dependencies=["tiny==1.0"]), steps)


async def test_another_script_or_input_or_lock_is_another_result(provisioner, version, steps):
    one = await converted(provisioner, version(TO_A_FILE), steps)
    two = await converted(provisioner, version(TO_A_FILE + "\n"), steps)
    assert one != two


@pytest.mark.parametrize("damage", ["truncated", "zeroed", "removed", "something more"])
async def test_a_damaged_result_is_made_again(damage, provisioner, version, steps, keeper):
    place = await converted(provisioner, version(), steps)
    file = place / "saved/upper"
    os.chmod(file.parent, 0o700)
    match damage:
        case "truncated":
            os.truncate(file, 3)
        case "zeroed":
            file.write_bytes(b"\0" * len(CONTENT))
        case "removed":
            os.unlink(file)
        case "something more":
            (file.parent / "more").touch()
    again = await converted(provisioner, version(), steps)
    assert read(again / "saved/upper") == CONTENT.upper()
    assert os.listdir(again / "saved") == ["upper"]
    assert keeper.kinds().count("convert") == 2


async def test_what_was_fetched_is_not_needed_once_it_is_converted(provisioner, version, steps, source, tmp_path):
    wanted = version()
    await converted(provisioner, wanted, steps)
    os.unlink(source)
    os.unlink(tmp_path / "data/artifacts" / SHA256)
    await converted(provisioner, wanted, steps)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("raise SystemExit('the weights are of another kind')", "the weights are of another kind"),
        ("raise ValueError('bad')", "ValueError: bad"),
        ("pass", "wrote no model"),
        ("import os; os.kill(os.getpid(), 9)", "signal 9"),
        ("import sys, os; os.symlink('/etc', sys.argv[2])", "symbolic link"),
        ("import sys, os; os.mkdir(sys.argv[2]); os.symlink('/etc/passwd', sys.argv[2] + '/x')", "symbolic link"),
        ("import sys, os; os.mkfifo(sys.argv[2])", "neither a file nor a folder"),
    ],
)
async def test_a_script_that_fails_is_told_in_one_line_and_leaves_nothing(script, reason, provisioner, version, steps, tmp_path):
    with pytest.raises(LoadFailed, match=reason) as failure:
        await provisioner.artifacts(version(script), steps)
    assert "\n" not in failure.value.message
    assert os.listdir(tmp_path / "data/artifacts/converted") == []


async def test_many_at_once_convert_once(provisioner, version, steps, keeper):
    places = await asyncio.gather(*(converted(provisioner, version(name=f"@test/m{number}"), steps) for number in range(10)))
    assert len(set(places)) == 1
    assert keeper.kinds().count("convert") == 1


async def test_a_conversion_killed_at_any_moment_leaves_no_half_result(provisioner, version, steps, keeper, tmp_path):
    wanted = version(SLOW, path="m.bin")
    await provisioner.environment(wanted, steps)
    chance = random.Random(37)
    for _ in range(count(5, long=40)):
        keeper.kill_next_after_s = chance.uniform(0.0, 0.15)
        with pytest.raises(LoadFailed):
            await provisioner.artifacts(wanted, steps)
        assert os.listdir(tmp_path / "data/artifacts/converted") == []
        await provisioner.prune()
    keeper.kill_next_after_s = None
    assert read(await converted(provisioner, wanted, steps)) == CONTENT
