"""How the tree ends: asked to, asked twice, or killed at any place. Nothing is left."""

import contextlib
import functools
import os
import signal
import time
from pathlib import Path

import pytest

from tests.bounds import count
from tests.harness.processes import all_gone, descendants, seen
from tests.harness.waiting import until


def full(start, **options):
    """A tree with a runner, its child and a build."""
    tree = start(**options)
    tree.spawn("a")
    tree.facts("a", do="child")
    tree.ask("build", name="b", argv=["sleep", "600"], log=str(tree.folder / "log"), wait=False)
    until(lambda: [p for p in descendants(tree.main.pid) if p.name == "sleep"], within_s=5, what="the build")
    tree.all()
    return tree


@pytest.mark.alone
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_an_idle_tree_ends_within_a_second_of_being_asked(start, number):
    tree = full(start)
    began = time.monotonic()
    tree.signal(number)
    assert tree.wait(within_s=5) == 0
    assert time.monotonic() - began < 1.0
    tree.nothing_left(within_s=0.1)
    assert tree.lines() == []
    assert not (tree.data / "run" / "node.json").exists()


def test_times_longer_than_poll_can_wait_end_no_less_well(start):
    tree = full(start, node={"drain_s": 1e8, "kill_s": 1e8})
    tree.signal(signal.SIGTERM)
    assert tree.wait(within_s=5) == 0
    assert tree.lines() == []


def test_the_terminals_ctrl_c_is_mains_alone(start):
    tree = full(start)
    groups = {os.getpgid(process.pid) for process in tree.all()}
    assert os.getpgid(tree.main.pid) not in {os.getpgid(process.pid) for process in descendants(tree.main.pid)}
    assert len(groups) >= 4
    os.killpg(tree.main.pid, signal.SIGINT)
    assert tree.wait(within_s=5) == 0


def test_node_json_is_removed_at_the_end(start):
    tree = start()
    tree.state()
    (tree.data / "run" / "node.json").write_text("{}")
    tree.signal(signal.SIGTERM)
    assert tree.wait(within_s=5) == 0
    assert not (tree.data / "run" / "node.json").exists()


def test_a_stubborn_runner_is_killed_after_kill_s(start):
    tree = start()
    process = seen(tree.spawn("a", mode="stubborn"))
    tree.facts("a")
    began = time.monotonic()
    tree.signal(signal.SIGTERM)
    assert tree.wait(within_s=5) == 0
    assert 0.9 < time.monotonic() - began < 3
    assert not process.alive


def test_a_control_plane_that_ignores_the_drain_is_ended_when_its_time_is_over(start):
    tree = start(plan={"drain": "ignore"}, node={"drain_s": 0.5, "kill_s": 0.5})
    tree.spawn("a")
    tree.all()
    began = time.monotonic()
    tree.signal(signal.SIGTERM)
    assert tree.wait(within_s=10) == 1
    assert 0.9 < time.monotonic() - began < 4
    assert "drain_s" in tree.lines()[-1]
    tree.nothing_left(within_s=0.1)


@pytest.mark.alone
def test_a_second_signal_ends_everything_at_once(start):
    tree = full(start, plan={"drain": "ignore"}, node={"drain_s": 60})
    tree.signal(signal.SIGTERM)
    until(lambda: tree.state()["story"] == ["drain"], within_s=5, what="it drains: two equal signals that come together would be one")
    assert tree.main.poll() is None
    began = time.monotonic()
    tree.signal(signal.SIGTERM)
    assert tree.wait(within_s=5) == 1
    assert time.monotonic() - began < 1.0
    tree.nothing_left(within_s=0.1)


def test_a_control_plane_that_dies_draining_is_not_replaced(start):
    tree = start(plan={"drain": "crash"})
    tree.spawn("a")
    tree.all()
    tree.signal(signal.SIGTERM)
    assert tree.wait(within_s=10) == 1
    assert len((tree.data / "starts").read_text().split()) == 1
    tree.nothing_left(within_s=0.1)


def test_a_signal_to_the_keeper_is_a_request_to_drain_and_two_are_no_more(start):
    tree = full(start)
    keeper = tree.keeper_pid()
    for _ in range(2):
        os.kill(keeper, signal.SIGTERM)
        time.sleep(0.01)
    assert tree.wait(within_s=5) == 0
    tree.nothing_left(within_s=0.1)


def test_a_signal_while_it_starts_is_not_lost(start):
    tree = start()
    until(lambda: (tree.data / "run" / "lock").exists(), within_s=10, what="main has begun")
    tree.signal(signal.SIGTERM)
    assert tree.wait(within_s=10) == 0
    tree.nothing_left(within_s=0.1)


def test_a_killed_keeper_leaves_nothing(start):
    tree = full(start)
    os.kill(tree.keeper_pid(), signal.SIGKILL)
    tree.nothing_left()
    assert tree.wait(within_s=3) == 1
    (line,) = tree.lines()
    assert "keeper" in line and "killed by signal 9" in line


def test_a_killed_main_leaves_nothing(start):
    tree = full(start)
    tree.signal(signal.SIGKILL)
    tree.main.wait()
    tree.nothing_left()


def test_main_and_keeper_killed_together_leave_nothing(start):
    tree = full(start, plan={})
    keeper = tree.keeper_pid()
    below = [process for process in tree.all() if process.alive]
    if not tree.nested:  # a runner's own children are out of reach then: they have lost both
        runner = tree.facts("a")["outer"]
        below = [process for process in below if process.pid not in {p.pid for p in descendants(runner)}]
    tree.signal(signal.SIGKILL)
    os.kill(keeper, signal.SIGKILL)
    tree.main.wait()
    all_gone(below, within_s=3, what="the tree")


def keeper_below(main: int) -> int:
    """Main's child that executes the keeper's code, 0 as long as there is none: before it, main forks those that probe the machine."""
    for process in descendants(main):
        with contextlib.suppress(OSError):
            if b"fornada.keeper.main" in Path(f"/proc/{process.pid}/cmdline").read_bytes():
                return process.pid
    return 0


@pytest.mark.parametrize("victim", ["main", "keeper"])
def test_killed_at_any_moment_of_the_start_it_leaves_nothing(start, victim):
    turns = count(5, long=200)
    for turn in range(turns):
        tree = start()
        if victim == "keeper":
            keeper = until(functools.partial(keeper_below, tree.main.pid), within_s=5, what="a keeper", every_s=0.001)
            time.sleep(0.2 * turn / turns)
            os.kill(keeper, signal.SIGKILL)
            assert tree.wait(within_s=3) == 1
        else:
            time.sleep(0.5 * turn / turns)
            tree.all()
            tree.signal(signal.SIGKILL)
            tree.main.wait()
        tree.nothing_left()


@pytest.mark.parametrize("victim", ["main", "keeper"])
def test_a_tree_killed_while_its_control_plane_is_stopped_leaves_nothing(start, victim):
    tree = full(start)
    state = tree.state()
    os.kill(state["pid"], signal.SIGSTOP)
    os.kill(state[f"{victim}_pid"], signal.SIGKILL)
    tree.main.wait(5)
    tree.nothing_left()


def test_the_port_is_free_and_the_lock_is_open_right_after_a_kill(start):
    tree = full(start)
    port = tree.port
    tree.signal(signal.SIGKILL)
    tree.main.wait()
    (tree.data / "port").unlink()
    again = start(port=0)
    assert again.state()["epoch"] == 1
    assert again.port != port or again.state()
