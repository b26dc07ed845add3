"""What keeps a node from starting is said in one line: whose fault, what to do."""

import os
import pwd
import shutil
import socket
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import fornada
from fornada.keeper.levels import Level
from tests.harness.walls import lacking
from tests.process.tree import HERE, SERVE, Tree

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


def test_a_second_node_on_the_same_data_is_refused(start, tmp_path, nested):
    tree = start()
    tree.state()
    other = Tree(tmp_path, nested=nested)
    assert other.main.wait(10) == 1
    (line,) = other.lines()
    assert str(tree.data) in line and str(tree.main.pid) in line and "--data-dir" in line
    assert tree.state()["epoch"] == 1


def test_a_port_in_use_is_named(start):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        tree = start(port=port)
        assert tree.wait(within_s=10) == 1
    (line,) = tree.lines()
    assert str(port) in line and "--port" in line and "FORNADA_PORT" in line, "make serve has no flags"
    assert not (tree.data / "starts").exists()


def test_a_data_directory_that_can_not_be_made_is_named(start, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "logs").write_text("a file")
    tree = start()
    assert tree.wait(within_s=10) == 1
    (line,) = tree.lines()
    assert f"{tmp_path}/data/logs" in line and "--data-dir" in line


@ROOT_ONLY
def test_a_data_directory_that_no_model_could_reach_is_refused_at_the_start(tmp_path):
    if why := lacking(Level.LANDLOCK):
        pytest.skip(why)
    tmp_path.chmod(0o700)
    tree = Tree(tmp_path, nested=True, isolation="landlock", control=())
    assert tree.wait(within_s=10) == 1
    (line,) = tree.lines()
    assert line.startswith("fornada: isolation landlock can't be had: a model has a uid of its own, and no other user may use ")
    assert str(tmp_path) in line and "chmod o+x" in line


def test_the_folders_are_our_own(tree):
    tree.state()
    for folder in ("run", "environments", "artifacts", "bundles", "logs", "scratch"):
        assert stat.S_IMODE((tree.data / folder).stat().st_mode) == 0o700
    assert (tree.data / "run" / "lock").read_text() == f"{tree.main.pid}\n"


def test_a_keeper_that_can_not_start_is_told(tmp_path):
    code = SERVE.replace("sys.exit(serve", "import fornada.app.serve as s; s.KEEPER_CODE = 'raise SystemExit(9)'; sys.exit(serve")
    given = f'{{"settings": {{"data_dir": "{tmp_path}/data", "port": 0, "isolation": "none"}}, "control": [], "nested": false}}'
    done = subprocess.run([sys.executable, "-I", "-c", code, given], capture_output=True, text=True, timeout=20)
    assert done.returncode == 1
    assert "the keeper couldn't start (exit code 9)" in done.stderr and done.stderr.count("\n") == 1


def test_standard_descriptors_may_be_closed(start, tmp_path):
    tree = start(command=["/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-I"])
    tree.spawn("a")
    assert tree.facts("a")["descriptors"] == [0, 1, 2, 3, 4]


def readable_python() -> str | None:
    """An interpreter that any user can execute, of the version that our packages were built for."""
    found = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if found is None:
        return None
    version = subprocess.run([found, "-Ic", "import sys; print(sys.version_info[:2])"], capture_output=True, text=True)
    return found if version.stdout.strip() == str(sys.version_info[:2]) else None


@ROOT_ONLY
def test_an_ordinary_user_has_a_tree_too(tmp_path, tmp_path_factory):
    python = readable_python()
    if python is None:
        pytest.skip(f"no Python {sys.version_info[0]}.{sys.version_info[1]} outside root's home")
    home = Path("/tmp") / f"fornada-test-{os.getpid()}"
    try:
        home.mkdir(mode=0o755)
        nobody = pwd.getpwnam("nobody")
        # A copy: the checkout may lie under a folder that nobody else can enter.
        shutil.copytree(Path(fornada.__file__).parents[1], home / "src", ignore=shutil.ignore_patterns("__pycache__", "models"))
        shutil.copytree(Path(msgspec.__file__).parent, home / "src" / "msgspec")
        shutil.copytree(HERE, home / "tests", ignore=shutil.ignore_patterns("__pycache__"))
        (home / "work").mkdir()
        os.chown(home / "work", nobody.pw_uid, nobody.pw_gid)
        run = ["runuser", "-u", "nobody", "--", "env", f"PYTHONPATH={home}/src", python, "-B"]
        control = ["/usr/bin/env", f"PYTHONPATH={home}/src", python, "-B", str(home / "tests" / "fake_control.py")]
        tree = Tree(home / "work", nested=True, command=run, control=control)
        try:
            os.chown(tree.data, nobody.pw_uid, nobody.pw_gid)
            _use(tree)
        finally:
            tree.end()
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _use(tree: Tree) -> None:
    state = tree.state()
    assert os.stat(f"/proc/{state['keeper_pid']}").st_uid == pwd.getpwnam("nobody").pw_uid
    pid = tree.spawn("a")
    assert tree.facts("a")["outer"] == pid == tree.facts("a")["pid"]  # no pid namespace for an ordinary user yet
    tree.spawn("large", padding=8_000_000)
    assert tree.facts("large")["assignment_bytes"] > 8_000_000
    tree.kill_control()
    assert tree.facts("a")["epochs"] == [1, 2]
    tree.all()
    os.kill(state["keeper_pid"], 9)
    tree.nothing_left()
    tree.wait(within_s=3)
