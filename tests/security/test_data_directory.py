"""One node a data directory; a disk that is full is named; nothing half-written stays; nobody else can read it."""

import contextlib
import errno
import json
import os
import random
import shutil
import sqlite3
import subprocess
from pathlib import Path

import pytest

from tests.bounds import bound
from tests.harness.bundles import archive
from tests.harness.fixtures import StartNode
from tests.harness.node import FORNADA, Node, node_environ
from tests.harness.waiting import until

MIB = 1024 * 1024
PIECE = 64 * 1024
CODE = "def handle_request(request, context):\n    return {'ok': True}\n"


def refused(*arguments: object) -> str:
    """The one line with which `fornada serve` refuses to start."""
    command = [str(FORNADA), "serve", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=bound(20), env=node_environ(), check=False)
    assert done.returncode not in (0, None), done
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1 and "Traceback" not in done.stderr, done.stderr
    assert not done.stdout.strip()
    return lines[0]


def test_a_second_node_on_a_data_directory_is_refused_in_one_line(new_node: StartNode):
    node = new_node().start()
    node.deploy("@test/first", archive({"model.py": CODE}))
    line = refused("--port", 0, "--data-dir", node.data_dir)
    assert str(node.data_dir) in line
    assert node.ask("@test/first", {}) == {"ok": True}, "the first one isn't disturbed"
    assert node.record["main_pid"] == node.process.pid
    assert node.stop() == 0


def test_a_lock_of_a_killed_node_doesn_t_last(new_node: StartNode):
    node = new_node().start()
    node.kill()
    node.start()
    assert node.stop() == 0


def test_a_taken_port_is_refused_in_one_line(new_node: StartNode, tmp_path: Path):
    node = new_node().start()
    assert str(node.address[1]) in refused("--port", node.address[1], "--data-dir", tmp_path / "other")
    assert node.ready()
    assert node.stop() == 0


def test_a_store_of_a_newer_release_is_refused_and_left_as_it_is(new_node: StartNode):
    node = new_node().start()
    assert node.stop() == 0
    store = node.data_dir / "store.sqlite"
    with sqlite3.connect(store) as database:
        (version,) = database.execute("PRAGMA user_version").fetchone()
        database.execute(f"PRAGMA user_version = {max(version, 1) + 1000}")
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        for table in ("meta", "schema_version", "info"):
            if table in tables:
                database.execute(f"UPDATE {table} SET value = '100000' WHERE key IN ('schema', 'schema_version', 'version')")
    database.close()
    before = store.read_bytes()
    line = refused("--port", 0, "--data-dir", node.data_dir)
    assert "store" in line and "newer" in line
    assert store.read_bytes() == before


def test_a_store_that_is_none_is_refused_and_left_as_it_is(new_node: StartNode):
    node = new_node()
    node.data_dir.mkdir(parents=True)
    (node.data_dir / "store.sqlite").write_bytes(b"this is no database, and it is somebody's" * 100)
    before = (node.data_dir / "store.sqlite").read_bytes()
    assert "store" in refused("--port", 0, "--data-dir", node.data_dir)
    assert (node.data_dir / "store.sqlite").read_bytes() == before


def test_a_data_directory_that_can_t_be_one_is_refused_in_one_line(tmp_path: Path):
    (tmp_path / "file").write_text("")
    assert str(tmp_path / "file") in refused("--port", 0, "--data-dir", tmp_path / "file")
    assert refused("--port", 0, "--data-dir", "/proc/no/such/place")


def test_only_its_owner_can_read_what_the_node_keeps(own_node: Node):
    own_node.deploy("@test/private", archive({"model.py": CODE}))
    own_node.ask("@test/private", {})
    assert not own_node.data_dir.stat().st_mode & 0o077 or not (own_node.data_dir / "store.sqlite").stat().st_mode & 0o077


# ---- a full disk --------------------------------------------------------------------------------------------------------------


def small_disk(new_node: StartNode, size: str) -> Node:
    """A node whose data directory is a tmpfs in a mount namespace of its own; skips where that can't be had."""
    if os.geteuid() != 0:
        pytest.skip("a small disk takes a mount namespace, which takes root")
    if not shutil.which("unshare") or subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine gives no mount namespace")
    node = new_node()
    node.data_dir.mkdir(parents=True)
    script = 'mount -t tmpfs -o "size=$1,mode=700" fornada-test "$2" && shift 2 && exec "$@"'
    node.prefix = ["unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh", size, str(node.data_dir)]
    return node.start()


