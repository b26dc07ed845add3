"""Groups of the machine's own version: bounds that hold, ends that are complete, nothing left of a killed owner."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fornada.keeper.cgroups.files import CgroupError
from fornada.keeper.cgroups.group import Bounds, Group
from fornada.keeper.cgroups.place import NoPlace, Place, Version, find
from fornada.keeper.cgroups.tree import PROBE_PREFIX, Tree, node_name, remove_dead
from tests.bounds import bound
from tests.harness.processes import alive
from tests.harness.waiting import stays, until
from tests.process import cgroup_programs as programs

MIB = 1 << 20
SRC = Path(__file__).parents[2] / "src"
OWNER = """
import subprocess, sys, time
from pathlib import Path
from fornada.keeper.cgroups.group import Bounds
from fornada.keeper.cgroups.place import find
from fornada.keeper.cgroups.tree import Tree
node, program = sys.argv[1:]
tree = Tree(find(node), node)
group = tree.create("left", Bounds(pids=8))
joins = group.joins()
child = subprocess.Popen([sys.executable, "-I", "-c", program, *map(str, joins)], pass_fds=joins, stdout=subprocess.PIPE)
assert child.stdout.readline() == b"joined\\n"
print(child.stdout.readline().decode().strip(), flush=True)
time.sleep(60)
"""


def place_of(node: str) -> Place:
    found = find(node)
    if isinstance(found, NoPlace):
        pytest.skip(f"no groups can be made here: {found.why}")
    return found


@pytest.fixture
def node(tmp_path: Path) -> str:
    return node_name(tmp_path)


@pytest.fixture
def tree(node: str) -> Iterator[Tree]:
    tree = Tree(place_of(node), node)
    yield tree
    until(lambda: not Tree(tree.place, node).sweep(), within_s=10, what="its groups are gone")
    assert tree.close()


def kin(tree: Tree, node: str) -> list[Path]:
    """Where another node's folders would be."""
    return [folder / node for folder in dict.fromkeys(tree.place.folders.values())]


DEAD = "fornada-node-00000000000dead0"
STARTS = """
import sys
from fornada.keeper.cgroups.place import find
from fornada.keeper.cgroups.tree import Tree
node = sys.argv[1]
tree = Tree(find(node), node)
print("held", flush=True)
sys.stdin.readline()
"""


def test_what_a_dead_node_with_other_data_left_goes_at_any_start(tree: Tree, tmp_path: Path):
    for folder in kin(tree, DEAD):
        (folder / "i-left").mkdir(parents=True, exist_ok=True)
    other = node_name(tmp_path.parent)
    Tree(place_of(other), other).close()
    assert not [folder for folder in kin(tree, DEAD) if folder.exists()]


def test_what_a_start_that_was_killed_left_of_its_probe_goes_too(tree: Tree):
    left = kin(tree, f"{PROBE_PREFIX}1")
    for folder in left:
        folder.mkdir(exist_ok=True)
    remove_dead(tree.place)
    assert not [folder for folder in left if folder.exists()]


