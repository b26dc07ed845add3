"""Case 26: one bad item of a batch fails alone; its mates get their own answers."""

from functools import partial

import pytest

from tests.harness.fixtures import Probe
from tests.harness.node import Node, run_path
from tests.harness.waiting import at_once

CALLERS = 8


@pytest.mark.parametrize("batch", [8, 1])
def test_of_eight_at_once_with_one_bad_exactly_one_fails(node: Node, probe: Probe, batch: int):
    model = probe(serving={"max_batch": batch, "max_wait_ms": 200 if batch > 1 else 0})
    node.load(model)
    bodies = [{"echo": number} if number != 3 else {"echo": number, "bad": True} for number in range(CALLERS)]
    for _ in range(3):
        answers = at_once([partial(node.run, model, body) for body in bodies])
        failed = [number for number, answer in enumerate(answers) if answer.status != 200]
        assert failed == [3], [answer.body for answer in answers]
        assert (answers[3].status, answers[3].code) == (400, 5006)
        assert [a.result["echo"] for n, a in enumerate(answers) if n != 3] == [n for n in range(CALLERS) if n != 3]
    assert node.model(model)["instances"][0]["loads"] == 1, "nothing died of it"


def test_what_is_no_json_never_reaches_a_batch(node: Node, probe: Probe):
    model = probe(serving={"max_batch": 4, "max_wait_ms": 100})
    node.load(model)
    calls = [partial(node.run, model, {"echo": number}) for number in range(3)]
    calls.append(partial(node.fetch, "POST", run_path(model), b'{"echo": '))
    answers = at_once(calls)
    assert [answer.status for answer in answers] == [200, 200, 200, 400]
    assert answers[3].code == 5006


def test_answers_find_their_own_callers_under_load(node: Node, probe: Probe):
    model = probe(serving={"max_batch": 16, "max_wait_ms": 5, "queue": 256})
    node.load(model)

    def twenty(caller: int) -> None:
        for number in range(20):
            assert node.ask(model, {"echo": [caller, number]})["echo"] == [caller, number]

    at_once([partial(twenty, caller) for caller in range(16)])
