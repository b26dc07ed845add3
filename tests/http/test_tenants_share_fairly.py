"""Several accounts at one model, as clients see it."""

import threading

from tests.harness.client import Response
from tests.harness.fixtures import StartNode
from tests.harness.node import Node
from tests.harness.waiting import Background, until

MODEL = "@test/shared"
CONFIG = """
[node]
drain_s = 5
kill_s = 2
account_weights = { large = 3 }
"""


def started(new_node: StartNode, *, queue: int = 64) -> Node:
    node = new_node(config=CONFIG).start()
    node.deploy_probe(MODEL, serving={"queue": queue})
    node.load(MODEL)
    return node


class Asked:
    """Requests in the background, and the order in which they were answered."""

    def __init__(self, node: Node, background: Background) -> None:
        self.order: list[str] = []
        self._node = node
        self._background = background
        self._lock = threading.Lock()
        self.results: dict[str, Response] = {}
        self._under_way: list = []

    def ask(self, name: str, *, account: str, sleep_s: float = 0.1, priority: str = "") -> None:
        headers = {"x-priority": priority} if priority else {}

        def run() -> None:
            route = f"/client/v4/accounts/{account}/ai/run/{MODEL}"
            answer = self._node.fetch("POST", route, payload={"echo": name, "sleep_s": sleep_s}, headers=headers)
            with self._lock:
                self.order.append(name)
                self.results[name] = answer

        self._under_way.append(self._background.start(run))

    def wait(self) -> None:
        for each in self._under_way:
            each.result()


def waiting(node: Node) -> dict[str, int]:
    return node.fetch("GET", f"/api/v1/models/{MODEL}/why").json()["queue"]["by_account"]


def test_one_request_beside_a_flood_waits_for_a_few_of_it(new_node: StartNode):
    node = started(new_node)
    with Background() as background:
        asked = Asked(node, background)
        for number in range(30):
            asked.ask(f"flood-{number}", account="flood")
        until(lambda: waiting(node).get("flood", 0) >= 20, within_s=10, what="the flood waits")
        asked.ask("one", account="other")
        asked.wait()
    assert {answer.status for answer in asked.results.values()} == {200}
    assert all(answer.json()["result"]["echo"] == name for name, answer in asked.results.items())
    # A few were sent ahead or answered while it came; whoever is first come, first served has it last.
    assert asked.order.index("one") <= 20
    assert node.stop() == 0


def test_a_full_queue_has_a_place_for_another_tenant_and_priorities_count_within_one(new_node: StartNode):
    node = started(new_node, queue=8)
    with Background() as background:
        asked = Asked(node, background)
        asked.ask("first", account="flood", sleep_s=2.0)
        until(lambda: node.model(MODEL)["instances"][0]["in_flight"] == 1, within_s=5, what="the first is worked on")
        for number in range(20):
            asked.ask(f"flood-{number}", account="flood", sleep_s=0.01)
        until(lambda: len(asked.results) >= 10, within_s=5, what="those beyond the queue are refused")
        asked.ask("low", account="other", sleep_s=0.01, priority="low")
        until(lambda: waiting(node).get("other") == 1, within_s=5, what="the other tenant's request waits")
        asked.ask("high", account="other", sleep_s=0.01, priority="high")
        until(lambda: waiting(node).get("other") == 2, within_s=5, what="both wait")
        asked.wait()
    statuses = {name: answer.status for name, answer in asked.results.items()}
    assert (statuses["first"], statuses["low"], statuses["high"]) == (200, 200, 200)
    refused = [answer for answer in asked.results.values() if answer.status != 200]
    assert refused and all(answer.status == 429 and answer.headers.get("retry-after") for answer in refused)
    assert any("most of them of account flood" in str(answer.json()) for answer in refused)
    assert asked.order.index("high") < asked.order.index("low")
    assert node.stop() == 0


def test_a_priority_that_is_none_is_refused_in_one_line(new_node: StartNode):
    node = started(new_node)
    answer = node.run(MODEL, {"echo": 1}, headers={"x-priority": "11"})
    assert answer.status == 400 and "x-priority must be high, normal, low" in str(answer.json())
    assert node.stop() == 0
