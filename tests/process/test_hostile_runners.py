"""Runners that do what they can against the keeper: it says one line, drops them, and goes on."""

import os
import signal

import pytest

from tests.harness.processes import alive, all_gone, descriptors, read_stat, seen
from tests.harness.waiting import until


@pytest.mark.parametrize("mode", ["garbage", "flood"])
def test_a_runner_that_speaks_is_ended(tree, mode):
    tree.spawn("good")
    keeper = tree.keeper_pid()
    before = descriptors(keeper)
    process = seen(tree.spawn("bad", mode=mode))
    assert tree.ask("exited", instance="bad")["signal"] == signal.SIGKILL
    all_gone([process], within_s=1, what="the hostile runner")
    tree.ask("forget", instance="bad")
    until(lambda: descriptors(keeper) <= before, within_s=2, what="its descriptors are closed")
    assert tree.facts("good")["epochs"] == [1]
    (line,) = [line for line in tree.lines() if "bad" in line]
    assert "rules" in line


@pytest.mark.parametrize("mode", ["empty", "closes"])
def test_a_runner_that_hangs_up_is_ended_after_a_grace(tree, mode):
    tree.spawn("bad", mode=mode)
    assert tree.ask("exited", instance="bad")["signal"] == signal.SIGKILL


def test_a_runner_that_never_reads_can_not_hang_the_keeper(tree):
    pid = tree.spawn("deaf", mode="deaf", padding=30_000_000)
    good = tree.spawn("good")
    for _ in range(3):
        tree.kill_control()
    assert tree.facts("good")["epochs"] == [1, 2, 3, 4]
    assert alive(pid) and alive(good)
    assert tree.state()["adopted"]["deaf"]["pid"] == pid


def test_a_stopped_runner_is_killed_with_the_tree(tree):
    os.kill(tree.spawn("a"), signal.SIGSTOP)
    tree.all()
    os.kill(tree.keeper_pid(), signal.SIGKILL)
    tree.wait(within_s=3)
    tree.nothing_left()


def test_a_flood_of_output_stops_the_runner_and_nobody_else(tree):
    pid = tree.spawn("a")
    with tree.connect() as waiting:
        waiting.sendall(b'{"do": "ask", "instance": "a", "order": {"do": "flood", "bytes": 3000000}}\n')
        until(lambda: (now := read_stat(pid)) and now.state == "S", within_s=5, what="the runner waits for room in its pipe")
        assert tree.state()["epoch"] == 1
        read = tree.ask("output", instance="a", least=3_000_000)
        assert read["bytes"] == 3_000_000
        assert waiting.recv(100)
