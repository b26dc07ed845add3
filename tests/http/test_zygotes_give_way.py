"""What zygotes hold of the host's memory is counted, and is a model's where one needs it."""

import pytest

from tests.bounds import bound
from tests.harness.fixtures import StartNode
from tests.harness.node import Node
from tests.harness.waiting import until

MIB = 1024 * 1024
CONFIG = """
[node]
max_wait_s = 60
[devices]
slack = "0"
reserve = "0"
[devices.cpu]
budget = "100MiB"
"""


def foreign(node: Node) -> int:
    (cpu,) = [each for each in node.fetch("GET", "/api/v1/devices").json()["devices"] if each["id"] == "cpu"]
    return int(cpu["foreign_bytes"])


@pytest.mark.timeout(bound(120))
def test_a_model_that_needs_what_a_zygote_holds_gets_it(new_node: StartNode):
    node = new_node(config=CONFIG).start()
    node.deploy_probe("@test/small", resources={"memory": "40MiB"})
    node.deploy_probe("@test/large", resources={"memory": "98MiB"})
    node.ask("@test/small", {})
    until(lambda: foreign(node) > 2 * MIB, within_s=30, what="a zygote in the book")
    assert node.ask("@test/large", {"echo": 1}, timeout_s=60)["echo"] == 1
    assert "zygotes.give_way" in node.stderr.read_text()
