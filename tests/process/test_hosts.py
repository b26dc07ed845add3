"""Instances that share a process: each is told of, signalled and ended alone, and all go with the process."""

import os
import signal

import pytest

from tests.harness.processes import alive, all_gone, descendants, descriptors, seen
from tests.harness.waiting import until


def no_child_but_the_control_plane(tree):
    state = tree.state()
    until(lambda: {p.pid for p in descendants(state["keeper_pid"])} == {state["pid"]}, within_s=5, what="the host's end")


def test_members_of_one_name_share_a_process_and_others_don_t(tree):
    pids = {name: tree.spawn(name, host="h") for name in ("a", "b")}
    assert pids["a"] == pids["b"]
    assert tree.spawn("c", host="other") not in pids.values()
    assert tree.spawn("d") not in pids.values()
    assert [tree.facts(name)["outer"] for name in ("a", "b")] == list(pids.values())
    tree.facts("b", do="print", text="b's\n")
    assert tree.ask("output", instance="b")["text"] == "b's\n"
    assert tree.facts("a")["members"] == 2


def test_a_member_that_leaves_is_told_with_code_0_and_the_others_go_on(tree):
    pid = tree.spawn("a", host="h")
    tree.spawn("b", host="h")
    tree.facts("a", do="leave")
    assert tree.ask("exited", instance="a") == {"code": 0, "signal": None, "max_rss_bytes": 0, "cpu_s": 0.0}
    tree.ask("forget", instance="a")
    assert tree.spawn("a", host="h") == pid == tree.facts("b")["outer"]


def test_the_last_member_s_end_ends_the_host_and_the_next_begins_another(tree):
    pid = tree.spawn("a", host="h")
    process = seen(pid)
    tree.facts("a", do="leave")
    assert tree.ask("exited", instance="a")["code"] == 0
    all_gone([process], within_s=3, what="a host without members")
    assert tree.spawn("b", host="h") != pid


def test_sigterm_to_a_member_asks_it_alone(tree):
    tree.spawn("a", host="h")
    tree.spawn("b", host="h")
    tree.ask("signal", instance="a", number=signal.SIGTERM)
    assert tree.ask("exited", instance="a")["code"] == 0
    assert tree.facts("b")["stopped"] is None


def test_sigkill_to_a_member_ends_its_host(tree):
    process = seen(tree.spawn("a", host="h", mode="stubborn"))
    tree.spawn("b", host="h")
    tree.ask("signal", instance="a", number=signal.SIGTERM)
    assert tree.facts("a")["stopped"] == pytest.approx(0.8)
    tree.ask("signal", instance="a", number=signal.SIGKILL)
    assert [tree.ask("exited", instance=name)["signal"] for name in ("a", "b")] == [signal.SIGKILL] * 2
    all_gone([process], within_s=2, what="a killed host")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_host_s_death_is_each_member_s(tree, number):
    pid = tree.spawn("a", host="h")
    tree.spawn("b", host="h")
    os.kill(pid, number)
    for name in ("a", "b"):
        end = tree.ask("exited", instance=name)
        assert (end["code"], end["signal"]) == (None, number)
        tree.ask("forget", instance=name)
    assert alive(tree.spawn("a", host="h"))


def test_a_host_that_exits_ends_its_members_with_its_code(tree):
    tree.spawn("a", host="h")
    tree.spawn("b", host="h")
    assert tree.facts("a", do="exit", code=7) is None
    assert [tree.ask("exited", instance=name)["code"] for name in ("a", "b")] == [7, 7]


def test_a_successor_finds_the_members(tree):
    pid = tree.spawn("a", host="h", memo={"model": "a"})
    tree.spawn("b", host="h", memo={"model": "b"})
    tree.facts("b", do="leave")
    tree.ask("exited", instance="b")
    tree.kill_control()
    state = tree.state()
    assert state["adopted"]["a"] == {"pid": pid, "memo": {"model": "a"}}
    assert tree.ask("exited", instance="b")["code"] == 0
    assert tree.facts("a")["epochs"] == [1, 2]
    assert tree.spawn("c", host="h") == pid


def test_forgetting_a_member_ends_it_alone(tree):
    pid = tree.spawn("a", host="h")
    tree.spawn("b", host="h")
    tree.ask("forget", instance="a")
    until(lambda: tree.facts("b")["members"] == 1, within_s=2, what="the end of the forgotten member")
    assert tree.spawn("a", host="h") == pid


def test_a_member_that_does_not_hear_that_it_was_forgotten_takes_its_host_along(tree):
    tree.spawn("a", host="h")
    tree.spawn("b", host="h", mode="deaf")
    tree.ask("forget", instance="b")
    assert tree.ask("exited", instance="a")["signal"] == signal.SIGKILL


def test_a_host_that_drops_a_member_s_channel_is_ended(tree):
    tree.spawn("a", host="h")
    tree.spawn("b", host="h")
    tree.facts("a", do="close")
    assert [tree.ask("exited", instance=name)["signal"] for name in ("a", "b")] == [signal.SIGKILL] * 2


def test_a_host_that_breaks_the_rules_is_ended(tree):
    tree.spawn("a", host="h")
    tree.spawn("b", host="h", mode="garbage")
    assert [tree.ask("exited", instance=name)["signal"] for name in ("a", "b")] == [signal.SIGKILL] * 2
    assert "broke the rules" in tree.said()


def test_a_host_that_can_t_be_started_is_refused_for_each_member(tree):
    assert "No such file" in tree.ask("spawn", instance="a", host="h", argv=["/no/such/program"])["refused"]
    assert alive(tree.spawn("a", host="h"))


def test_a_member_that_was_given_up_leaves_no_process(tree):
    assert tree.ask("spawn_and_leave", instance="a", host="h") is True
    no_child_but_the_control_plane(tree)


def test_a_drain_ends_hosts_too(tree):
    process = seen(tree.spawn("a", host="h"))
    tree.spawn("b", host="h", mode="stubborn")
    tree.main.send_signal(signal.SIGTERM)
    assert tree.main.wait(20) == 0
    all_gone([process], within_s=1, what="a host after the drain")


def test_coming_and_going_leaks_no_descriptor(tree):
    tree.spawn("stays", host="h")
    keeper = tree.keeper_pid()
    tree.facts("stays")
    before = descriptors(keeper)
    for number in range(50):
        tree.spawn(f"i{number}", host="h")
        tree.facts(f"i{number}", do="leave")
        tree.ask("exited", instance=f"i{number}")
        tree.ask("forget", instance=f"i{number}")
    until(lambda: descriptors(keeper) <= before, within_s=2, what=f"descriptors as before: {before}")
