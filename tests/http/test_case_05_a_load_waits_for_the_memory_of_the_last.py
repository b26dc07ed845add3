"""Case 5: the next load begins when the memory of the one before is back by the device's own counter, not when its process is gone."""

import time
from functools import partial
from typing import Any

import pytest

from tests.bounds import bound, count
from tests.harness.fixtures import StartNode
from tests.harness.node import Node
from tests.harness.waiting import Background

MIB = 1024 * 1024
DELAY_S = 1.0
ROUNDS = count(3, long=20)
CONFIG = f"""
[node]
drain_s = 5
kill_s = 2
[[devices.fake]]
total = "1000MiB"
release_delay_ms = {DELAY_S * 1000:.0f}
"""


def card(node: Node) -> dict[str, Any]:
    answer = node.fetch("GET", "/api/v1/devices")
    found: dict[str, Any] = next(device for device in answer.json()["devices"] if device["id"] == "cuda:0")
    return found


@pytest.mark.slow
@pytest.mark.timeout(bound(300))
def test_two_models_that_don_t_fit_together_take_turns_without_running_out_of_memory(new_node: StartNode):
    node = new_node(config=CONFIG).start()
    for name, mib in (("@test/a", 700), ("@test/b", 600)):
        node.deploy_probe(name, settings={"device_mib": mib}, resources={"device": "cuda", "device_memory": f"{mib}MiB"})
    node.ask("@test/a", {"echo": "first"})
    with Background() as background:
        for number in range(ROUNDS):
            for name in ("@test/b", "@test/a"):
                began = time.monotonic()
                asked = background.start(partial(node.ask, name, {"echo": number}, timeout_s=60))
                while not asked.done():
                    seen = card(node)
                    assert seen["used_bytes"] <= seen["total_bytes"]
                    assert seen["reserved_bytes"] + seen["lingering_bytes"] <= seen["total_bytes"], "planned on bytes that aren't back"
                    time.sleep(0.05)
                assert asked.result()["echo"] == number
                assert time.monotonic() - began >= DELAY_S
    metrics = node.metrics()
    assert metrics.total("fornada_model_loads_total", outcome="failed") == 0
    assert [node.probe_log(name)[-1]["event"] for name in ("@test/a", "@test/b")] == ["request", "request"]
    assert node.stop() == 0
