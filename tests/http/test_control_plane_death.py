"""kill -9 of the control plane under load: no caller hangs, no runner notices, the next one serves on."""

import json
import os
import time
from functools import partial

import pytest

from fornada.keeper.levels import Level
from tests.bounds import bound
from tests.harness.client import Address, Closed, Connection, Head, Response
from tests.harness.fixtures import StartNode
from tests.harness.node import Node, run_path
from tests.harness.processes import alive, kill, seen
from tests.harness.waiting import Background, until
from tests.harness.walls import lacking, uid

CALLERS = 20
STREAMS = 5


def call(node: Node, model: str) -> tuple[float, Response | None]:
    """When the caller knew how it ended, and the answer, if it got one."""
    with node.connect(timeout_s=15) as connection:
        connection.send_request("POST", run_path(model), json.dumps({"sleep_s": 10}).encode())
        try:
            answer = connection.read_response()
        except (Closed, ConnectionResetError):
            answer = None
        return time.monotonic(), answer


def read_stream(connection: Connection, head: Head) -> tuple[float, list[str], bool]:
    with connection:
        stream = connection.rest_of_events(head)
    return stream.ended_at, [event.data for event in stream.events], stream.complete


@pytest.mark.parametrize("level", ["auto", "none"])
def test_no_caller_hangs_and_the_runners_serve_on(new_node: StartNode, level: str):
    node = new_node(flags=["--isolation", level]).start()
    model, streamer = "@test/calls", "@test/streams"
    node.deploy_probe(model, serving={"concurrency": CALLERS})
    node.deploy_probe(streamer, serving={"concurrency": STREAMS})
    before = {name: node.load(name)["instances"][0] for name in (model, streamer)}
    runners = [seen(instance["pid"]) for instance in before.values()]
    control = seen(node.control_pid)
    walls = [(uid(runner.pid), os.readlink(f"/proc/{runner.pid}/ns/mnt")) for runner in runners]
    if level == "auto" and not lacking(Level.NAMESPACES):
        assert len({space for _, space in walls}) == len(runners) and os.readlink("/proc/self/ns/mnt") not in dict(walls).values()

    with Background() as background:
        calls = [background.start(partial(call, node, model)) for _ in range(CALLERS)]
        connections = open_streams(node, streamer)
        heads = [begun(connection) for connection in connections]
        streams = [background.start(partial(read_stream, *opened)) for opened in zip(connections, heads, strict=True)]
        until(lambda: node.model(model)["instances"][0]["in_flight"] == CALLERS, within_s=5, what="all calls run")
        until(lambda: node.model(streamer)["instances"][0]["in_flight"] == STREAMS, within_s=5, what="all streams run")
        killed_at = time.monotonic()
        kill(control.pid)
        for future in calls:
            ended_at, answer = future.result()
            assert ended_at - killed_at <= bound(2)
            assert answer is None or answer.status in (200, 502, 503), answer
        for ended in streams:
            ended_at, events, complete = ended.result()
            assert ended_at - killed_at <= bound(2)
            assert "[DONE]" not in events, "a broken stream must not look like a finished one"
            assert not complete, "a broken stream must not have its final chunk"

    node.wait_next_control_plane(after_pid=control.pid, within_s=5)
    print(f"ready again {time.monotonic() - killed_at:.3f} s after the kill")
    assert alive(node.control_pid)
    assert all(runner.alive for runner in runners), "runners keep their pids"
    assert [(uid(runner.pid), os.readlink(f"/proc/{runner.pid}/ns/mnt")) for runner in runners] == walls
    for name, instance in before.items():
        answer = node.ask(name, {"echo": "still here"}, timeout_s=15)
        assert (answer["pid"], answer["instance"]) == (instance["pid"], instance["id"])
        assert answer["load_count"] == 1
    until(lambda: orphaned(node) >= CALLERS + STREAMS, within_s=5, what="what nobody waits for any more is counted")
    assert node.stop() == 0


def orphaned(node: Node) -> float:
    return node.metrics().total("fornada_requests_orphaned_total")


def begun(connection: Connection) -> Head:
    """The head of a stream whose first item has arrived, too."""
    head = connection.read_head()
    next(connection.read_events())
    return head


def open_streams(node: Node, model: str) -> list[Connection]:
    return [node.open_stream(model, {"steps": 200, "step_s": 0.05}) for _ in range(STREAMS)]


def test_a_control_plane_that_dies_again_and_again_comes_back_each_time(new_node: StartNode):
    node = new_node().start()
    model = "@test/survivor"
    node.deploy_probe(model)
    first = node.ask(model, {"echo": 0})
    for number in range(1, 4):
        pid = node.control_pid
        kill(pid)
        node.wait_next_control_plane(after_pid=pid)
        answer = node.ask(model, {"echo": number})
        assert (answer["pid"], answer["load_count"], answer["echo"]) == (first["pid"], 1, number)
    nodes = node.fetch("GET", "/api/v1/nodes").json()
    assert str(node.control_pid) in json.dumps(nodes)
    assert node.stop() == 0


def answering(address: Address, model: str) -> int:
    """The pid of the instance that answers; 0: nobody does. Asks without run/node.json."""
    try:
        with Connection(address, 10) as connection:
            connection.send_request("POST", run_path(model), b'{"echo": 1}')
            answer = connection.read_response()
    except (Closed, ConnectionError):
        return 0
    return int(json.loads(answer.body)["result"]["pid"]) if answer.status == 200 else 0


def test_a_successor_serves_without_a_place_for_its_file_and_writes_it_once_there_is(new_node: StartNode):
    node = new_node().start()
    model, file, died, address = "@test/file", node.data_dir / "run" / "node.json", node.control_pid, node.address
    node.deploy_probe(model)
    before = node.load(model)["instances"][0]["pid"]
    file.unlink()
    file.mkdir()  # what no file can replace stands for a disk that takes none
    kill(died)
    until(lambda: not alive(died), within_s=5, what="the control plane is gone")
    assert until(lambda: answering(address, model), within_s=10, what="a successor answers") == before
    drafts = {path.name for path in file.parent.glob("node.*")} - {"node.json"}
    assert not drafts, "half a file is left"
    file.rmdir()
    until(file.is_file, within_s=10, what="the file is written")
    assert node.control_pid != died and alive(node.control_pid)
