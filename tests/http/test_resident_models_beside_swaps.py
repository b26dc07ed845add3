"""Who is resident is served as if nobody else swapped: beside models that come and go for want of host memory."""

import threading
import time
from collections.abc import Callable

import pytest

from fornada.simulate.report import percentile
from tests.bounds import bound, count
from tests.harness.fixtures import StartNode
from tests.harness.node import Node
from tests.harness.waiting import Background

SERVICE_S = 0.2
"""Of it nothing is computed: what is looked at is the wait."""
REQUESTS = count(25, long=200)
OTHERS = 6
HOLDS_MIB = 48
CONFIG = """
[node]
drain_s = 5
kill_s = 2
[devices]
cpu = { budget = "250MiB" }
slack = "4MiB"
"""
"""Room for the resident one and two or three of the others."""


@pytest.mark.slow
@pytest.mark.timeout(bound(300))
def test_the_p95_of_a_resident_model_is_within_one_and_a_half_times_what_it_is_alone(
    new_node: StartNode, record_property: Callable[[str, object], None]
):
    node = new_node(config=CONFIG).start()
    others = [f"@test/other-{number}" for number in range(OTHERS)]
    for name in ("@test/resident", *others):
        node.deploy_probe(name, settings={"hold_mib": HOLDS_MIB}, serving={"concurrency": 2}, resources={"memory": "100MiB"})
    node.load("@test/resident")
    assert node.act("@test/resident", "pin").status == 200
    alone = percentile(resident(node), 0.95)

    over = threading.Event()

    def swap() -> int:
        turns = 0
        while not over.is_set():
            name = others[turns % OTHERS]
            assert node.ask(name, {"echo": turns}, timeout_s=60)["echo"] == turns
            turns += 1
            over.wait(0.05)
        return turns

    with Background() as background:
        swapping = background.start(swap)
        try:
            beside = percentile(resident(node), 0.95)
        finally:
            over.set()
        turns = swapping.result(timeout=bound(90))
    evictions = node.metrics().total("fornada_evictions_total", reason="room")
    print(f"p95 alone {alone:.3f} s, beside {turns} turns with {evictions:.0f} evictions {beside:.3f} s: {beside / alone:.2f} times")
    record_property("resident_p95_beside_swaps", round(beside / alone, 3))
    assert evictions >= turns // 3
    assert beside <= 1.5 * alone
    assert node.stop() == 0


def resident(node: Node) -> list[float]:
    """Seconds of each request."""
    took = []
    for number in range(REQUESTS):
        began = time.monotonic()
        assert node.ask("@test/resident", {"echo": number, "sleep_s": SERVICE_S})["echo"] == number
        took.append(time.monotonic() - began)
    return took
