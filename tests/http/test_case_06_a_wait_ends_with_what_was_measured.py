"""Case 6: nobody waits for memory that is back already, nor without end for memory that never comes back."""

import os
import signal
import time
from typing import Any

import pytest

from tests.bounds import bound, count
from tests.harness.fixtures import StartNode
from tests.harness.node import Node

MAX_WAIT_S = 1
CONFIG = f"""
[node]
drain_s = 5
kill_s = 2
max_wait_s = {MAX_WAIT_S}
[[devices.fake]]
total = "1000MiB"
"""
ON_CARD = {"device": "cuda", "device_memory": "700MiB"}
HELD = 700 * 1024**2
ROUNDS = count(2, long=20)
DELAY_S = 0.5


def patch(node: Node, **change: Any) -> None:
    assert node.fetch("PATCH", "/api/v1/devices/cuda:0", payload=change).status == 200


def card(node: Node) -> dict[str, Any]:
    found: dict[str, Any] = node.fetch("GET", "/api/v1/devices").json()["devices"][1]
    return found


def answered_s(node: Node, model: str) -> float:
    """Seconds until it has answered."""
    began = time.monotonic()
    assert node.ask(model, {"echo": "mine"})["echo"] == "mine"
    return time.monotonic() - began


@pytest.mark.parametrize("delay_s", [0.0, DELAY_S], ids=["at once", "soon"])
def test_memory_of_a_killed_worker_is_there_as_soon_as_the_device_says_so(new_node: StartNode, delay_s: float):
    node = new_node(config=CONFIG).start()
    for name in ("@test/a", "@test/b"):
        node.deploy_probe(name, settings={"device_mib": 700}, resources=ON_CARD)
    node.load("@test/b")  # its environment is built, and a spare may be there: what is measured below is the memory
    node.unload("@test/b")
    for _ in range(ROUNDS):
        patch(node, release_delay_ms=0)
        alone_s = answered_s(node, "@test/b")
        node.unload("@test/b")
        node.load("@test/a")
        patch(node, release_delay_ms=delay_s * 1000)
        (pid,) = node.pids("@test/a")
        killed = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        answered_s(node, "@test/b")
        assert delay_s <= time.monotonic() - killed < alone_s + delay_s + bound(1)
        assert (card(node)["used_bytes"], card(node)["lingering_bytes"]) == (HELD, 0)
        node.unload("@test/b")
        node.unload("@test/a")
    assert node.stop() == 0


@pytest.mark.parametrize("sleeps", [False, True], ids=["stops", "sleeps"])
def test_memory_that_never_comes_back_is_named_and_can_be_used_once_it_does(new_node: StartNode, sleeps: bool):
    node = new_node(config=CONFIG).start()
    for name in ("@test/a", "@test/b"):
        # What loads for long is put to sleep rather than stopped, where it can be.
        node.deploy_probe(name, settings={"device_mib": 700, "sleeps": sleeps, "load_s": 0.3}, resources=ON_CARD)
    node.ask("@test/b", {"echo": "first"})
    patch(node, frozen=True)
    for _ in range(2):  # whoever asks again isn't left to hang either
        began = time.monotonic()
        refused = node.run("@test/a", {"echo": "later"})
        assert time.monotonic() - began < bound(MAX_WAIT_S + 2), "it doesn't hang"
        assert (refused.status, refused.code) == (429, 3040), refused.body
        assert int(refused.headers["retry-after"]) > 0
        assert "400 MiB are missing" in refused.message
    assert (card(node)["used_bytes"], node.pids("@test/a")) == (HELD, [])
    if not sleeps:
        assert (card(node)["lingering_bytes"], card(node)["reserved_bytes"]) == (HELD, 0), "both numbers: held although nobody lives"
    patch(node, clear=True)
    assert node.ask("@test/a", {"echo": "now"})["echo"] == "now"
    assert card(node)["used_bytes"] == HELD
    assert node.stop() == 0
