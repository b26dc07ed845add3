"""What metrics, routes and `fornada top` say of swaps is what happened, on a device that holds one of three models."""

import time
from itertools import pairwise

from tests.harness.fixtures import StartNode

CONFIG = """
[node]
drain_s = 5
kill_s = 2
[[devices.fake]]
total = "3GiB"
"""
MODELS = [f"@test/{letter}" for letter in "abc"]
ROUNDS = 2


def test_evictions_waits_and_the_time_of_swapping_are_what_happened(new_node: StartNode):
    began = time.monotonic()
    node = new_node(config=CONFIG).start()
    for model in MODELS:
        settings = {"device_mib": 2048, "load_s": 0.2, "sleeps": False}
        node.deploy_probe(model, settings=settings, resources={"device": "cuda", "device_memory": "2GiB", "memory": "64MiB"})
    for _ in range(ROUNDS):
        for model in MODELS:
            assert node.ask(model, {"echo": model})["model"] == model
    swaps = ROUNDS * len(MODELS)
    metrics = node.metrics()
    assert metrics.total("fornada_evictions_total") == metrics.total("fornada_evictions_total", reason="room") == swaps - 1
    assert metrics.total("fornada_swap_wait_seconds_count") == swaps
    assert metrics.total("fornada_step_seconds_count", step="start") == swaps
    assert metrics.total("fornada_step_seconds_count", step="stop") == swaps - 1
    starting_s = metrics.total("fornada_step_seconds_sum", step="start")
    assert metrics.total("fornada_swap_wait_seconds_sum") >= starting_s >= swaps * 0.2
    swapping_s = metrics.total("fornada_swap_seconds_total", device="cuda:0")
    assert starting_s <= swapping_s + 0.1 and swapping_s <= time.monotonic() - began
    assert metrics.total("fornada_charged_bytes", device="cuda:0") == 2 * 1024**3
    assert metrics.total("fornada_device_bytes", device="cuda:0", kind="reserved") == 2 * 1024**3

    told = node.fetch("GET", "/api/v1/residency").json()
    pairs = [(one["model"], one["made_room_for"]) for one in reversed(told["evictions"])]
    turns = MODELS * ROUNDS
    assert pairs == list(pairwise(turns)), "each made room for the next"
    (holder,) = told["instances"]
    assert (holder["model"], holder["state"], holder["charged_bytes"]) == (MODELS[-1], "ready", 2 * 1024**3)
    assert holder["value"] > 0 and told["waits"] == []
    assert 0 < told["swap"]["devices"]["cuda:0"] <= 1

    node.fetch("POST", f"/api/v1/models/{MODELS[-1]}/unload?grace=1")
    assert node.metrics().total("fornada_evictions_total", model=MODELS[-1], reason="operator") == 1
    assert node.fetch("GET", "/api/v1/residency").json()["instances"] == []
    node.fetch("DELETE", f"/api/v1/models/{MODELS[0]}")
    assert not [sample for sample in node.metrics().samples if sample.labels.get("model") == MODELS[0]]
    assert node.stop() == 0
