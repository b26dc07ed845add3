"""Runners: how they are started, what keeps them apart, how their end is told."""

import os
import shutil
import signal
import statistics
import sys

import pytest

from tests.bounds import count
from tests.harness.processes import alive, all_gone, descendants, descriptors, read_stat, seen
from tests.harness.waiting import until


def parent_of(pid):
    found = read_stat(pid)
    assert found
    return found.parent


def test_a_runner_is_kept_apart(tree):
    pid = tree.spawn("a")
    facts = tree.facts("a")
    assert facts["outer"] == pid
    assert facts["sid"] == facts["pid"]
    assert set(facts["environ"]) - {"LC_CTYPE"} == {"ONLY"}  # Python itself sets LC_CTYPE
    assert facts["descriptors"] == [0, 1, 2, 3, 4]  # 4 is the link that it was given
    assert facts["stdin"] == "/dev/null"
    assert facts["cwd"] == "/"
    assert facts["umask"] == "022"
    assert facts["blocked"] == "0" * 16
    assert facts["core"] == [0, 0]
    assert facts["open_files"] == [1024, 1024]


def test_pids_are_those_of_the_operator(tree):
    state = tree.state()
    pid = tree.spawn("a")
    assert state["main_pid"] == tree.main.pid
    assert parent_of(state["keeper_pid"]) == tree.main.pid
    assert parent_of(state["pid"]) == state["keeper_pid"]
    assert state["own_pid"] == state["pid"]
    assert parent_of(pid) == state["keeper_pid"]
    if tree.nested:
        assert tree.facts("a")["pid"] != pid


def test_limits_hold(tree):
    limits = {"open_files": 77, "memory_bytes": 1 << 31, "file_bytes": 1 << 20, "nice": 5}
    tree.spawn("a", limits=limits)
    facts = tree.facts("a")
    assert facts["open_files"] == [77, 77]
    assert facts["data"] == [1 << 31, 1 << 31]
    assert facts["fsize"] == [1 << 20, 1 << 20]
    assert facts["nice"] == min(19, os.nice(0) + 5)


def test_an_exit_is_told_with_its_code_and_what_it_cost(tree):
    tree.spawn("a")
    assert tree.facts("a", do="exit", code=7) is None
    end = tree.ask("exited", instance="a")
    assert (end["code"], end["signal"]) == (7, None)
    assert end["max_rss_bytes"] > 1_000_000 and end["cpu_s"] > 0
    assert tree.ask("exited", instance="a") == end


def test_a_killed_runner_is_told_with_its_signal(tree):
    os.kill(tree.spawn("a"), signal.SIGSEGV)
    end = tree.ask("exited", instance="a")
    assert (end["code"], end["signal"]) == (None, signal.SIGSEGV)


def test_a_signal_reaches_the_runners_children_too(tree):
    pid = tree.spawn("a")
    child = seen(tree.facts("a", do="child"))
    tree.ask("signal", instance="a", number=signal.SIGTERM)
    assert tree.ask("exited", instance="a")["signal"] == signal.SIGTERM
    all_gone([child], within_s=2, what=f"the child of runner {pid}")


def test_a_crash_takes_the_runners_children_with_it(tree):
    pid = tree.spawn("a")
    child = seen(tree.facts("a", do="child"))
    os.kill(pid, signal.SIGKILL)
    tree.ask("exited", instance="a")
    all_gone([child], within_s=2, what="a child that stays behind")


def test_a_process_that_detached_itself_does_not_outlive_its_runner(tree):
    pid = tree.spawn("a")
    stray = seen(tree.facts("a", do="detach"))
    os.kill(pid, signal.SIGKILL)
    tree.ask("exited", instance="a")
    all_gone([stray], within_s=2, what="a detached process")


def test_a_name_can_be_used_again_once_its_end_was_noted(tree):
    os.kill(tree.spawn("a"), signal.SIGKILL)
    tree.ask("exited", instance="a")
    assert "already" in tree.ask("spawn", instance="a")["refused"]
    tree.ask("forget", instance="a")
    assert alive(tree.spawn("a"))


def test_forgetting_a_living_runner_ends_it(tree):
    process = seen(tree.spawn("a"))
    tree.ask("forget", instance="a")
    all_gone([process], within_s=2, what="a forgotten runner")


def test_a_spawn_that_was_given_up_leaves_no_runner(tree):
    assert tree.ask("spawn_and_leave", instance="a") is True
    state = tree.state()
    until(lambda: {p.pid for p in descendants(state["keeper_pid"])} == {state["pid"]}, within_s=5, what="no child but the control plane")


@pytest.mark.parametrize(
    ("order", "reason"),
    [
        ({"argv": ["/no/such/program"]}, "No such file"),
        ({"argv": ["/etc/passwd"]}, "Permission denied"),
        ({"cwd": "/no/such/folder"}, "/no/such/folder"),
        ({"cwd": "relative"}, "absolute"),
        ({"argv": ["/bin/true", "a\0b"]}, "argv"),
        ({"env": {"A=B": "c"}}, "A=B"),
        ({"limits": {"open_files": -1}}, "open_files"),
    ],
)
def test_what_can_not_be_started_is_refused_in_one_line(tree, order, reason):
    answer = tree.ask("spawn", instance="a", **order)
    assert reason in answer["refused"] and "\n" not in answer["refused"]
    assert alive(tree.spawn("a"))  # the name is free, and the keeper goes on


def test_a_large_assignment_arrives_whole(tree):
    tree.spawn("a", padding=8_000_000)
    assert tree.facts("a")["assignment_bytes"] > 8_000_000


def test_want_of_descriptors_is_a_refusal_and_passes(start):
    if shutil.which("prlimit") is None:
        pytest.skip("no prlimit on this machine")
    tree = start(command=["prlimit", "--nofile=60:60", sys.executable, "-I"])
    pids, refused = {}, ""
    for number in range(60):
        answer = tree.ask("spawn", instance=f"i{number}", argv=["/bin/sleep", "600"])
        if "refused" in answer:
            refused = answer["refused"]
            break
        pids[f"i{number}"] = answer["pid"]
    assert "open files" in refused and len(pids) > 5
    assert all(alive(pid) for pid in pids.values())
    for name in list(pids)[:4]:
        tree.ask("forget", instance=name)
    until(lambda: sum(alive(pid) for pid in pids.values()) == len(pids) - 4, within_s=2, what="the end of the forgotten runners")
    assert alive(tree.spawn("again", argv=["/bin/sleep", "600"]))


def test_output_comes_through_the_pipe(tree):
    tree.spawn("a")
    tree.facts("a", do="print", text="hello\n")
    assert tree.ask("output", instance="a") == {"bytes": 6, "text": "hello\n"}


def test_a_hundred_runners_leak_no_descriptor(start):
    tree = start()
    tree.spawn("warm")
    keeper, control = tree.keeper_pid(), tree.state()["pid"]
    before = descriptors(keeper), descriptors(control)
    spawns = [tree.ask("spawn", instance=f"i{number}")["took_s"] for number in range(count(100, long=1000))]
    for number in range(len(spawns)):
        tree.ask("signal", instance=f"i{number}", number=signal.SIGKILL)
        tree.ask("exited", instance=f"i{number}")
        tree.ask("forget", instance=f"i{number}")
    until(
        lambda: descriptors(keeper) <= before[0] and descriptors(control) <= before[1],
        within_s=2,
        what=f"descriptors as before: {before}",
    )
    print(f"spawn: median {statistics.median(spawns) * 1000:.2f} ms, slowest {max(spawns) * 1000:.2f} ms")
