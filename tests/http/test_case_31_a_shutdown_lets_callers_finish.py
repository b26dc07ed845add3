"""Case 31: SIGTERM. What runs finishes, what comes is refused politely, and nothing waits for nothing."""

import signal
import time
from functools import partial

import pytest

from tests.bounds import bound
from tests.harness.client import Connection
from tests.harness.fixtures import StartNode
from tests.harness.node import Node
from tests.harness.waiting import Background, until

DRAIN_S = 5


def test_what_is_in_flight_finishes_and_what_comes_is_refused_politely(new_node: StartNode):
    node = new_node().start()
    model, streamer = "@test/calls", "@test/streams"
    node.deploy_probe(model, serving={"concurrency": 5})
    node.deploy_probe(streamer)
    node.load(model)
    node.load(streamer)
    tree, address = node.tree(), node.address
    with Background() as background, node.connect() as idle:
        idle.send_request("GET", "/health/live")
        assert idle.read_response().status == 200
        calls = [background.start(partial(node.run, model, {"sleep_s": 1.5, "echo": number})) for number in range(5)]
        stream = background.start(partial(node.stream, streamer, {"steps": 15, "step_s": 0.1}))
        for name, busy in ((model, 5), (streamer, 1)):
            until(partial(runs, node, name, busy), within_s=5, what=f"{busy} requests of {name} run")
        began = time.monotonic()
        node.process.send_signal(signal.SIGTERM)
        refused = until(partial(not_ready, node), within_s=0.5, what="readiness is 503 at once")
        assert "retry-after" in refused.headers
        late = node.run(model, {"echo": "late"})
        assert (late.status, late.code) == (503, 3100), late.body
        assert late.headers["connection"].lower() == "close" and int(late.headers["retry-after"]) >= 1
        assert node.fetch("GET", "/health/live").status == 200
        assert [call.result().result["echo"] for call in calls] == list(range(5))
        ended = stream.result()
        assert len(ended.items) == 15 and ended.done and ended.complete
        assert node.wait(within_s=DRAIN_S) == 0
        assert time.monotonic() - began < bound(DRAIN_S)
        assert idle.at_end(within_s=1)
    assert not [process for process in tree if process.alive]
    with pytest.raises(ConnectionRefusedError):
        Connection(address).close()


@pytest.mark.alone
def test_an_idle_node_is_gone_within_a_second(new_node: StartNode):
    node = new_node().start()
    node.deploy_probe("@test/idle")
    node.load("@test/idle")
    began = time.monotonic()
    assert node.stop() == 0
    assert time.monotonic() - began < bound(1)


def test_work_beyond_the_drain_time_is_told(new_node: StartNode):
    node = new_node(config="[node]\ndrain_s = 1\nkill_s = 2\n").start()
    node.deploy_probe("@test/long", settings={"ignore_sigterm": True})
    node.load("@test/long")
    with Background() as background:
        call = background.start(partial(node.run, "@test/long", {"sleep_s": 30}))
        until(partial(runs, node, "@test/long", 1), within_s=3, what="it runs")
        began = time.monotonic()
        assert node.stop() == 0
        assert time.monotonic() - began <= bound(1 + 2 + 1.5)
        answer = call.result()
    assert answer.status in (502, 503), answer.body
    assert answer.json()["success"] is False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_either_signal_ends_it_and_a_second_one_ends_it_at_once(new_node: StartNode, number: signal.Signals):
    node = new_node().start()
    tree = node.tree()
    node.process.send_signal(number)
    node.process.send_signal(number)
    assert node.wait(within_s=3) in (0, 1), "1 where the second one cut the drain short"
    assert not [process for process in tree if process.alive]
    assert "Traceback" not in node.said()


def runs(node: Node, model: str, busy: int) -> bool:
    return sum(instance["in_flight"] for instance in node.model(model)["instances"]) == busy


def not_ready(node: Node):
    answer = node.fetch("GET", "/health/ready")
    return answer if answer.status == 503 else None
