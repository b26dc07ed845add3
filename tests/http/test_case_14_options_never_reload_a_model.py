"""Case 14: clients that send different options share one load."""

from tests.harness.fixtures import Probe
from tests.harness.node import Node


def test_twenty_requests_with_two_sets_of_options_cause_one_load(node: Node, probe: Probe):
    model = probe()
    bodies = ({"echo": "a", "num_ctx": 2048, "options": {"temperature": 0.1}}, {"echo": "b", "num_ctx": 8192, "keep_alive": "5m"})
    answers = [node.ask(model, bodies[number % 2]) for number in range(20)]
    assert [answer["echo"] for answer in answers] == ["a", "b"] * 10
    assert {answer["load_count"] for answer in answers} == {1}
    assert len({answer["instance"] for answer in answers}) == 1
    assert node.loads(model) == 1
