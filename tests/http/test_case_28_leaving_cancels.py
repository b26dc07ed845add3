"""Case 28: a client that leaves (FIN, RST, half-close) cancels its work within two steps, wherever it is."""

import itertools
import json
import time
from functools import partial

import pytest

from tests.bounds import bound
from tests.harness.client import Connection
from tests.harness.fixtures import Probe
from tests.harness.node import Node, run_path
from tests.harness.waiting import at_once, until

STEP_S = 0.1
WAYS = ("fin", "reset", "half-close")
COMBINATIONS = list(itertools.product(WAYS, (True, False)))


def leave(connection: Connection, way: str) -> None:
    match way:
        case "fin":
            connection.close()
        case "reset":
            connection.reset()
        case "half-close":
            connection.half_close()


def start(node: Node, model: str, payload: dict, *, stream: bool) -> Connection:
    connection = node.connect(timeout_s=20)
    connection.send_request("POST", run_path(model), json.dumps({**payload, "stream": stream}).encode())
    return connection


def steps(node: Node, model: str) -> int:
    """Steps that the probe wrote down."""
    return sum("step" in line for line in node.probe_log(model))


def in_flight(node: Node, model: str) -> int:
    return sum(instance["in_flight"] for instance in node.model(model)["instances"])


@pytest.fixture
def models(node: Node, probe: Probe) -> list[str]:
    """One loaded model for each way of leaving, with and without a stream, so that all run at the same time."""
    names = [probe() for _ in COMBINATIONS]
    at_once([partial(node.load, name) for name in names])
    return names


def test_a_running_request_stops_within_two_steps_and_frees_its_slot(node: Node, models: list[str]):
    def leaves(model: str, way: str, stream: bool) -> None:
        with start(node, model, {"steps": 100, "step_s": STEP_S}, stream=stream) as connection:
            if stream:
                connection.read_head()
            until(lambda: steps(node, model) >= 2, within_s=5, what="two steps were taken")
            leave(connection, way)
            left_at = steps(node, model)
            began = time.monotonic()
            answer = node.run(model, {"echo": way})
            waited_s = time.monotonic() - began
            assert answer.result["echo"] == way
            assert waited_s <= bound(2 * STEP_S + 0.4), f"the slot was not free at once after {way}, stream={stream}"
            assert steps(node, model) <= left_at + 2
            assert in_flight(node, model) == 0

    at_once([partial(leaves, model, way, stream) for model, (way, stream) in zip(models, COMBINATIONS, strict=True)])


def test_a_queued_request_is_never_run(node: Node, models: list[str]):
    def leaves(model: str, way: str, stream: bool) -> None:
        with start(node, model, {"sleep_s": 1.2, "echo": "first"}, stream=False) as first:
            until(lambda: in_flight(node, model) >= 1, within_s=3, what="the first runs")
            with start(node, model, {"steps": 5, "step_s": 0.2}, stream=stream) as second:
                time.sleep(0.3)  # the case itself: it gives up after a while in the queue
                leave(second, way)
                third = node.run(model, {"echo": "third"})
            assert first.read_response().result["echo"] == "first"
        assert third.result["echo"] == "third"
        assert steps(node, model) == 0, f"what nobody waits for was run after {way}, stream={stream}"

    at_once([partial(leaves, model, way, stream) for model, (way, stream) in zip(models, COMBINATIONS, strict=True)])


def test_a_request_that_waits_for_a_load_is_never_run_and_the_load_goes_on(node: Node, probe: Probe):
    models = [probe(settings={"load_s": 1.5}) for _ in COMBINATIONS]

    def leaves(model: str, way: str, stream: bool) -> None:
        with start(node, model, {"steps": 5, "step_s": 0.1}, stream=stream) as connection:
            until(lambda: node.state(model) == "pending", within_s=3, what="it loads")
            leave(connection, way)
            node.wait_state(model, "ready", within_s=10)
            answer = node.ask(model, {"echo": "next"})
        assert answer["echo"] == "next" and answer["load_count"] == 1
        assert steps(node, model) == 0

    at_once([partial(leaves, model, way, stream) for model, (way, stream) in zip(models, COMBINATIONS, strict=True)])


def test_code_that_looks_at_nothing_keeps_its_slot_but_not_its_caller(node: Node, fresh_name):
    from tests.harness.bundles import archive

    name = fresh_name()
    code = "import time\n\ndef handle_request(request, context):\n    time.sleep(request.body.json['s'])\n    return {'done': True}\n"
    node.deploy(name, archive({"model.toml": f'name = "{name}"\n', "model.py": code}))
    node.load(name)
    began = time.monotonic()
    answer = node.run(name, {"s": 1.5}, headers={"x-timeout-ms": "300"})
    assert answer.status == 408 and answer.took_s <= bound(0.6)
    assert node.ask(name, {"s": 0})["done"] is True
    assert time.monotonic() - began >= 1.4, "one request at a time: the slot was taken until the sleep returned"


def test_a_hundred_callers_that_leave_at_once_cost_nothing_afterwards(node: Node, probe: Probe):
    model = probe(serving={"queue": 200})
    node.load(model)
    connections = [start(node, model, {"sleep_s": 30}, stream=False) for _ in range(100)]
    until(lambda: sum(i["in_flight"] + i["queued"] for i in node.model(model)["instances"]) >= 50, within_s=5, what="they wait")
    for number, connection in enumerate(connections):
        leave(connection, WAYS[number % 3])
    answer = node.run(model, {"echo": "mine"})
    for connection in connections:
        connection.close()
    assert answer.result["echo"] == "mine"
    assert answer.took_s <= bound(1)
    assert node.metrics().total("fornada_queue_length", model=model) == 0