def test_a_live_node_s_folders_stay_while_it_holds_nothing(tree: Tree, tmp_path: Path):
    environ = {**os.environ, "PYTHONPATH": str(SRC)}
    argv = [sys.executable, "-c", STARTS, DEAD]
    with subprocess.Popen(argv, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as live:
        assert live.stdout is not None and live.stdout.readline() == "held\n"
        remove_dead(tree.place)
        assert all(folder.exists() for folder in kin(tree, DEAD))
        live.kill()
    remove_dead(tree.place)
    assert not [folder for folder in kin(tree, DEAD) if folder.exists()]


def test_folders_of_others_stay(tree: Tree):
    for folder in kin(tree, "fornada-other"):
        folder.mkdir(exist_ok=True)
    try:
        remove_dead(tree.place)
        assert all(folder.exists() for folder in kin(tree, "fornada-other"))
    finally:
        for folder in kin(tree, "fornada-other"):
            folder.rmdir()


Run = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def run() -> Iterator[Run]:
    """Starts a program of cgroup_programs in a group; it has joined when this returns."""
    started = []
    joined = []

    def _run(group: Group, program: str) -> "subprocess.Popen[str]":
        joins = group.joins()
        process = subprocess.Popen(
            [sys.executable, "-I", "-c", programs.JOIN + program, *map(str, joins)],
            pass_fds=joins,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        started.append(process)
        joined.append(group)
        for descriptor in joins:
            os.close(descriptor)
        assert line(process) == "joined"
        return process

    yield _run
    for group in joined:
        with contextlib.suppress(CgroupError):  # it has been removed
            group.kill()
    for process in started:
        process.communicate(timeout=bound(10))


def line(process: "subprocess.Popen[str]") -> str:
    """Byte by byte: what a buffer held of the next line, select wouldn't see."""
    assert process.stdout is not None
    read = b""
    while not read.endswith(b"\n"):
        ready, _, _ = select.select([process.stdout], [], [], bound(20))
        assert ready, f"it says no more than {read!r}"
        piece = os.read(process.stdout.fileno(), 1)
        if not piece:
            break
        read += piece
    return read.decode().strip()


def answers(process: "subprocess.Popen[str]") -> bool:
    assert process.stdin is not None
    process.stdin.write("you?\n")
    process.stdin.flush()
    return line(process) == "heard you?"


def happened(group: Group, *, within_s: float) -> bool:
    poll = select.epoll()
    try:
        poll.register(group.oom, group.oom_events)
        return bool(poll.poll(bound(within_s)))
    finally:
        poll.close()


@pytest.mark.parametrize("program", [programs.TAKES_MEMORY, programs.TAKES_A_MEMORY_FILE], ids=["private", "memory file"])
def test_a_memory_bomb_is_killed_and_told_and_its_neighbour_answers(tree: Tree, run: Run, program: str):
    bomb = tree.create("bomb", Bounds(memory_bytes=64 * MIB))
    neighbour = tree.create("neighbour", Bounds(memory_bytes=64 * MIB))
    other = run(neighbour, programs.WAITS_FOR_WORDS)
    assert bomb.oom_kills() == 0
    process = run(bomb, program)
    assert happened(bomb, within_s=20)
    assert process.wait(bound(20)) == -signal.SIGKILL
    assert bomb.oom_kills() >= 1
    assert not happened(bomb, within_s=0), "reading clears the event"
    assert answers(other)
    assert neighbour.oom_kills() == 0 and not happened(neighbour, within_s=0)


def test_bounds_can_be_changed_while_it_runs(tree: Tree, run: Run):
    group = tree.create("spare", Bounds(memory_bytes=64 * MIB, pids=8, cpus=1))
    run(group, programs.WAITS_FOR_WORDS)
    for more in (1024, 700, 0, 900):
        group.bound(Bounds(memory_bytes=more * MIB))
    process = run(group, programs.TAKES_MEMORY)
    assert line(process) == "took all"


def test_memory_is_counted(tree: Tree, run: Run):
    group = tree.create("holds", Bounds())
    process = run(group, programs.TAKES_MEMORY + programs.WAITS_FOR_WORDS)
    assert line(process) == "took all"
    assert 512 * MIB <= group.memory_bytes() < 700 * MIB


def test_a_group_can_not_make_more_processes_than_it_may(tree: Tree, run: Run):
    group = tree.create("forks", Bounds(pids=16))
    assert line(run(group, programs.FORKS)) == "made 15"
    assert len(group.pids()) == 16


def test_a_share_of_the_cpu_is_kept_to(tree: Tree, run: Run):
    group = tree.create("spins", Bounds(cpus=0.25))
    run(group, programs.SPINS)
    begun, used = time.monotonic(), group.cpu_s()
    until(lambda: group.cpu_s() - used > 0.3, within_s=30, what="it has used 0.3 s of CPU")
    # The kernel gives it out in slices: one more than its share at either end.
    assert group.cpu_s() - used <= (time.monotonic() - begun) * 0.25 + 0.1


def test_a_fork_bomb_is_ended_and_its_group_removed(tree: Tree, run: Run):
    group = tree.create("bomb", Bounds(pids=64))
    assert line(run(group, programs.FORKS_FOR_EVER)) == "full"
    group.kill()
    until(lambda: tree.forget(group), within_s=10, what="the group is gone")
    assert tree.sweep() == []
    again = tree.create("bomb", Bounds(pids=2))
    assert again.pids() == []


def test_forgetting_a_group_ends_what_hid_in_it(tree: Tree, run: Run):
    group = tree.create("hides", Bounds())
    process = run(group, programs.HIDES)
    hidden = int(line(process))
    assert process.wait(bound(10)) == 0
    assert group.pids() == [hidden]
    until(lambda: tree.forget(group), within_s=10, what="the group is gone")
    assert not alive(hidden)


def test_a_group_is_frozen_and_thawed_where_a_kill_ends_a_frozen_one(tree: Tree, run: Run):
    group = tree.create("sleeps", Bounds())
    process = run(group, programs.SPINS)
    if not group.can_freeze:
        assert tree.place.version is Version.V1
        with pytest.raises(NotImplementedError, match="SIGSTOP"):
            group.freeze()
        return
    until(lambda: group.cpu_s() > 0, within_s=10, what="it works")
    group.freeze()
    frozen = until(lambda: _stands_still(group), within_s=10, what="it stands still")
    group.thaw()
    until(lambda: group.cpu_s() > frozen, within_s=10, what="it goes on")
    group.freeze()
    group.kill()
    assert process.wait(bound(10)) == -signal.SIGKILL


def _stands_still(group: Group) -> float:
    """Seconds of processor time that it has had; 0 where that is still growing. Who spins gets some of half a second, however busy others are."""
    before = group.cpu_s()
    with contextlib.suppress(AssertionError):
        stays(lambda: group.cpu_s() == before, for_s=0.5, what="it gets no time")
        return before
    return 0.0


def test_what_a_killed_owner_left_is_swept_and_another_nodes_is_not(node: str, tree: Tree, run: Run, tmp_path: Path):
    if tree.place.version is Version.V2:
        pytest.skip("two nodes can't share a delegated cgroup: see test_cgroups_v2.py")
    theirs = tmp_path / "other"
    theirs.mkdir()
    killed = node_name(theirs)
    mine = tree.create("mine", Bounds())
    process = run(mine, programs.WAITS_FOR_WORDS)
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, killed, programs.JOIN + programs.HIDES],
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": str(SRC)},
    )
    hidden = int(line(owner))
    owner.kill()
    owner.communicate(timeout=bound(10))
    assert alive(hidden), "it must have outlived its owner, or this proves nothing"
    successor = Tree(place_of(killed), killed)
    assert tree.sweep() == [], "a node leaves the other's alone"
    assert alive(hidden)
    assert successor.sweep() == ["i-left"]
    until(lambda: not successor.sweep(), within_s=10, what="the dead owner's group is gone")
    assert not alive(hidden)
    assert successor.close()
    assert answers(process)


def test_a_name_is_taken_once_and_can_be_no_path(tree: Tree):
    tree.create("a/../../b", Bounds())
    with pytest.raises(CgroupError, match=r"i-a_\.\._\.\._b-\w{8} is there already"):
        tree.create("a/../../b", Bounds())
    tree.create("a/../..-b", Bounds())
    tree.create("keeper", Bounds())
    tree.create("memory.max", Bounds())


def test_what_the_kernel_refuses_names_the_file_and_leaves_nothing(tree: Tree):
    with pytest.raises(CgroupError, match=r"can't write '.*' to /\S*i-wrong/pids.max: \w"):
        tree.create("wrong", Bounds(pids=-5))
    tree.create("wrong", Bounds(pids=5))
