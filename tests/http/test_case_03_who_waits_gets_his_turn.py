"""Case 3: a model that waits for its place gets it within the bound, however busy the one is that holds it."""

import threading
import time

import pytest

from tests.bounds import bound, count
from tests.harness.fixtures import StartNode
from tests.harness.node import Node
from tests.harness.waiting import Background

BOUND_S, SERVICE_S, LOAD_S = count(4, long=10), 1.0, 0.5
CONFIG = f"[node]\nmax_resident = 1\nmax_wait_s = {BOUND_S}\ndrain_s = 5\nkill_s = 2\n"
CLIENTS = 4
LASTS_S = count(10, long=60)


def client(node: Node, over: threading.Event) -> int:
    served = 0
    while not over.is_set():
        assert node.ask("@test/a", {"echo": served, "sleep_s": SERVICE_S}, timeout_s=bound(30))["echo"] == served
        served += 1
    return served


@pytest.mark.slow
@pytest.mark.timeout(bound(300))
def test_a_request_to_another_model_is_served_within_the_bound_and_nobody_fails(new_node: StartNode):
    node = new_node(config=CONFIG).start()
    node.deploy_probe("@test/a", serving={"concurrency": CLIENTS})
    node.deploy_probe("@test/b", settings={"load_s": LOAD_S})
    node.load("@test/a")
    over = threading.Event()
    with Background() as background:
        began = time.monotonic()
        clients = []
        for _ in range(CLIENTS):
            clients.append(background.start(lambda: client(node, over)))
            time.sleep(SERVICE_S / CLIENTS)  # they overlap: it never rests
        try:
            asked = time.monotonic()
            assert node.ask("@test/b", {"echo": "b"}, timeout_s=bound(60))["echo"] == "b"
            assert time.monotonic() - asked < bound(BOUND_S + SERVICE_S + LOAD_S)
            over.wait(max(0.0, LASTS_S - (time.monotonic() - began)))
        finally:
            over.set()
        assert all(each.result() for each in clients), "none of a's requests failed, and each client was served"
    assert node.metrics().total("fornada_model_loads_total", outcome="failed") == 0
    assert node.stop() == 0
