"""Case 17: a model that can't load is tried ever more rarely, says why, and bothers nobody else."""

import math
import statistics
import time

import pytest

from tests.bounds import LONG
from tests.harness.fixtures import Probe
from tests.harness.node import Node
from tests.harness.waiting import until

POLLED_S = 60 if LONG else 10
BACKOFF_S = 1  # the default of [node] backoff_s


def attempts(node: Node, model: str) -> float:
    return node.metrics().total("fornada_model_loads_total", model=model)


def latency(node: Node, model: str, requests: int = 60) -> float:
    return statistics.median(node.run(model, {"sleep_s": 0.01}).took_s for _ in range(requests))


@pytest.mark.alone
def test_attempts_follow_the_doubling_schedule_and_refusals_say_why_and_when(node: Node, probe: Probe):
    broken, healthy = probe(settings={"fail_load_n": "inf"}), probe()
    node.ask(healthy, {"echo": 1})
    alone_s = latency(node, healthy)
    during: list[float] = []
    began = time.monotonic()
    refusals = []
    while time.monotonic() - began < POLLED_S:
        refusals.append(node.run(broken, {"echo": 1}))
        during += [node.run(healthy, {"sleep_s": 0.01}).took_s for _ in range(5)]
        time.sleep(0.2)  # the case itself: a client that polls
    polled_s = time.monotonic() - began
    for refusal in refusals:
        assert (refusal.status, refusal.code) == (503, 3102), refusal.body
        assert int(refusal.headers["retry-after"]) >= 1
        assert "fail" in refusal.message, "the message holds the model's own reason"
    allowed = math.floor(math.log2(polled_s / BACKOFF_S + 1)) + 1
    assert 2 <= attempts(node, broken) <= allowed + 1
    assert statistics.median(during) < 1.3 * alone_s + 0.002

    shown = node.model(broken)
    assert shown["state"] == "failed" and shown["why"]
    assert node.pids(broken) == [], "a failed load leaves no process"
    why = node.fetch("GET", f"/api/v1/models/{broken}/why").json()
    assert "fail" in str(why["last_failure"])


def test_a_reset_ends_the_waiting(node: Node, probe: Probe):
    model = probe(settings={"fail_load_n": "inf"})
    until(lambda: node.run(model, {"echo": 1}) and attempts(node, model) >= 3, within_s=15, what="three attempts", every_s=0.1)
    before = attempts(node, model)  # the next would come in some 4 s
    assert node.act(model, "reset").status == 200
    assert node.run(model, {"echo": 1}).status == 503
    assert attempts(node, model) == before + 1


def test_a_model_that_fails_once_loads_by_itself_the_second_time(node: Node, probe: Probe):
    model = probe(settings={"fail_load_n": 1})
    assert node.run(model, {"echo": 1}).status == 503
    answer = until(lambda: served(node, model), within_s=6, what="the second attempt serves", every_s=0.2)
    assert answer and answer["echo"] == "at last"
    assert node.state(model) == "ready"


def served(node: Node, model: str) -> dict | None:
    answer = node.run(model, {"echo": "at last"})
    return answer.result if answer.status == 200 else None
