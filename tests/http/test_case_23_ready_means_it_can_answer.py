"""Case 23: a model is ready when a warm-up inference has passed, not before and not long after; the node is live throughout."""

import statistics
import time

import pytest

from tests.bounds import LONG, bound
from tests.harness.bundles import archive
from tests.harness.fixtures import Probe
from tests.harness.node import Node
from tests.harness.waiting import Background

LOAD_S, WARMUP_S = (3.0, 2.0) if LONG else (1.5, 1.0)


@pytest.mark.alone
def test_a_model_is_ready_after_load_and_warm_up_and_the_node_lives_on(node: Node, probe: Probe):
    model = probe(settings={"load_s": LOAD_S, "warmup_s": WARMUP_S})
    seen: list[tuple[float, str]] = []
    live: list[float] = []
    with Background() as background:
        began = time.monotonic()
        load = background.start(lambda: node.act(model, "load"))
        while not load.done():
            live.append(node.fetch("GET", "/health/live").took_s)
            ready = node.fetch("GET", "/health/ready")
            assert ready.status == 200, "the node is ready, whatever one of its models does"
            seen.append((time.monotonic() - began, node.state(model)))
            time.sleep(0.02)
        assert load.result().status == 200
    assert node.state(model) == "ready", "load answers when it is true"
    early = [(at, state) for at, state in seen if at < LOAD_S + WARMUP_S and state != "pending"]
    assert not [(at, state) for at, state in early if state == "ready"], early
    assert seen[-1][0] <= bound(LOAD_S + WARMUP_S + 2), "and it isn't ready long after it could answer"
    assert max(live) < bound(0.1)

    first = node.run(model, {"sleep_s": 0.1})
    steady = statistics.median(node.run(model, {"sleep_s": 0.1}).took_s for _ in range(5))
    assert first.status == 200 and first.took_s < 2 * steady


def test_a_model_whose_warm_up_fails_is_never_ready(node: Node, fresh_name):
    name = fresh_name()
    code = """
import fornada_sdk

class Model(fornada_sdk.Model):
    def warmup(self, context):
        raise RuntimeError("this model can't warm up")

    def run(self, inputs, context):
        return {"answered": True}
"""
    node.deploy(name, archive({"model.toml": f'name = "{name}"\n', "model.py": code}))
    answer = node.run(name, {})
    assert (answer.status, answer.code) == (503, 3102), answer.body
    assert "can't warm up" in answer.message
    assert node.state(name) == "failed"
