"""Case 6: nobody waits for memory that is back already, nor without end for memory that never comes back."""

import os
import signal
import time

from tests.bounds import bound
from tests.harness.fixtures import StartNode

CONFIG = """
[node]
drain_s = 5
kill_s = 2
max_wait_s = 2
[[devices.fake]]
total = "1000MiB"
"""
ON_CARD = {"device": "cuda", "device_memory": "700MiB"}


def test_memory_of_a_killed_worker_is_there_at_once_and_frozen_memory_is_named(new_node: StartNode):
    node = new_node(config=CONFIG).start()
    for name in ("@test/a", "@test/b"):
        node.deploy_probe(name, settings={"device_mib": 700}, resources=ON_CARD)
    node.load("@test/b")  # its environment is built, and a spare may be there: what is measured below is the memory
    node.unload("@test/b")
    began = time.monotonic()
    node.load("@test/b")
    alone_s = time.monotonic() - began
    node.unload("@test/b")
    node.load("@test/a")
    os.kill(node.pids("@test/a")[0], signal.SIGKILL)
    began = time.monotonic()
    assert node.ask("@test/b", {"echo": "mine"})["echo"] == "mine"
    assert time.monotonic() - began < alone_s + bound(1)

    assert node.fetch("PATCH", "/api/v1/devices/cuda:0", payload={"frozen": True}).status == 200
    began = time.monotonic()
    refused = node.run("@test/a", {"echo": "later"})
    assert time.monotonic() - began < bound(8), "it doesn't hang"
    assert refused.status in (429, 503) and int(refused.headers["retry-after"]) > 0
    assert "400 MiB are missing" in refused.body.decode()
    said = node.fetch("GET", "/api/v1/devices").json()["devices"][1]
    assert said["lingering_bytes"] == 700 * 1024**2, "both numbers are told: what is held although nobody lives"
    assert said["reserved_bytes"] == 0
    node.fetch("PATCH", "/api/v1/devices/cuda:0", payload={"clear": True})
    assert node.ask("@test/a", {"echo": "now"})["echo"] == "now"
    assert node.stop() == 0
