"""Case 12: what a control plane had booked is what its successor finds to be true, within seconds."""

import os
import signal
from typing import Any

from tests.harness.fixtures import StartNode
from tests.harness.node import Node
from tests.harness.waiting import until

MIB = 1024 * 1024
CONFIG = """
[node]
drain_s = 5
kill_s = 2
[[devices.fake]]
total = "1000MiB"
"""
MODELS = [f"@test/{letter}" for letter in "abc"]


def card(node: Node) -> dict[str, Any]:
    found: dict[str, Any] = node.fetch("GET", "/api/v1/devices").json()["devices"][1]
    return found


def book_is(node: Node, models: list[str]) -> bool:
    """The ledger holds these models, 300 MiB each, and nothing else."""
    seen = card(node)
    holders = sorted(holder["model"] for holder in seen["holders"])
    return holders == models and seen["reserved_bytes"] == seen["used_bytes"] == 300 * MIB * len(models)


def test_after_a_kill_the_ledger_is_what_lives(new_node: StartNode):
    node = new_node(config=CONFIG).start()
    for model in MODELS:
        node.deploy_probe(model, settings={"device_mib": 300}, resources={"device": "cuda", "device_memory": "300MiB"})
        node.load(model)
    pids = {model: node.pids(model) for model in MODELS}
    control = node.control_pid
    os.kill(control, signal.SIGKILL)
    os.kill(pids["@test/c"][0], signal.SIGKILL)  # nobody is there to see it
    node.wait_next_control_plane(after_pid=control)
    until(lambda: book_is(node, MODELS[:2]), within_s=5, what="the ledger is what lives")
    assert {model: node.pids(model) for model in MODELS[:2]} == {model: pids[model] for model in MODELS[:2]}
    node.deploy_probe("@test/rest", settings={"device_mib": 400}, resources={"device": "cuda", "device_memory": "400MiB"})
    node.load("@test/rest")
    assert node.metrics().total("fornada_evictions_total", reason="room") == 0, "all that is free can be used"
    for model in [*MODELS[:2], "@test/rest"]:
        node.unload(model)
    assert (card(node)["used_bytes"], card(node)["holders"]) == (0, [])
    assert node.stop() == 0
