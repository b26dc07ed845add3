"""Builds: their log, their end, their cancellation; a control plane's death doesn't stop them."""

import os
import signal
import stat
import sys

from tests.harness.processes import all_gone, descendants, seen
from tests.harness.waiting import until

PYTHON = [sys.executable, "-I", "-S", "-c"]


def test_a_build_writes_its_log_and_tells_its_end(tree, tmp_path):
    log = tmp_path / "build.log"
    code = "import os, sys; print('out'); print('err', file=sys.stderr); print(sorted(os.listdir('/proc/self/fd'))); sys.exit(4)"
    assert tree.ask("build", name="b", argv=[*PYTHON, code], log=str(log)) == {"code": 4, "signal": None}
    text = log.read_text()
    assert "out" in text and "err" in text and "['0', '1', '2', '3']" in text  # 3 is the listed folder itself
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert tree.ask("build", name="b", argv=["true"], log=str(log)) == {"code": 0, "signal": None}  # found by PATH


def test_a_build_that_can_not_start_is_refused_in_one_line(tree, tmp_path):
    log = str(tmp_path / "build.log")
    assert "No such file" in tree.ask("build", name="b", argv=["/no/such"], log=log)["refused"]
    assert "/no/such/folder" in tree.ask("build", name="b", argv=["true"], log="/no/such/folder/log")["refused"]
    os.mkfifo(tmp_path / "fifo")
    assert "can't" in tree.ask("build", name="b", argv=["true"], log=str(tmp_path / "fifo"))["refused"]
    assert tree.ask("build", name="b", argv=["true"], log=log)["code"] == 0


def test_a_cancelled_build_is_gone_with_its_children_before_the_caller_goes_on(tree, tmp_path):
    marker = tmp_path / "started"
    script = f"sleep 600 & echo $! > {marker}; wait"
    tree.ask("build", name="b", argv=["/bin/sh", "-c", script], log=str(tmp_path / "log"), wait=False)
    until(lambda: marker.exists() and marker.read_text().strip(), within_s=5, what="the build's child")
    before = [process for process in descendants(tree.keeper_pid()) if process.name in ("sh", "sleep")]
    assert len(before) == 2
    answer = tree.ask("cancel", name="b")
    assert answer["cancelled"] is True and answer["took_s"] < 2
    all_gone(before, within_s=1, what="the build")
    assert tree.ask("build", name="b", argv=["true"], log=str(tmp_path / "log"))["code"] == 0


def test_a_build_goes_on_without_its_control_plane_and_can_be_joined(tree, tmp_path):
    go = tmp_path / "go"
    os.mkfifo(go)
    order = {"name": "b", "argv": ["/bin/sh", "-c", f"read x < {go}; exit 5"], "log": str(tmp_path / "log")}
    tree.ask("build", **order, wait=False)
    until(lambda: [p for p in descendants(tree.main.pid) if p.name == "sh"], within_s=5, what="the build")
    (build,) = [p for p in descendants(tree.main.pid) if p.name == "sh"]
    tree.kill_control()
    assert build.alive
    assert tree.state()["builds"] == ["b"]
    assert "already" in tree.ask("build", name="b", argv=["true"], log=order["log"])["refused"]
    tree.ask("build", **order, wait=False)
    go.write_text("now\n")
    assert tree.ask("joined", name="b") == {"code": 5, "signal": None}
    tree.kill_control()
    assert tree.state()["builds"] == []


def test_a_successor_may_end_a_build(tree, tmp_path):
    tree.ask("build", name="b", argv=["sleep", "600"], log=str(tmp_path / "log"), wait=False)
    (build,) = until(lambda: [p for p in descendants(tree.main.pid) if p.name == "sleep"], within_s=5, what="the build")
    tree.kill_control()
    tree.ask("end_build", name="b")
    all_gone([build], within_s=2, what="the build")
    until(lambda: tree.state()["builds"] == [], within_s=2, what="its record is gone")


def test_a_killed_build_is_told_with_its_signal(tree, tmp_path):
    tree.ask("build", name="b", argv=["sleep", "600"], log=str(tmp_path / "log"), wait=False)
    (build,) = until(lambda: [p for p in descendants(tree.main.pid) if p.name == "sleep"], within_s=5, what="the build")
    os.kill(seen(build.pid).pid, signal.SIGKILL)
    assert tree.ask("joined", name="b") == {"code": None, "signal": signal.SIGKILL}
