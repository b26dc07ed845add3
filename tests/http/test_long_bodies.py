"""Bodies of up to 60 MB in both directions, at the highest level of isolation and at none: they go through shared files, and arrive whole.

At the end of a control plane its files go too, and an answer that it hadn't taken yet is not lost to the runner.
"""

import os
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.harness.bundles import archive
from tests.harness.client import Closed
from tests.harness.fixtures import Probe, StartNode
from tests.harness.node import Node, run_path
from tests.harness.processes import kill, read_stat, resident_bytes
from tests.harness.waiting import Background, until

NAME = "@test/mirror"
MODEL = """
import time
import fornada_sdk

class Model(fornada_sdk.Model):
    def run(self, request, context):
        time.sleep(float(request.query.get("sleep_s", 0)))
        return request.body.bytes
"""
TOML = """
name = "@test/mirror"

[serving]
max_body = "64MiB"
concurrency = 4
"""
OCTETS = {"content-type": "application/octet-stream"}


@pytest.fixture(params=["full", "none"])
def mirror(new_node: StartNode, request: pytest.FixtureRequest) -> Iterator[Node]:
    """A node that serves NAME, which answers with what it is sent."""
    node = new_node(flags=["--isolation", request.param])
    node.spawn()
    try:
        node.wait_ready()
    except AssertionError:
        if request.param == "full":
            pytest.skip("this machine doesn't give level full")
        raise
    node.deploy(NAME, archive({"model.toml": TOML, "model.py": MODEL}))
    node.load(NAME)
    yield node
    if node.running:
        assert node.stop() == 0, node.said()


def some(size: int, *, seed: int) -> bytes:
    return random.Random(seed).randbytes(size)


def reflect(node: Node, body: bytes, *, sleep_s: float = 0.0) -> bytes:
    answer = node.fetch("POST", f"{run_path(NAME)}?sleep_s={sleep_s}", body, headers=OCTETS, timeout_s=60)
    assert answer.status == 200, answer.body[:500]
    return answer.body


def files(pid: int) -> dict[str, int]:
    """The shared files that a process has open, and the bytes of memory in each."""
    found = {}
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            name = os.readlink(entry)
            if name.startswith("/memfd:fornada-"):
                found[name.removeprefix("/memfd:fornada-").partition(" ")[0]] = entry.stat().st_blocks * 512
        except FileNotFoundError:
            continue
    return {name: size for name, size in found.items() if name in ("requests", "answers")}


def runner(node: Node) -> int:
    pid: int = node.model(NAME)["instances"][0]["pid"]
    return pid


def test_long_bodies_arrive_whole_through_shared_files(mirror: Node):
    assert reflect(mirror, b"short") == b"short"
    assert files(mirror.control_pid) == {}, "nothing is made before it is needed"
    for number in range(2):  # the first offers the files, the second uses them
        body = some(150_000, seed=number)
        assert reflect(mirror, body) == body
    for pid in (mirror.control_pid, runner(mirror)):
        assert {name: size > 100_000 for name, size in files(pid).items()} == {"requests": True, "answers": True}
    for number, size in enumerate([65_516, 65_536, 65_537, 150_000, 6_000_000, 60_000_000, 6_000_000]):
        body = some(size, seed=100 + number)
        assert reflect(mirror, body) == body, size
    held = files(mirror.control_pid)
    assert 60_000_000 <= held["requests"] < 62_000_000, "pages are used again"


def test_more_at_a_time_than_the_files_hold_goes_in_parts(mirror: Node):
    for _ in range(2):
        reflect(mirror, some(150_000, seed=1))
    bodies = [some(20_000_000, seed=number) for number in range(6)]
    with Background() as background:
        asked = [background.start(partial(reflect, mirror, body, sleep_s=0.5)) for body in bodies]
        for future, body in zip(asked, bodies, strict=True):
            assert future.result() == body
    assert files(mirror.control_pid)["answers"] <= 64 * 1024**2


def test_nothing_is_left_of_a_runner_that_has_ended(mirror: Node):
    for _ in range(3):
        reflect(mirror, some(150_000, seed=1))
    mirror.unload(NAME)
    mirror.wait_state(NAME, "stopped")
    assert files(mirror.control_pid) == {}
    assert reflect(mirror, b"short") == b"short"
    assert files(mirror.control_pid) == {}


def test_a_killed_control_plane_takes_no_answer_with_it(mirror: Node):
    for _ in range(2):
        reflect(mirror, some(150_000, seed=1))
    process = runner(mirror)
    control = mirror.control_pid
    with Background() as background:
        lost = [background.start(partial(reflect, mirror, some(6_000_000, seed=number), sleep_s=1.0)) for number in range(3)]
        until(lambda: mirror.model(NAME)["instances"][0]["in_flight"] == 3, within_s=10, what="all are at work")
        kill(control)
        for future in lost:
            with pytest.raises((Closed, ConnectionError, AssertionError)):
                future.result()
    mirror.wait_next_control_plane(after_pid=control)
    until(lambda: mirror.metrics().total("fornada_requests_orphaned_total") == 3, within_s=10, what="the successor is told of all three")
    for number in range(3):
        body = some(6_000_000, seed=10 + number)
        assert reflect(mirror, body) == body
    assert runner(mirror) == process
    assert read_stat(process) is not None
    until(lambda: len(files(process)) == 2 and len(files(mirror.control_pid)) == 2, within_s=5, what="the successor's files alone are open")
    names = [os.readlink(entry) for entry in Path(f"/proc/{process}/fd").iterdir()]
    assert len([name for name in names if "fornada-requests" in name or "fornada-answers" in name]) == 2


def test_a_body_takes_its_bytes_however_small_its_chunks_are(node: Node, probe: Probe):
    name = probe()
    node.load(name)
    pid, before = node.control_pid, resident_bytes(node.control_pid)
    total = 4 * 1024 * 1024
    chunks = b"2\r\n  \r\n" * 1000
    with node.connect(timeout_s=60) as connection:
        connection.send_request("POST", run_path(name), None, {"content-type": "application/json", "transfer-encoding": "chunked"})
        connection.send(b"1\r\n{\r\n")
        for _ in range(total // 2000):
            connection.send(chunks)
        grown = resident_bytes(pid) - before
        connection.send(b"1\r\n}\r\n0\r\n\r\n")
        assert connection.read_response().status == 200
    assert grown < 4 * total, "an object for each chunk"
