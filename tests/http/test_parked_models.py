"""Models without requests are stopped: they take no time, and the next request finds them ready."""

import os
import signal
import statistics
import time
from pathlib import Path

import pytest

from tests.bounds import bound, count
from tests.harness.fixtures import StartNode
from tests.harness.node import DEFAULT_CONFIG, Node
from tests.harness.processes import Process, all_gone, descendants, read_stat
from tests.harness.waiting import Background, until
from tests.http.test_upgrade import checkout, upgrade

PARK_S = 0.3
HANG_S = 5.0
"""A request that takes so long has found nobody: what it costs is measured in bench/."""


CONFIG = f"{DEFAULT_CONFIG}park_after_s = {PARK_S}\n"


@pytest.fixture
def parking(new_node: StartNode) -> Node:
    return new_node(config=CONFIG).start()


def parked(node: Node, model: str) -> bool:
    (instance,) = node.model(model)["instances"]
    return bool(instance["parked"])


def processes(node: Node, model: str) -> list[Process]:
    (instance,) = node.model(model)["instances"]
    pid = int(instance["pid"])
    own = [process for process in node.tree() if process.pid == pid]
    return [*own, *descendants(pid)]


def wait_parked(node: Node, model: str) -> None:
    until(lambda: parked(node, model), within_s=10, what=f"{model} is parked")
    until(lambda: all(_state(p) == "T" for p in processes(node, model)), within_s=5, what="its processes are stopped")


def _state(process: Process) -> str:
    stat = read_stat(process.pid)
    return stat.state if stat is not None else "gone"


def test_a_model_without_requests_takes_no_time_and_its_next_request_finds_it_ready(parking: Node):
    parking.deploy_probe("@local/a", settings={"hold_mib": 20})
    first = parking.ask("@local/a", {"echo": 1})
    wait_parked(parking, "@local/a")
    assert parking.state("@local/a") == "ready"
    assert parking.metrics().total("fornada_instances_parked") == 1
    before = [read_stat(process.pid) for process in processes(parking, "@local/a")]
    time.sleep(0.5)  # the time that it must not take
    after = [read_stat(process.pid) for process in processes(parking, "@local/a")]
    assert [stat.cpu_s for stat in after if stat] == [stat.cpu_s for stat in before if stat]
    again = parking.ask("@local/a", {"echo": 2}, timeout_s=HANG_S)
    assert (again["pid"], again["echo"]) == (first["pid"], 2)
    assert not parked(parking, "@local/a")
    wait_parked(parking, "@local/a")


def test_parking_again_and_again_loses_no_request(parking: Node):
    parking.deploy_probe("@local/a")
    parking.ask("@local/a", {"echo": 0})
    took_s, times_parked = [], 0
    for number in range(count(40, long=2000)):
        if number % 4 == 0:
            wait_parked(parking, "@local/a")
            times_parked += 1
        else:  # any moment around the parking
            time.sleep(PARK_S + number % 7 * 0.01 - 0.03)
        began = time.monotonic()
        assert parking.ask("@local/a", {"echo": number}, timeout_s=HANG_S)["echo"] == number
        took_s.append(time.monotonic() - began)
    assert parking.loads("@local/a") == 1
    assert max(took_s) < bound(HANG_S)
    print(
        f"after {times_parked} waits for it to be parked: median {statistics.median(took_s) * 1000:.1f} ms, most {max(took_s) * 1000:.1f}"
    )


def test_a_stream_under_way_is_not_parked_and_a_child_of_the_model_is_stopped_with_it(parking: Node):
    parking.deploy_probe("@local/a")
    stream = parking.stream("@local/a", {"steps": 4, "step_s": 3 * PARK_S})
    assert len(stream.items) == 4 and stream.done
    parking.ask("@local/a", {"fork_child": True})
    until(lambda: len(processes(parking, "@local/a")) == 2, within_s=5, what="its child")
    wait_parked(parking, "@local/a")
    assert len(processes(parking, "@local/a")) == 2


def test_one_that_declines_is_never_stopped(parking: Node):
    parking.deploy_probe("@local/a", serving={"park": False})
    parking.deploy_probe("@local/b")
    parking.ask("@local/a", {"echo": 1})
    parking.ask("@local/b", {"echo": 1})
    wait_parked(parking, "@local/b")
    assert not parked(parking, "@local/a")


def test_every_end_finds_a_parked_model(parking: Node):
    for name in ("@local/a", "@local/b", "@local/c"):
        parking.deploy_probe(name, serving={"idle_timeout_s": 2 if name == "@local/b" else 300})
        parking.ask(name, {"echo": 1})
    wait_parked(parking, "@local/a")
    began = time.monotonic()
    assert parking.unload("@local/a").status == 200
    assert time.monotonic() - began < bound(1.5), "it was killed at the end of kill_s"
    parking.wait_state("@local/b", "stopped", within_s=10)
    # The death of the control plane: its successor hears of what is parked, and parks it again.
    wait_parked(parking, "@local/c")
    pid, old = parking.pids("@local/c"), parking.control_pid
    os.kill(old, signal.SIGKILL)
    parking.wait_next_control_plane(after_pid=old)
    assert parking.pids("@local/c") == pid
    wait_parked(parking, "@local/c")
    assert parking.ask("@local/c", {"echo": 3}, timeout_s=HANG_S)["pid"] == pid[0]
    wait_parked(parking, "@local/c")
    assert parking.stop() == 0, parking.said()


def test_parked_models_are_gone_with_the_keeper(parking: Node):
    names = [f"@local/m{number}" for number in range(10)]
    for name in names:
        parking.deploy_probe(name)
        parking.ask(name, {"echo": 1})
    for name in names:
        wait_parked(parking, name)
    tree = parking.tree()
    os.kill(parking.keeper_pid, signal.SIGKILL)
    all_gone(tree, within_s=1, what="processes of a killed keeper")


def test_an_upgrade_finds_parked_models_and_stops_nothing_that_its_predecessor_works_on(new_node: StartNode, tmp_path: Path):
    began = time.monotonic()
    parking = new_node(config=CONFIG.replace("drain_s = 5", "drain_s = 60")).start()
    # On a busy machine too the stream outlasts the upgrade, which is a start of the command and one of a control plane, and not the drain.
    step_s = min(max(bound(PARK_S), (time.monotonic() - began) * 6 / 16), 2.5)
    for name in ("@local/parked", "@local/works"):
        parking.deploy_probe(name)
        parking.ask(name, {"echo": 1})
    wait_parked(parking, "@local/parked")
    pids = {name: parking.pids(name) for name in ("@local/parked", "@local/works")}
    old = parking.control_pid
    with Background() as background:
        stream = background.start(lambda: parking.stream("@local/works", {"steps": 16, "step_s": step_s}))
        until(lambda: parking.model("@local/works")["instances"][0]["in_flight"], within_s=5, what="the stream is under way")
        done = upgrade(parking, checkout(tmp_path, "7.0.0"))
        assert done.returncode == 0, done.stderr
        parking.wait_next_control_plane(after_pid=old)
        assert parking.ask("@local/parked", {"echo": 2}, timeout_s=HANG_S)["pid"] == pids["@local/parked"][0]
        assert not stream.done(), "it was over before anything could be stopped: this proves nothing"
        events = stream.result(bound(20) + 16 * step_s)
    assert len(events.items) == 16 and events.done
    for name in pids:
        wait_parked(parking, name)
        assert parking.pids(name) == pids[name]
        assert parking.ask(name, {"echo": 3}, timeout_s=HANG_S)["echo"] == 3
