"""A node that an ordinary user runs, and root's own where there are no namespaces: from the deploy to the end."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fornada.keeper.levels import Level
from tests.bounds import bound, count
from tests.harness.elsewhere import NotPossible, installed, prefix
from tests.harness.node import Node, node_environ
from tests.harness.processes import all_gone, kill, seen
from tests.harness.throwaway import STRANGER
from tests.harness.waiting import until
from tests.harness.walls import at_rest, no_more_open, tops, uid

CONFIG = '[node]\ndrain_s = 5\nkill_s = 2\n[provision]\ncache_dir = ""\n'
MODEL = "@test/echo"
FIRST_UID = 200_000
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else; every other test runs as you"),
    pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is missing"),
]


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="fornada-everybody-", dir="/var/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def python(place: Path) -> Path:
    try:
        return installed(place / "env")
    except NotPossible as error:
        pytest.skip(str(error))


@pytest.fixture
def directory(place: Path) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="node-", dir=place))
    folder.chmod(0o755)
    return folder


def begun(directory: Path, python: Path, *, level: Level, user: int | None) -> Node:
    node = Node(directory, config=CONFIG, flags=["--isolation", level], environ={"HOME": str(directory)}, prefix=prefix(python, uid=user))
    if user is not None:
        os.chown(directory, user, user)
    node.spawn()
    try:
        until(lambda: node.process.poll() is not None or (node.data_dir / "run/node.json").exists(), within_s=20, what="it begins")
        if node.process.poll() is not None and "can't be had on this machine" in node.said():
            pytest.skip(node.said())
        node.wait_ready()
    except BaseException:
        node.destroy()
        raise
    return node


@pytest.mark.parametrize(
    ("user", "level"),
    [
        pytest.param(STRANGER, Level.NAMESPACES, id="user-namespaces"),
        pytest.param(STRANGER, Level.LANDLOCK, id="user-landlock"),
        pytest.param(None, Level.LANDLOCK, id="root-landlock"),
    ],
)
def test_a_model_is_deployed_answers_is_killed_and_leaves_nothing(directory: Path, python: Path, user: int | None, level: Level):
    node = begun(directory, python, level=level, user=user)
    try:
        assert {uid(process.pid) for process in node.tree()} == {user or 0}
        node.deploy_probe(MODEL)
        first = node.ask(MODEL, {"echo": "first", "fork_child": True})
        assert first["echo"] == "first"
        (pid,) = node.pids(MODEL)
        assert uid(pid) == user if user is not None else uid(pid) >= FIRST_UID
        runner = seen(pid)
        kill(pid)
        all_gone([runner], within_s=2, what="the killed runner")
        until(lambda: pid not in node.pids(MODEL), within_s=2, what="the node has heard of it")
        again = node.ask(MODEL, {"echo": "again"})
        assert again["echo"] == "again" and again["instance"] != first["instance"]

        node.unload(MODEL)
        before = at_rest(node.data_dir, node.keeper_pid, node.control_pid)
        for number in range(count(5, long=100)):
            assert node.ask(MODEL, {"echo": number})["echo"] == number
            if number % 2:
                kill(node.pids(MODEL)[0])
                until(lambda: not node.pids(MODEL), within_s=2, what="the node has heard of it")
            node.unload(MODEL)
        after = at_rest(node.data_dir, node.keeper_pid, node.control_pid)
        no_more_open(before, node.keeper_pid, node.control_pid)
        assert after.mounts <= before.mounts
        assert (len(after.groups), len(after.views), after.scratch) == (len(before.groups), len(before.views), before.scratch)

        old = node.control_pid
        node.load(MODEL)
        (pid,) = node.pids(MODEL)
        kill(old)
        node.wait_next_control_plane(after_pid=old)
        assert node.ask(MODEL, {"echo": "still"})["echo"] == "still" and node.pids(MODEL) == [pid]
        tree = node.tree()
        kill(node.keeper_pid)
        all_gone(tree, within_s=1, what="what lived below the killed keeper")
        assert node.wait(within_s=5) == 1
    finally:
        node.destroy()
    node.nothing_left()
    assert not tops(node.data_dir)


@pytest.mark.parametrize("user", [STRANGER, None], ids=["user", "root"])
def test_another_installation_takes_over_from_one(directory: Path, python: Path, place: Path, user: int | None):
    newer = place / "newer"
    if not newer.exists():
        init = next(installed(newer).parents[1].glob("lib/*/site-packages/fornada/__init__.py"))
        text, line = init.read_text(), '__version__ = "'
        assert text.count(line) == 1, f"no release to change in {init}"
        init.write_text(text.replace(line, f"{line}9."))
    node = begun(directory, python, level=Level.NAMESPACES if user is not None else Level.FULL, user=user)
    try:
        node.deploy_probe(MODEL)
        pid = node.load(MODEL)["instances"][0]["pid"]
        command = [*prefix(newer / "bin/python", uid=user), "fornada", "serve", "--upgrade", "--data-dir", str(node.data_dir)]
        strangers = [*prefix(newer / "bin/python", uid=STRANGER + 1), "fornada", "serve", "--upgrade", "--data-dir", str(node.data_dir)]
        refused = subprocess.run(strangers, capture_output=True, text=True, timeout=bound(60), env=node_environ(), check=False)
        assert refused.returncode == 1 and len(refused.stderr.splitlines()) == 1, refused.stderr
        done = subprocess.run(command, capture_output=True, text=True, timeout=bound(60), env=node_environ(), check=False)
        assert done.returncode == 0, done.stderr
        assert node.record["version"].startswith("9.")
        assert uid(node.control_pid) == (user or 0)
        assert node.ask(MODEL, {"echo": 1})["pid"] == pid
        node.unload(MODEL)
        assert node.ask(MODEL, {"echo": 2})["echo"] == 2, "with the SDK of the new installation"
        assert node.stop() == 0
    finally:
        node.destroy()
