"""Control planes come and go; runners, their pids and the listening socket stay."""

import contextlib
import os
import signal
import socket
import time

import pytest

from tests.harness.processes import alive, descriptors
from tests.harness.sockets import wait_read
from tests.harness.waiting import until


def test_a_successor_finds_runners_with_their_pids_and_memos(tree):
    pids = {name: tree.spawn(name, memo={"model": name, "n": 1}) for name in ("a", "b")}
    old, new = tree.kill_control()
    state = tree.state()
    assert new != old and state["pid"] == new
    assert state["epoch"] == 2
    assert state["adopted"] == {name: {"pid": pid, "memo": {"model": name, "n": 1}} for name, pid in pids.items()}
    assert tree.facts("a")["epochs"] == [1, 2]
    assert tree.facts("b")["outer"] == pids["b"]
    assert tree.ask("spawn", instance="c")["pid"]


def test_a_successor_learns_how_a_runner_ended_meanwhile(tree):
    pid = tree.spawn("a")
    tree.spawn("b")
    tree.facts("a", do="print", text="last words\n")
    control = tree.state()["pid"]
    os.kill(control, signal.SIGSTOP)
    os.kill(pid, signal.SIGABRT)
    until(lambda: not alive(pid), within_s=2, what="the runner's end")
    os.kill(control, signal.SIGKILL)
    until(lambda: not alive(control), within_s=2, what="the control plane's end")
    assert set(tree.state()["adopted"]) == {"a", "b"}
    assert tree.ask("exited", instance="a")["signal"] == signal.SIGABRT
    assert tree.ask("output", instance="a", least=11)["text"] == "last words\n"
    tree.ask("forget", instance="a")
    tree.kill_control()
    assert set(tree.state()["adopted"]) == {"b"}


def test_connections_that_wait_are_served_by_the_successor(start):
    tree = start()
    control = tree.state()["pid"]
    os.kill(control, signal.SIGSTOP)
    waiting = [tree.connect() for _ in range(20)]
    os.kill(control, signal.SIGKILL)
    began = time.monotonic()
    epochs = {tree.ask_on(connection, "state")["epoch"] for connection in waiting}
    assert epochs == {2}
    assert time.monotonic() - began < 2.0
    for connection in waiting:
        connection.close()


def test_a_connection_of_the_killed_one_is_closed_within_two_seconds(tree):
    tree.spawn("a")
    control = tree.state()["pid"]
    with tree.connect() as connection:
        connection.sendall(b'{"do": "exited", "instance": "a"}\n')
        wait_read(connection)
        os.kill(control, signal.SIGKILL)
        connection.settimeout(2)
        with pytest.raises(ConnectionResetError):
            assert connection.recv(1) == b""
            raise ConnectionResetError
    tree.state()


def test_many_deaths_in_a_row_leak_nothing(tree):
    tree.spawn("a")
    keeper = tree.keeper_pid()
    tree.kill_control()
    before = descriptors(keeper)
    for _ in range(4):
        tree.kill_control()
    until(lambda: descriptors(keeper) <= before, within_s=1, what=f"{before} descriptors")
    assert tree.facts("a")["epochs"] == [1, 2, 3, 4, 5, 6]


def test_a_control_plane_that_ends_by_itself_is_started_again(tree):
    pid = tree.spawn("a")
    with pytest.raises(ConnectionError):
        tree.ask("exit", code=0)
    assert tree.state()["epoch"] == 2
    assert tree.facts("a")["outer"] == pid


def test_a_control_plane_that_never_serves_ends_the_node_in_one_line(start):
    tree = start(plan={"start": "crash"})
    assert tree.wait(within_s=20) == 1
    tree.nothing_left()
    assert len((tree.data / "starts").read_text().split()) == 5
    assert len([line for line in tree.lines() if "5 times in a row" in line]) == 1


def test_an_unusable_store_ends_the_node_with_the_control_planes_own_line(start):
    tree = start(plan={"start": "unusable"})
    assert tree.wait(within_s=10) == 1
    tree.nothing_left()
    assert tree.lines() == ["fornada: the store was written by a newer release"]


def test_a_program_that_can_not_be_executed_ends_the_node(start):
    tree = start(control=["/no/such/program"])
    assert tree.wait(within_s=20) == 1
    assert "No such file" in tree.said()


def test_a_successor_that_hangs_ends_the_node_after_the_grace_time(start):
    tree = start(node={"grace_s": 1.0})
    tree.spawn("a")
    tree.plan({"start": "hang"})
    began = time.monotonic()
    os.kill(tree.state()["pid"], signal.SIGKILL)
    assert tree.wait(within_s=10) == 1
    assert time.monotonic() - began >= 1.0
    tree.nothing_left()
    assert "grace_s" in tree.lines()[-1]


@pytest.mark.parametrize("text", ["x", "\xff" * 50, "\x02\x00\x00\x00" + "\x63" + "\x00" * 15 + "[]"])
def test_a_control_plane_that_speaks_nonsense_is_replaced(tree, text):
    pid = tree.spawn("a")
    with contextlib.suppress(ConnectionError):
        tree.ask("raw", text=text)
    until(lambda: (tree.answers() or {}).get("epoch") == 2, within_s=10, what="a successor")
    assert tree.facts("a")["outer"] == pid
    assert any("rules of the wire" in line for line in tree.lines())


def test_orders_that_make_no_sense_are_ignored_with_a_line(tree):
    head = b'{"instance": 3, "signal": "x"}'
    for kind in (65, 68, 70, 72, 99):
        tree.ask("raw", text=(len(head).to_bytes(4, "little") + bytes([kind]) + bytes(15) + head).decode("latin-1"))
    until(lambda: len([line for line in tree.lines() if "ignored" in line]) == 5, within_s=5, what="each is told of once")
    assert tree.state()["epoch"] == 1


def test_the_settings_and_the_socket_are_given_to_each_control_plane(tree):
    before = tree.state()
    assert before["stdin"] == "/dev/null"
    tree.kill_control()
    after = tree.state()
    assert after["settings"] == before["settings"]
    assert after["settings"]["data_dir"] == str(tree.data)
    assert after["descriptors"] <= before["descriptors"]
    with socket.create_connection(("127.0.0.1", tree.port)):
        pass
