"""One control plane takes another's place, or doesn't and nothing has happened."""

import json
import os
import signal
import socket
import stat
import sys
import threading
import time
from functools import partial

import pytest

from fornada.app.upgrade import UpgradeFailed, order
from tests.bounds import bound
from tests.harness.processes import alive, descriptors
from tests.harness.waiting import Background, until
from tests.process.tree import FAKE_CONTROL


def is_gone(pid):
    return not alive(pid)


class Asked:
    """The outcome of an order, with what was told on the way."""

    def __init__(self):
        self.steps = []
        self.failed = ""


def upgrade(tree, word="second", argv=None, asked=None):
    until(lambda: (tree.data / "port").exists(), within_s=15, what="a control plane")
    asked = asked or Asked()
    settings = json.dumps({"data_dir": str(tree.data), "word": word}).encode()
    try:
        order(tree.data, argv=argv or [*FAKE_CONTROL, word], release=word, settings=settings, told=asked.steps.append)
    except UpgradeFailed as failure:
        asked.failed = str(failure)
    return asked


def test_the_new_one_serves_with_all_there_was_and_the_old_one_ends(tree):
    pids = {name: tree.spawn(name, memo={"n": name}) for name in ("a", "b")}
    before = tree.state()
    asked = upgrade(tree)
    assert not asked.failed and len(asked.steps) == 3, (asked.failed, asked.steps)
    state = tree.state()
    assert state["words"] == ["second"] and state["epoch"] == 2 and state["pid"] != before["pid"]
    assert state["adopted"] == {name: {"pid": pid, "memo": {"n": name}} for name, pid in pids.items()}
    assert state["settings"]["word"] == "second"
    assert tree.facts("a")["outer"] == pids["a"]
    until(lambda: not alive(before["pid"]), within_s=5, what="the old one's end")
    until(lambda: tree.state()["story"] == ["left"], within_s=5, what="the new one hears of it")
    assert not tree.state()["predecessor"]
    assert state["keeper_pid"] == before["keeper_pid"]
    assert tree.ask("spawn", instance="c")["pid"]


def test_again_and_again_and_after_a_crash_it_is_the_newest_code(tree):
    tree.spawn("a")
    keeper = tree.keeper_pid()
    for word in ("second", "third"):
        old = tree.state()["pid"]
        assert not upgrade(tree, word).failed
        until(partial(is_gone, old), within_s=5, what="the old one's end")
    before = descriptors(keeper)
    for _ in range(2):
        tree.kill_control()
        state = tree.state()
        assert state["words"] == ["third"] and state["settings"]["word"] == "third"
    old = state["pid"]
    assert not upgrade(tree, "fourth").failed
    until(lambda: not alive(old), within_s=5, what="the old one's end")
    assert tree.state()["words"] == ["fourth"]
    until(lambda: descriptors(keeper) <= before, within_s=3, what=f"{before} descriptors")
    assert tree.facts("a")["epochs"] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("begins", "told"),
    [
        ("crash", "exited with code 3"),
        ("unusable", "exited with code 78"),
        ("refuse", "it will not"),
        ("crash welcomed", "exited with code 4"),
    ],
)
def test_a_new_one_that_fails_changes_nothing(tree, begins, told):
    pid = tree.spawn("a")
    before = tree.state()
    tree.plan({"start": begins})
    asked = upgrade(tree)
    assert told in asked.failed
    after = until(tree.answers, within_s=5, what="an answer")
    assert (after["pid"], after["epoch"]) == (before["pid"], before["epoch"])
    assert after["story"] == ([] if begins in ("crash", "unusable", "refuse") else ["let go", "resume"])
    assert tree.facts("a")["outer"] == pid
    assert tree.ask("spawn", instance="b")["pid"]
    assert len([line for line in tree.lines() if "failed" in line]) == 1
    tree.plan({})
    assert not upgrade(tree, "third").failed
    assert tree.state()["words"] == ["third"]
    assert set(tree.state()["adopted"]) == {"a", "b"}


