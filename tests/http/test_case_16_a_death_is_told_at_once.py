"""Case 16: a runner dies under its requests. Its callers are told within a second, nobody else notices, the next is served."""

import time
from functools import partial

import pytest

from tests.bounds import bound
from tests.harness.client import Response
from tests.harness.fixtures import Probe
from tests.harness.node import Node
from tests.harness.waiting import Background, until


@pytest.mark.parametrize("death", ["die", "segv"])
def test_five_callers_are_told_within_a_second_and_another_model_is_unaffected(node: Node, probe: Probe, death: str):
    model, other = probe(serving={"concurrency": 8}), probe()
    dead_pid = node.ask(model, {"echo": 1})["pid"]
    node.ask(other, {"echo": 1})

    def told(payload: dict) -> tuple[float, Response]:
        answer = node.run(model, payload)
        return time.monotonic(), answer

    with Background() as background:
        bystander = background.start(lambda: node.run(other, {"sleep_s": 1.5, "echo": "fine"}))
        callers = [background.start(lambda: told({"sleep_s": 20})) for _ in range(4)]
        until(lambda: node.model(model)["instances"][0]["in_flight"] == 4, within_s=3, what="four requests run")
        died_at = time.monotonic()
        callers.append(background.start(lambda: told({death: True})))
        for caller in callers:
            at, answer = caller.result()
            assert at - died_at < bound(1)
            assert (answer.status, answer.code) == (502, 3101), answer.body
            assert answer.headers["content-type"] == "application/json"
        assert bystander.result().result["echo"] == "fine"
        after = node.ask(model, {"echo": 2})
    assert after["echo"] == 2 and after["pid"] != dead_pid and after["load_count"] == 2


def test_those_who_wait_behind_a_death_are_answered_by_the_next_worker_or_told(node: Node, probe: Probe):
    model = probe()
    node.ask(model, {"echo": 1})
    with Background() as background:
        running = background.start(lambda: node.run(model, {"sleep_s": 0.4, "echo": "first"}))
        until(lambda: node.model(model)["instances"][0]["in_flight"], within_s=3, what="the first runs")
        dying = background.start(lambda: node.run(model, {"die": True}))
        queued = [background.start(partial(node.run, model, {"echo": number})) for number in range(4)]
        assert running.result().result["echo"] == "first"
        assert (dying.result().status, dying.result().code) == (502, 3101)
        for number, waiter in enumerate(queued):
            answer = waiter.result()
            assert answer.status in (200, 502), answer.body
            if answer.status == 200:
                assert answer.result["echo"] == number
    assert node.ask(model, {"echo": "next"})["echo"] == "next"
