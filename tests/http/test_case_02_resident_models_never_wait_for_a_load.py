"""Case 2: requests to a model that is ready don't wait behind the load of another one."""

import time
from functools import partial
from statistics import quantiles

import pytest

from tests.bounds import count
from tests.harness.fixtures import StartNode
from tests.harness.node import Node
from tests.harness.waiting import Background, until

LOAD_S = count(5, long=8)
CONFIG = '[node]\ndrain_s = 5\nkill_s = 2\n[devices]\nfake = [{ total = "4GiB" }]\n'
REQUESTS = count(60, long=100)
SERVICE_S = 0.05
"""So that half of it is more than other programs of the machine take the processor for."""
RATIO = 1.5


def p99(node: Node) -> float:
    """Seconds, of REQUESTS one after another."""
    took_s = []
    for number in range(REQUESTS):
        began = time.monotonic()
        assert node.ask("@test/a", {"echo": number, "sleep_s": SERVICE_S})["echo"] == number
        took_s.append(time.monotonic() - began)
    return quantiles(took_s, n=100)[98]


@pytest.mark.alone
@pytest.mark.parametrize("needs_room", [False, True], ids=["beside it", "in another one's place"])
def test_a_ready_model_is_as_quick_while_another_one_loads(new_node: StartNode, needs_room: bool):
    node = new_node(config=CONFIG).start()
    takes = {"device": "cuda", "device_memory": "1GiB"}
    node.deploy_probe("@test/a", resources=takes, settings={"device_mib": 1024})
    node.deploy_probe("@test/idle", resources=takes | {"device_memory": "2GiB"}, settings={"device_mib": 2048})
    large = "3GiB" if needs_room else "1GiB"
    node.deploy_probe("@test/b", resources=takes | {"device_memory": large}, settings={"device_mib": 1024, "load_s": LOAD_S})
    node.load("@test/idle")
    node.load("@test/a")
    node.act("@test/a", "pin", {"pinned": True})
    alone_s = p99(node)
    with Background() as background:
        loading = background.start(partial(node.ask, "@test/b", {"echo": "b"}, timeout_s=60))
        until(lambda: node.state("@test/b") == "pending" and node.pids("@test/b"), within_s=10, what="b loads")
        during_s = p99(node)
        assert not loading.done(), "all of them were asked while it loaded"
        assert loading.result()["echo"] == "b"
    assert during_s <= RATIO * alone_s, (during_s, alone_s)
    assert node.state("@test/idle") == ("stopped" if needs_room else "ready")
    assert node.stop() == 0
