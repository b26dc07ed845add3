"""Version 2's own mechanics on the real thing: leaves, delegation, freezing, killing.

Where the controllers for memory and processes belong to version 1, any other controller shows the same; what they do
themselves is then seen by tests/process/test_cgroups.py in version 1 alone.
"""

import contextlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bounds import bound
from tests.harness.processes import alive
from tests.harness.waiting import until

SRC = Path(__file__).parents[2] / "src"
USER = 65534
"""nobody, who has no cgroup of their own."""
NODE = "fornada-0123456789abcdef"
PROGRAM = """
import json, os, subprocess, sys, time
sys.path.insert(0, sys.argv[1])
from fornada.keeper.cgroups.group import Bounds
from fornada.keeper.cgroups.place import NoPlace, find
from fornada.keeper.cgroups.tree import Tree
node, wanted = sys.argv[2], sys.argv[3].split(",")
sys.stdin.readline()
def own():
    with open("/proc/self/cgroup") as file:
        return next(line.strip().partition("::")[2] for line in file if line.startswith("0::"))
def sleeper(group, program="import sys,os,time; [os.write(int(d), b'0') for d in sys.argv[1:]]; os.write(1, b'joined\\\\n'); time.sleep(60)"):
    joins = group.joins()
    child = subprocess.Popen([sys.executable, "-I", "-c", program, *map(str, joins)], pass_fds=joins, stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"joined\\n"
    return child
def swept(tree):
    end = time.monotonic() + 20
    while tree.sweep():
        assert time.monotonic() < end
        time.sleep(0.01)
def tell(**facts):
    print(json.dumps(facts), flush=True)
"""
OWNS = """
tree = Tree(find(node, wanted=wanted), node)
leaf = own()
group = tree.create("a", Bounds())
child = sleeper(group)
found = find(node, wanted=wanted)
tell(leaf=leaf, controllers=found.controllers, base=str(next(iter(found.folders.values()))), pids=group.pids() == [child.pid])
group.freeze()
def frozen():
    with open(f"{next(iter(found.folders.values()))}/{node}/i-a/cgroup.events") as file:
        return "frozen 1" in file.read()
end = time.monotonic() + 20
while not frozen():
    assert time.monotonic() < end
group.kill()
code = child.wait(20)
forgotten = False
while not (forgotten := tree.forget(group)):
    assert time.monotonic() < end
tell(code=code, forgotten=forgotten, closed=tree.close(), back=own())
"""
LOOKS = """
found = find(node, wanted=wanted)
tell(why=found.why if isinstance(found, NoPlace) else "", advice=found.advice if isinstance(found, NoPlace) else "")
"""
LEAVES = """
tree = Tree(find(node, wanted=wanted), node)
child = sleeper(tree.create("left", Bounds()))
tell(hidden=child.pid)
time.sleep(60)
"""
SWEEPS = """
tree = Tree(find(node, wanted=wanted), node)
first = tree.sweep()
swept(tree)
tell(first=first)
"""


def unified() -> Path | None:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if " - cgroup2 " in line:
            return Path(line.split()[4])
    return None


pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can delegate a cgroup"),
    pytest.mark.skipif(unified() is None, reason="no cgroup version 2 is mounted"),
]


class Base:
    """A cgroup as a service manager would delegate it, and programs that start in it."""

    def __init__(self, folder: Path, wanted: list[str]) -> None:
        self.folder = folder
        self.wanted = wanted
        self.started: list[subprocess.Popen[str]] = []

    def start(self, program: str, *, leaf: str = "", uid: int = 0) -> "subprocess.Popen[str]":
        python = sys.executable if uid == 0 else "/usr/bin/python3"
        process = subprocess.Popen(
            [python, "-I", "-c", PROGRAM + program, str(SRC), NODE, ",".join(self.wanted)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            user=uid or None,
            group=uid or None,
            extra_groups=[] if uid else None,
        )
        self.started.append(process)
        (self.folder / leaf / "cgroup.procs").write_text(str(process.pid))
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        return process


@pytest.fixture
def base() -> Iterator[Base]:
    top = unified()
    assert top is not None
    offered = set((top / "cgroup.controllers").read_text().split())
    wanted: list[str] = [name for name in ("memory", "pids", "cpu") if name in offered] or sorted(offered)[:1]
    if not wanted:
        pytest.skip("version 2 has no controller here")
    before = set((top / "cgroup.subtree_control").read_text().split())
    for name in wanted:
        (top / "cgroup.subtree_control").write_text(f"+{name}")
    folder = top / f"fornada-test-{os.getpid()}"
    folder.mkdir()
    base = Base(folder, wanted)
    yield base
    with contextlib.suppress(OSError):
        (folder / "cgroup.kill").write_text("1")
    for process in base.started:
        process.communicate(timeout=bound(10))
    for path in sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True):
        until(lambda path=path: _removed(path), within_s=10, what=f"{path} is gone")  # type: ignore[misc]
    until(lambda: _removed(folder), within_s=10, what=f"{folder} is gone")
    for name in set(wanted) - before:
        (top / "cgroup.subtree_control").write_text(f"-{name}")


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError:
        return not folder.exists()
    return True