def free_bytes(node: Node) -> int:
    found = os.statvfs(node.files)
    return found.f_bavail * found.f_frsize


def test_a_full_disk_is_named_and_nothing_half_written_stays(new_node: StartNode):
    node = small_disk(new_node, "48m")
    node.deploy("@test/small", archive({"model.py": CODE}))
    assert node.ask("@test/small", {}) == {"ok": True}
    room = free_bytes(node)
    noise = random.Random(5).randbytes(room + 4 * MIB)
    answer = node.put("@test/large", archive({"model.py": CODE, "weights.bin": noise}))
    assert answer.status == 507, (answer.status, answer.body[:500])
    assert answer.code == 3107 and str(node.data_dir) in answer.message
    assert node.fetch("GET", "/api/v1/models/@test/large").status == 404
    until(lambda: free_bytes(node) >= room - MIB // 2, within_s=3, what="the space is given back")

    ballast = node.files / "scratch" / "ballast"
    fill(ballast, free_bytes(node) - 16 * 1024)
    for number in range(20):
        assert node.ask("@test/small", {"n": number}) == {"ok": True}, "what is loaded serves on a full disk"
    answer = node.put("@test/more", archive({"model.py": CODE, "data.bin": random.Random(6).randbytes(MIB)}))
    assert (answer.status, answer.code) == (507, 3107), answer.body
    assert str(node.data_dir) in answer.message
    assert node.ready() and node.fetch("GET", "/metrics").status == 200
    ballast.unlink()
    node.deploy("@test/more", archive({"model.py": CODE}))
    assert node.ask("@test/more", {}) == {"ok": True}
    assert node.stop() == 0


def test_a_disk_that_is_full_at_the_start_is_named_or_served_from(new_node: StartNode):
    node = small_disk(new_node, "48m")
    node.deploy("@test/small", archive({"model.py": CODE}))
    node.ask("@test/small", {})
    ballast = node.files / "scratch" / "ballast"
    fill(ballast, free_bytes(node) - 4096)
    node.unload("@test/small")
    answer = node.run("@test/small", {})
    assert answer.status in (200, 503, 507), answer.body
    if answer.status != 200:
        assert str(node.data_dir) in answer.message
    ballast.unlink()
    node.act("@test/small", "reset")
    assert node.ask("@test/small", {}) == {"ok": True}
    assert node.stop() == 0


def test_a_full_disk_keeps_no_key_alive(new_node: StartNode):
    node = small_disk(new_node, "48m")
    inside = ["nsenter", "--target", str(node.process.pid), "--mount", "--", str(FORNADA), "keys"]

    def keys(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [*inside, *arguments, "--data-dir", str(node.data_dir), "--json"]
        return subprocess.run(command, capture_output=True, text=True, timeout=bound(30), env=node_environ(), check=False)

    made = [json.loads(keys("create", "--account", "local", "--role", "user").stdout) for _ in range(2)]
    bearers = [{"authorization": f"Bearer {each['key']}"} for each in made]
    until(lambda: node.fetch("GET", "/v1/models").status == 401, within_s=5, what="open no longer")
    for _ in range(2):
        fill(node.files / "scratch" / "ballast", 64 * MIB)
        assert free_bytes(node) == 0
        until(lambda: node.fetch("GET", "/v1/models", headers=bearers[-1]).status == 200, within_s=5, what="it serves")
        ended = keys("revoke", made.pop()["id"])
        assert ended.returncode == 0, ended.stderr
        last = bearers.pop()
        until(lambda: node.fetch("GET", "/v1/models", headers=last).status == 401, within_s=5, what="shut out")  # noqa: B023
        (node.files / "scratch" / "ballast").unlink()
        audit = (node.files / "logs" / "audit.log").read_text()
        assert audit.count("revokeKey") == 2 - len(made)
        keys("list")
        assert (node.files / "reserve").stat().st_size > 0, "for the next time"
    assert node.stop() == 0


def fill(path: Path, count: int) -> None:
    """So many bytes, or as many as there is room for: the node writes, too, meanwhile."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    with contextlib.closing(os.fdopen(descriptor, "wb", buffering=0)) as file:
        while count > 0:
            try:
                count -= file.write(bytes(min(count, PIECE)))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                return
