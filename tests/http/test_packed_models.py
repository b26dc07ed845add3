"""Models without code that share a process: each is loaded, asked, seen, logged and ended alone."""

import functools
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import fornada.models
from tests.harness.bundles import archive
from tests.harness.client import Response
from tests.harness.fixtures import StartNode
from tests.harness.node import Node
from tests.harness.processes import all_gone, kill, seen
from tests.harness.waiting import Background, until
from tests.models.environments import artifact, spec_of
from tests.models.onnx_file import LEAST, divided_model, scaled_model

pytestmark = [pytest.mark.packages, pytest.mark.timeout(300)]
MODELS = Path(fornada.models.__path__[0])
HALF, TRIPLE, FACES, DIVIDE, BUSY = "@test/half", "@test/triple", "@test/faces", "@test/divide", "@test/busy"
FACTORS = {HALF: 0.5, TRIPLE: 3.0}
PICTURE = [[[[((row * 7 + column * 3) % 256) / 128 - 1] * 3 for column in range(128)] for row in range(128)]]


def requirements() -> str:
    """One lock for both engines: an environment that onnx and litert models share."""
    blocks: dict[str, str] = {}
    for slug in ("magika", "movenet"):
        for block in (MODELS / slug / "requirements.lock").read_text().replace("\n    --hash", "\t--hash").splitlines():
            blocks[block.split("==")[0]] = block.replace("\t", "\n    ")
    return "\n".join(blocks[name] for name in sorted(blocks)) + "\n"


def bundle(name: str, weights: bytes, *, serving: str = "", env: str = "") -> bytes:
    engine, file = ("litert", "m.tflite") if name.startswith(FACES) else ("onnx", "m.onnx")
    packages = 'dependencies = ["onnxruntime==1.32.0", "ai-edge-litert==2.3.0", "numpy==2.4.6", "pillow==13.0.0"]'
    toml = f'name = "{name}"\nengine = "{engine}"\n[python]\n{packages}\n[serving]\n{serving}\n[env]\n{env}\n'
    return archive({"model.toml": toml, file: weights, "requirements.lock": requirements()})


@functools.cache
def faces() -> bytes:
    """The catalogue's face detector, as it comes."""
    folder = MODELS / "face-detection"
    return artifact(folder, spec_of(folder).artifacts[0]).read_bytes()