def told(process: "subprocess.Popen[str]") -> Any:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], bound(20))
    assert ready, "it says nothing"
    return json.loads(process.stdout.readline())


Delegate = Callable[[Base], int]


def to_root(base: Base) -> int:
    with contextlib.suppress(OSError):
        os.setxattr(base.folder, "trusted.delegate", b"1")
    return 0


def to_user(base: Base) -> int:
    for path in (base.folder, base.folder / "cgroup.procs", base.folder / "cgroup.subtree_control", base.folder / "cgroup.threads"):
        os.chown(path, USER, USER)
    if subprocess.run(
        [
            "/usr/bin/python3",
            "-c",
            f"import sys; sys.path.insert(0, {str(SRC)!r}); import fornada.keeper.cgroups.tree, sys; assert sys.version_info >= (3, 11)",
        ],
        user=USER,
        group=USER,
        capture_output=True,
    ).returncode:
        pytest.skip("an ordinary user can't reach an interpreter and this tree")
    return USER


@pytest.mark.parametrize("delegate", [to_root, to_user])
def test_the_node_moves_into_a_leaf_and_out_of_it(base: Base, delegate: Delegate):
    process = base.start(OWNS, uid=delegate(base))
    first = told(process)
    assert first["leaf"].endswith(f"/{base.folder.name}/{NODE}/keeper")
    assert first["base"] == str(base.folder), "from within the leaf it finds the same place"
    assert sorted(first["controllers"]) == sorted(base.wanted)
    assert first["pids"]
    last = told(process)
    assert last["code"] == -9, "a frozen process dies"
    assert last["forgotten"] and last["closed"]
    assert last["back"].endswith(f"/{base.folder.name}")
    assert process.wait(bound(10)) == 0
    assert [path for path in base.folder.iterdir() if path.is_dir()] == []
    assert (base.folder / "cgroup.subtree_control").read_text().strip() == ""


def test_a_cgroup_that_others_live_in_is_refused_and_they_are_named(base: Base):
    to_root(base)
    with subprocess.Popen(["sleep", "60"]) as other:
        (base.folder / "cgroup.procs").write_text(str(other.pid))
        looked = told(base.start(LOOKS))
        other.kill()
    assert str(other.pid) in looked["why"] and "beside the node" in looked["why"]
    assert "Delegate=yes" in looked["advice"]


def test_a_cgroup_without_delegation_is_refused_for_a_user(base: Base):
    uid = to_user(base)
    os.chown(base.folder, 0, 0)
    looked = told(base.start(LOOKS, uid=uid))
    assert looked["why"] == f"{base.folder} may not be written by uid {USER}"
    assert "systemd-run --user --scope -p Delegate=yes" in looked["advice"]


def test_what_a_killed_owner_left_is_swept(base: Base):
    to_root(base)
    owner = base.start(LEAVES)
    hidden = told(owner)["hidden"]
    owner.kill()
    owner.wait(bound(10))
    assert alive(hidden), "it must have outlived its owner, or this proves nothing"
    # Its successor starts where the service manager's next process may live: the base has its controllers divided already.
    assert told(base.start(SWEEPS, leaf=f"{NODE}/keeper"))["first"] == ["i-left"]
    assert not alive(hidden)


def test_a_process_can_not_join_a_group_that_divides_its_controllers(base: Base):
    """What the leaf is for."""
    to_root(base)
    told(base.start(LEAVES))
    with subprocess.Popen(["sleep", "60"]) as other:
        with pytest.raises(OSError, match="busy"):
            (base.folder / "cgroup.procs").write_text(str(other.pid))
        other.kill()
