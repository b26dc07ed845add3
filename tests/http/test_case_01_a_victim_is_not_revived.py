"""Case 1: a model that was chosen to go isn't revived by the requests that keep coming for it, and nobody waits for ever."""

import random
import threading
import time
from functools import partial

import pytest

from tests.bounds import bound, count
from tests.harness.fixtures import StartNode
from tests.harness.node import Node
from tests.harness.waiting import Background

BOUND_S = 10.0
CONFIG = f"[node]\nmax_resident = 1\nmax_wait_s = {BOUND_S:g}\ndrain_s = 5\nkill_s = 2\n"
ROUNDS = count(4, long=50)


def stream(node: Node, over: threading.Event, seed: int) -> int:
    """Requests that overlap, until it is over: how many. Each has to be answered."""
    chance, asked = random.Random(seed), 0
    while not over.is_set():
        assert node.ask("@test/a", {"echo": asked, "sleep_s": 0.2}, timeout_s=bound(30))["echo"] == asked
        asked += 1
        over.wait(chance.uniform(0.0, 0.05))
    return asked


@pytest.mark.slow
@pytest.mark.timeout(bound(600))
def test_a_model_under_a_steady_stream_gives_way_and_comes_back_each_time(new_node: StartNode):
    node = new_node(config=CONFIG).start()
    for model in ("@test/a", "@test/b"):
        node.deploy_probe(model, serving={"queue": 200})
    node.load("@test/a")
    over, chance = threading.Event(), random.Random(1)
    with Background() as background:
        streams = [background.start(partial(stream, node, over, seed)) for seed in range(3)]
        try:
            for number in range(ROUNDS):
                time.sleep(chance.uniform(0.0, 0.3))
                began = time.monotonic()
                assert node.ask("@test/b", {"echo": number}, timeout_s=bound(30))["echo"] == number
                assert time.monotonic() - began < bound(BOUND_S), "served within the bound of any wait"
                assert node.metrics().total("fornada_scheduler_loop_age_seconds") < bound(1)
                assert node.ask("@test/a", {"echo": number}, timeout_s=bound(30))["echo"] == number
        finally:
            over.set()
        assert all(each.result() > ROUNDS for each in streams)
    assert node.fetch("GET", "/health/ready").status == 200
    assert node.metrics().total("fornada_evictions_total", model="@test/a", reason="room") >= ROUNDS
    assert node.stop() == 0