@pytest.fixture(scope="module")
def everybody_s(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """One node for all: its environment takes seconds to build."""
    node = Node(tmp_path_factory.mktemp("packed")).start()
    try:
        for name, factor in FACTORS.items():
            node.deploy(name, bundle(name, scaled_model(factor)))
        yield node
        assert node.stop() == 0, node.said()
    finally:
        node.destroy()


@pytest.fixture
def packed(everybody_s: Node) -> Iterator[Node]:
    """A node with two models that may share a process, and nothing running."""
    node = everybody_s
    yield node
    for name in dict.fromkeys(node.deployed):
        if name not in FACTORS:
            node.remove(name)
    node.deployed = list(FACTORS)
    for name in FACTORS:
        assert node.act(name, "reset").status == 200
        node.unload(name)
    until(lambda: not list((node.data_dir / "scratch").iterdir()), within_s=10, what="everything has ended")


ONE_ROW = {"inputs": {"x": [[1, -2]]}}


def ask(node: Node, name: str) -> None:
    """The right answer, or a failure."""
    assert node.ask(name, ONE_ROW, timeout_s=60)["outputs"]["y"] == [[FACTORS[name], -2 * FACTORS[name]]]


def pid(node: Node, name: str) -> int:
    (found,) = node.pids(name)
    return found


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def why(node: Node, name: str) -> dict:
    answer = node.fetch("GET", f"/api/v1/models/{name}/why")
    return dict(json.loads(answer.body))


def test_both_engines_answer_right_side_by_side_in_one_process(packed: Node):
    packed.deploy(FACES, bundle(FACES, faces()))
    packed.deploy(FACES + "-alone", bundle(FACES + "-alone", faces(), serving="packed = false"))
    for name in (HALF, TRIPLE):
        ask(packed, name)
    told = [packed.run(name, {"inputs": {"input": PICTURE}}, timeout_s=60) for name in (FACES, FACES + "-alone")]
    assert told[0].result["outputs"] == told[1].result["outputs"], "the same weights, the same answer, shared or not"
    assert {len(rows[0]) for rows in told[0].result["outputs"].values()} == {896}
    shared = {pid(packed, name) for name in (HALF, TRIPLE, FACES)}
    assert len(shared) == 1 and pid(packed, FACES + "-alone") not in shared
    hosts = {packed.model(name)["instances"][0]["host"] for name in (HALF, TRIPLE, FACES)}
    assert len(hosts) == 1 and packed.model(FACES + "-alone")["instances"][0]["host"] == ""
    assert "shares with 2 others" in packed.model(HALF)["why"]
    assert "declined" in why(packed, FACES + "-alone")["process"]["alone_because"]
    for name in (HALF, TRIPLE):
        ask(packed, name)


def test_one_is_ended_and_comes_back_alone(packed: Node):
    for name in FACTORS:
        ask(packed, name)
    host = seen(pid(packed, HALF))
    loads = packed.model(HALF)["instances"][0]["loads"]
    packed.unload(HALF)
    assert packed.state(HALF) == "stopped" and packed.state(TRIPLE) == "ready"
    ask(packed, TRIPLE)
    packed.load(HALF)
    assert pid(packed, HALF) == pid(packed, TRIPLE) == host.pid
    assert packed.model(HALF)["instances"][0]["loads"] == loads + 1
    for name in FACTORS:
        packed.unload(name)
    all_gone([host], within_s=5, what="a process that nobody shares any more")
    scratch = packed.data_dir / "scratch"
    until(lambda: not list(scratch.iterdir()), within_s=5, what="no directory is left of them")
    ask(packed, HALF)


def test_coming_and_going_leaves_nothing_in_the_process(packed: Node):
    ask(packed, TRIPLE)
    host = pid(packed, TRIPLE)

    def held() -> tuple[int, int]:
        return resident(host), len(os.listdir(f"/proc/{host}/fd"))

    for _ in range(3):
        ask(packed, HALF)
        packed.unload(HALF)
    until(lambda: len(packed.pids(HALF)) == 0, within_s=5, what="its end")
    before = held()
    for _ in range(15):
        ask(packed, HALF)
        packed.unload(HALF)
    assert pid(packed, TRIPLE) == host
    until(lambda: held()[1] <= before[1], within_s=2, what=f"{before[1]} descriptors")
    assert held()[0] - before[0] < 2 * 1024**2


def test_what_is_said_of_memory_is_each_one_s_own(packed: Node):
    names = ("@test/one", "@test/other")  # none of them has ever had a process of its own
    for name in names:
        packed.deploy(name, bundle(name, scaled_model(2.0)))
        packed.load(name)
    rss = resident(pid(packed, names[0]))
    views = [packed.model(name) for name in names]
    assert all(0 <= view["instances"][0]["resident_bytes"] < rss / 2 for view in views)
    assert all(view["peak_bytes"] < rss / 2 for view in views)
    (cpu,) = [device for device in packed.fetch("GET", "/api/v1/devices").json()["devices"] if device["id"] == "cpu"]
    assert cpu["used_bytes"] < 1.5 * rss, "the process that they share is counted once"


def test_what_can_t_share_gets_a_process_of_its_own(packed: Node):
    for name, more in {"@test/env": {"env": 'A = "1"'}, "@test/wide": {"serving": "concurrency = 2"}}.items():
        packed.deploy(name, bundle(name, scaled_model(2.0), **more))
        packed.load(name)
    ask(packed, HALF)
    assert len({pid(packed, name) for name in (HALF, "@test/env", "@test/wide")}) == 3


def test_a_failed_load_is_told_to_its_own_callers_and_log(packed: Node):
    ask(packed, HALF)
    packed.deploy("@test/broken", bundle("@test/broken", b"this is no network"))
    answer = packed.run("@test/broken", {"inputs": {"x": [[1, 1]]}}, timeout_s=60)
    assert (answer.status, answer.code) == (503, 3102), answer.body
    assert any("m.onnx" in line["line"] for line in packed.log_lines("@test/broken"))
    assert not any("m.onnx" in line["line"] for line in packed.log_lines(HALF))
    ask(packed, HALF)
    ask(packed, TRIPLE)
    assert pid(packed, HALF) == pid(packed, TRIPLE)


def test_kill_9_of_the_process_is_everybody_s_end_and_nobody_s_but_the_worker_s_fault(packed: Node):
    for name in FACTORS:
        ask(packed, name)
    for round in (1, 2):
        host = pid(packed, HALF)
        assert pid(packed, TRIPLE) == host
        assert under_way(packed, HALF, host).status == 502
        until(lambda: packed.state(TRIPLE) == "stopped", within_s=5, what="the bystander has ended")
        assert "SIGKILL" not in str(why(packed, TRIPLE)["last_failure"]), "it did nothing"
        for name in FACTORS:
            ask(packed, name)
        assert (pid(packed, HALF) == pid(packed, TRIPLE)) == (round == 1)
    assert "2 times" in why(packed, HALF)["process"]["alone_because"]
    assert packed.act(HALF, "reset").status == 200
    packed.unload(HALF)
    ask(packed, HALF)
    assert pid(packed, HALF) == pid(packed, TRIPLE), "a reset forgives"


def under_way(node: Node, name: str, host: int) -> Response:
    """Kills the process while it has a request of that model, and gives that request's answer."""
    os.kill(host, signal.SIGSTOP)
    with Background() as background:
        asked = background.start(lambda: node.run(name, {"inputs": {"x": [[1, 1]]}}, timeout_s=30))
        until(lambda: node.model(name)["instances"][0]["in_flight"] == 1, within_s=5, what="the request is there")
        kill(host)
        return asked.result()


def test_a_model_that_crashes_the_library_takes_the_others_down_twice_at_most(packed: Node):
    packed.deploy(DIVIDE, bundle(DIVIDE, divided_model()))
    packed.deploy(BUSY, bundle(BUSY, scaled_model(2.0)))
    for crash in (1, 2, 3):
        for name in FACTORS:
            ask(packed, name)
        assert packed.ask(DIVIDE, {"inputs": {"a": [[6, 9]], "b": [[2, -3]]}}, timeout_s=60)["outputs"]["y"] == [[3, -3]]
        host, divider = pid(packed, HALF), pid(packed, DIVIDE)
        assert pid(packed, TRIPLE) == host and (divider == host) == (crash < 3)
        with Background() as background:
            # At work at one of the deaths, for all that can be told it may have been its doing.
            beside = background.start(lambda: [packed.run(BUSY, ONE_ROW, timeout_s=60) for _ in range(40)] if crash == 1 else [])  # noqa: B023
            answer = packed.run(DIVIDE, {"inputs": {"a": [[LEAST, 1]], "b": [[-1, 1]]}}, timeout_s=60)
        failed = [each for each in beside.result() if each.status != 200]
        assert len(failed) <= 1 and all((each.status, each.code) == (502, 3101) for each in failed), failed
        assert (answer.status, answer.code) == (502, 3101), answer.body
        assert "ended by SIGFPE" in answer.body.decode() and "modules" not in answer.body.decode()
        until(lambda divider=divider: divider not in packed.pids(DIVIDE), within_s=5, what="its end is known")  # type: ignore[misc]
        if crash == 3:
            assert pid(packed, HALF) == host
    assert "2 times" in why(packed, DIVIDE)["process"]["alone_because"]
    for name in FACTORS:
        assert "SIGFPE" not in str(why(packed, name)["last_failure"]), "it did nothing"
        ask(packed, name)


def test_a_successor_of_the_control_plane_goes_on_with_every_member(packed: Node):
    for name in FACTORS:
        ask(packed, name)
    before = {name: packed.model(name)["instances"][0] for name in FACTORS}
    control = packed.control_pid
    kill(control)
    packed.wait_next_control_plane(after_pid=control)
    for name in FACTORS:
        ask(packed, name)
        now = packed.model(name)["instances"][0]
        assert {key: now[key] for key in ("id", "pid", "host", "loads")} == {
            key: before[name][key] for key in ("id", "pid", "host", "loads")
        }
    packed.unload(HALF)
    ask(packed, TRIPLE)
    ask(packed, HALF)
    assert pid(packed, HALF) == pid(packed, TRIPLE) == before[HALF]["pid"], why(packed, HALF)["process"]


def test_a_full_process_is_followed_by_another(new_node: StartNode):
    node = new_node(config="[node]\nkill_s = 2\npacked_members = 2\n").start()
    names = [f"@test/x{number}" for number in range(5)]
    for name in names:
        node.deploy(name, bundle(name, scaled_model(1.0)))
        node.load(name)
    pids = [pid(node, name) for name in names]
    assert sorted(pids.count(each) for each in set(pids)) == [1, 2, 2]
    assert node.stop() == 0


def test_other_models_don_t_notice(packed: Node):
    packed.deploy_probe("@test/stream")
    for name in FACTORS:
        ask(packed, name)
    with Background() as background:
        events = background.start(lambda: packed.stream("@test/stream", {"steps": 20, "step_s": 0.05}))
        until(lambda: packed.model("@test/stream")["instances"] and packed.state("@test/stream") == "ready", within_s=10, what="it streams")
        kill(pid(packed, HALF))
        for name in FACTORS:
            until(lambda name=name: not packed.pids(name), within_s=5, what="its end is known")  # type: ignore[misc]
            ask(packed, name)
        assert events.result().complete
