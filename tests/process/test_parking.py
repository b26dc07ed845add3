"""Parked instances, with a real keeper: they take no time, and every end is theirs like anybody's."""

import os
import signal
import time

import pytest

from tests.bounds import bound
from tests.harness.processes import all_gone, read_stat, seen
from tests.harness.waiting import until

PROMISED_S = 1.0
"""After the keeper was killed."""


def state(pid: int) -> str:
    stat = read_stat(pid)
    return stat.state if stat is not None else "gone"


def park(tree, *names: str) -> None:
    for name in names:
        tree.ask("signal", instance=name, number=signal.SIGSTOP)


def stopped(*pids: int) -> None:
    until(lambda: {state(pid) for pid in pids} == {"T"}, within_s=5, what=f"{pids} are stopped")


def busy_child(tree, name: str) -> int:
    """A process of the instance that never rests."""
    pid = int(tree.facts(name, do="spin"))
    until(lambda: (stat := read_stat(pid)) is not None and stat.cpu_s > 0, within_s=5, what="its work")
    return pid


def cpu_s(pid: int) -> float:
    """CPU seconds of a process that must be there."""
    stat = read_stat(pid)
    assert stat is not None
    return stat.cpu_s


def test_all_processes_of_a_parked_instance_take_no_time_and_go_on_with_the_first_word(start):
    tree = start()
    one, other = tree.spawn("one"), tree.spawn("other")
    below, left = busy_child(tree, "one"), int(tree.facts("one", do="child"))
    park(tree, "one")
    stopped(one, below, left)
    before = cpu_s(below)
    time.sleep(0.5)  # the time that it must not take
    assert cpu_s(below) == before
    assert tree.facts("other")["outer"] == other and state(other) != "T"
    tree.ask("signal", instance="one", number=signal.SIGCONT)
    assert tree.facts("one")["outer"] == one
    until(lambda: cpu_s(below) > before, within_s=5, what="its child works again")
    assert tree.lines() == []


def test_what_is_sent_to_a_parked_instance_waits_in_its_socket(start):
    tree = start()
    pid = tree.spawn("a")
    tree.facts("a")
    park(tree, "a")
    stopped(pid)
    with tree.connect() as asking:
        asking.sendall(b'{"do": "ask", "instance": "a"}\n')
        asking.settimeout(0.3)
        with pytest.raises(TimeoutError):
            asking.recv(1)
        tree.ask("signal", instance="a", number=signal.SIGCONT)
        asking.settimeout(bound(5))
        assert asking.recv(1)


def test_parking_and_continuing_again_and_again_changes_nothing(start):
    tree = start()
    pid = tree.spawn("a")
    for _ in range(50):
        park(tree, "a", "a")
        tree.ask("signal", instance="a", number=signal.SIGCONT)
        assert tree.facts("a")["outer"] == pid
    tree.ask("signal", instance="a", number=signal.SIGCONT)
    assert tree.facts("a")["outer"] == pid


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_a_parked_instance(start, number):
    tree = start()
    pid = tree.spawn("a")
    below = busy_child(tree, "a")
    park(tree, "a")
    stopped(pid, below)
    tree.ask("signal", instance="a", number=number)
    assert tree.ask("exited", instance="a")["signal"] == number
    all_gone([process for process in tree.all() if process.pid in (pid, below)], within_s=2, what="the instance")


def test_a_drain_ends_parked_instances(start):
    tree = start()
    pids = [tree.spawn(f"i{number}") for number in range(5)]
    park(tree, *(f"i{number}" for number in range(5)))
    stopped(*pids)
    tree.all()
    began = time.monotonic()
    tree.signal(signal.SIGTERM)
    assert tree.wait(within_s=5) == 0
    assert time.monotonic() - began < bound(1), "somebody was waited for until he was killed"
    tree.nothing_left(within_s=0.1)
    assert tree.lines() == []


def test_ten_parked_instances_are_gone_with_the_keeper(start):
    tree = start()
    pids = [tree.spawn(f"i{number}") for number in range(10)]
    pids += [int(tree.facts(f"i{number}", do="child")) for number in range(10)]
    park(tree, *(f"i{number}" for number in range(10)))
    stopped(*pids)
    tree.all()
    os.kill(tree.keeper_pid(), signal.SIGKILL)
    tree.nothing_left(within_s=PROMISED_S)


def test_a_successor_hears_of_parked_instances_and_may_park_them_again(start):
    tree = start()
    pid = tree.spawn("a")
    tree.facts("a")
    park(tree, "a")
    stopped(pid)
    tree.kill_control()
    assert tree.facts("a")["epochs"] == [1, 2]
    park(tree, "a")
    stopped(pid)
    tree.ask("signal", instance="a", number=signal.SIGCONT)
    assert tree.facts("a")["outer"] == pid


def test_who_shares_a_process_is_not_stopped(start):
    tree = start()
    pid = tree.spawn("one", host="h")
    assert tree.spawn("two", host="h") == pid
    park(tree, "one", "two")
    for name in ("one", "two"):
        assert tree.facts(name)["outer"] == pid
    assert state(pid) != "T"


def test_a_killed_parked_instance_is_told_and_its_name_free(start):
    tree = start()
    pid = tree.spawn("a")
    process = seen(pid)
    park(tree, "a")
    stopped(pid)
    os.kill(pid, signal.SIGKILL)
    assert tree.ask("exited", instance="a")["signal"] == signal.SIGKILL
    tree.ask("forget", instance="a")
    assert not process.alive
    again = tree.spawn("a")
    assert tree.facts("a")["outer"] == again
