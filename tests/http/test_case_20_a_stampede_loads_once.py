"""Case 20: fifty first requests at the same moment, one load."""

from functools import partial

from tests.harness.fixtures import Probe
from tests.harness.node import Node
from tests.harness.waiting import at_once

CALLERS = 50


def test_fifty_first_requests_cause_one_load_and_are_all_answered(node: Node, probe: Probe):
    model = probe(settings={"load_s": 1})
    answers = at_once([partial(node.ask, model, {"echo": number}) for number in range(CALLERS)])
    assert [answer["echo"] for answer in answers] == list(range(CALLERS))
    assert {answer["load_count"] for answer in answers} == {1}
    assert len({answer["pid"] for answer in answers}) == 1
    first = min(answer["seq"] for answer in answers)
    assert sorted(answer["seq"] for answer in answers) == list(range(first, first + CALLERS)), "each was run once"
    assert node.loads(model) == 1
    assert node.model(model)["instances"][0]["loads"] == 1