def test_a_new_one_that_hangs_with_everything_in_its_hands_is_given_up(start):
    tree = start()
    tree.spawn("a")
    before = tree.state()["pid"]
    tree.plan({"start": "hang welcomed"})
    began = time.monotonic()
    assert "didn't serve within" in upgrade(tree).failed
    assert time.monotonic() - began >= 10
    assert tree.state()["pid"] == before
    assert tree.facts("a")["outer"]


def test_one_that_has_something_half_done_stays(start):
    tree = start(plan={"let_go": "refuse"})
    before = tree.state()["pid"]
    assert "half done" in upgrade(tree).failed
    assert tree.state()["pid"] == before


def test_a_new_one_that_is_killed_before_its_turn_changes_nothing(start):
    tree = start(plan={"let_go": "ignore"})
    before = tree.state()
    with Background() as background:
        asked = background.start(lambda: upgrade(tree))
        new = until(lambda: [pid for pid in starts(tree) if pid != before["own_pid"]], within_s=15, what="the new one")[0]
        until(lambda: "let go" in tree.state()["story"], within_s=15, what="the order to let go")
        second = upgrade(tree, "third")
        assert "another upgrade, to second, is under way" in second.failed
        os.kill(new, signal.SIGKILL)
        assert "SIGKILL" in asked.result().failed
    assert tree.state()["pid"] == before["pid"]
    assert tree.state()["story"] == ["let go", "resume"]


def starts(tree):
    return [int(pid) for pid in (tree.data / "starts").read_text().split()]


def test_an_old_one_that_is_killed_while_it_looks_for_a_moment_is_succeeded(start):
    tree = start(plan={"let_go": "crash"})
    pid = tree.spawn("a")
    tree.plan({})
    assert not upgrade(tree).failed
    state = tree.state()
    assert state["words"] == ["second"] and state["adopted"]["a"]["pid"] == pid
    assert tree.facts("a")["outer"] == pid


def test_an_old_one_that_is_killed_with_its_successor_is_started_again(start):
    tree = start()
    pid = tree.spawn("a")
    old = tree.state()
    tree.plan({"start": "hang welcomed"})
    said = Asked()
    with Background() as background:
        asked = background.start(lambda: upgrade(tree, asked=said))
        until(lambda: len(said.steps) == 3, within_s=15, what="the one that served has let go")
        tree.plan({})
        os.kill(old["pid"], signal.SIGKILL)
        until(lambda: not alive(old["pid"]), within_s=2, what="its end")
        os.kill(starts(tree)[1], signal.SIGKILL)
        assert "SIGKILL" in asked.result().failed
    state = until(tree.answers, within_s=10, what="a control plane")
    assert state["words"] == [] and state["adopted"]["a"]["pid"] == pid
    assert tree.facts("a")["outer"] == pid


def test_a_stop_ends_the_upgrade_and_then_the_node(start):
    tree = start(plan={"let_go": "ignore"})
    tree.spawn("a")
    with Background() as background:
        asked = background.start(lambda: upgrade(tree))
        until(lambda: "let go" in tree.state()["story"], within_s=15, what="the order to let go")
        tree.signal(signal.SIGTERM)
        assert "stopping" in asked.result().failed
    assert tree.wait(within_s=10) == 0
    tree.nothing_left()
    assert not (tree.data / "run" / "upgrade.sock").exists()


def test_a_stop_in_the_middle_of_the_handover_ends_all(start):
    tree = start()
    tree.spawn("a")
    tree.plan({"start": "hang welcomed"})
    said = Asked()
    with Background() as background:
        asked = background.start(lambda: upgrade(tree, asked=said))
        until(lambda: len(said.steps) == 3, within_s=15, what="the one that served has let go")
        tree.signal(signal.SIGTERM)
        assert "stopping" in asked.result().failed
    assert tree.wait(within_s=15) == 0
    tree.nothing_left()


def test_an_upgrade_is_refused_while_the_node_stops(start):
    tree = start(plan={"drain": "ignore"}, node={"drain_s": 3, "kill_s": 1})
    tree.state()
    tree.signal(signal.SIGTERM)
    until(lambda: "stopping" in upgrade(tree).failed, within_s=2, what="the refusal")
    assert tree.wait(within_s=20) == 1


def test_who_stays_on_after_it_was_replaced_is_ended(start):
    tree = start(plan={"leave": "stay"}, node={"drain_s": 1, "kill_s": 1})
    old = tree.state()["pid"]
    tree.plan({})
    assert not upgrade(tree).failed
    assert "still finishes its answers" in upgrade(tree, "third").failed
    until(lambda: not alive(old), within_s=8, what="its end")
    assert tree.state()["words"] == ["second"]


def test_a_connection_that_rests_is_given_to_the_successor(tree):
    with tree.connect() as connection:
        connection.sendall(b'{"do": "keep"}\n')
        until(lambda: tree.state(), within_s=5, what="an answer")
        assert not upgrade(tree).failed
        assert tree.ask_on(connection, "state")["words"] == ["second"]


def test_connections_wait_for_the_successor(tree):
    """Many come all the time; none is refused or cut."""
    over = threading.Event()
    heard: list[set[tuple[str, ...]]] = [set() for _ in range(4)]

    def ask(words):
        while not over.is_set():
            words.add(tuple(tree.state()["words"]))

    with Background() as background:
        callers = [background.start(partial(ask, words)) for words in heard]
        try:
            until(lambda: all(words == {()} for words in heard), within_s=10, what="the first answers each")
            assert not upgrade(tree).failed
            until(lambda: all(("second",) in words for words in heard), within_s=10, what="the second answers each")
        finally:
            over.set()
        for caller in callers:
            caller.result()
    assert all(words == {(), ("second",)} for words in heard)


def test_a_runner_that_ends_meanwhile_is_told_to_both(start):
    tree = start(plan={"leave": "stay"}, node={"drain_s": 3, "kill_s": 1})
    tree.spawn("a")
    tree.plan({})
    assert not upgrade(tree).failed
    tree.ask("signal", instance="a", number=int(signal.SIGKILL))
    assert tree.ask("exited", instance="a")["signal"] == signal.SIGKILL


def test_what_the_keeper_started_is_not_listened_to(tree):
    """Without walls a model has our uid, and would be the node with one message."""
    tree.state()
    asks = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect(sys.argv[1]); "
        "s.settimeout(5); print('heard' if s.recv(1) else 'closed')"
    )
    log = tree.folder / "log"
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {asks!r}, sys.argv[1]], check=True)"
    path = os.path.relpath(tree.data / "run" / "upgrade.sock", "/")  # the build's folder; a socket's path has 107 bytes at most
    end = tree.ask("build", name="asks", argv=[sys.executable, "-c", script, path], log=str(log))
    assert end["code"] == 0, log.read_text()
    assert log.read_text().split() == ["closed"]


def test_no_node_no_upgrade(tmp_path):
    (tmp_path / "run").mkdir()
    for _ in range(2):
        with pytest.raises(UpgradeFailed, match="no node runs"):
            order(tmp_path, argv=["/bin/true"], release="2", settings=b"{}", told=print)
        (tmp_path / "run" / "lock").touch()


def test_the_socket_is_ours_alone_and_nonsense_is_closed(tree):
    tree.state()
    path = tree.data / "run" / "upgrade.sock"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
        stranger.settimeout(bound(3))
        stranger.connect(os.path.relpath(path))
        stranger.send(b"nonsense")
        assert stranger.recv(100) == b""
    assert "argv" in upgrade(tree, argv=[3]).failed
    assert "code 127" in upgrade(tree, argv=["/no/such/program"]).failed
    assert tree.state()["words"] == []
