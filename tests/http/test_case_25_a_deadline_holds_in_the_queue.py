"""Case 25: a deadline is kept wherever the request waits, not when a slot happens to become free."""

from functools import partial

import pytest

from tests.bounds import LONG, bound
from tests.harness.fixtures import Probe
from tests.harness.node import Node
from tests.harness.waiting import Background, at_once, until

BUSY_S = 10 if LONG else 2.5


def test_a_request_behind_a_long_one_is_refused_at_its_deadline(node: Node, probe: Probe):
    model = probe()
    node.load(model)
    with Background() as background:
        long = background.start(lambda: node.run(model, {"sleep_s": BUSY_S, "echo": "long"}))
        until(lambda: node.model(model)["instances"][0]["in_flight"], within_s=3, what="the long one runs")
        late = node.run(model, {"echo": "late"}, headers={"x-timeout-ms": "1000"})
        assert (late.status, late.code) == (408, 3046), late.body
        assert late.headers["x-should-retry"] == "false"
        assert 0.95 <= late.took_s <= bound(1.3)
        assert not long.done()
        assert long.result().result["echo"] == "long"
    assert not [line for line in node.probe_log(model) if line.get("echo") == "late"], "what nobody waits for isn't run"


def test_a_request_that_runs_too_long_is_answered_at_its_deadline_too(node: Node, probe: Probe):
    model = probe()
    node.load(model)
    answer = node.run(model, {"sleep_s": 5}, headers={"x-timeout-ms": "500"})
    assert (answer.status, answer.code) == (408, 3046)
    assert 0.45 <= answer.took_s <= bound(0.8)
    after = node.run(model, {"echo": "next"})
    assert after.result["echo"] == "next"
    assert after.took_s <= bound(0.5), "the sleep saw its cancellation and gave the slot back"


def test_the_model_s_own_timeout_holds_where_the_caller_names_none(node: Node, probe: Probe):
    model = probe(serving={"timeout_s": 0.6})
    node.load(model)
    answer = node.run(model, {"sleep_s": 5})
    assert (answer.status, answer.code) == (408, 3046)
    assert 0.55 <= answer.took_s <= bound(0.9)


@pytest.mark.parametrize("value", ["0", "-5", "soon", "1e400", "99999999999999999999", ""])
def test_a_deadline_that_is_no_time_is_refused_or_ignored(node: Node, probe: Probe, value: str):
    model = probe()
    answer = node.run(model, {"echo": 1}, headers={"x-timeout-ms": value})
    assert answer.status in (200, 400, 408), answer.body
    answer.json()


def test_twenty_deadlines_in_one_queue_are_each_kept(node: Node, probe: Probe):
    model = probe()
    node.load(model)
    limits = [0.3 + 0.05 * number for number in range(20)]
    with Background() as background:
        background.start(lambda: node.run(model, {"sleep_s": 2}))
        until(lambda: node.model(model)["instances"][0]["in_flight"], within_s=3, what="the long one runs")
        calls = [partial(node.run, model, {"echo": limit}, headers={"x-timeout-ms": str(int(limit * 1000))}) for limit in limits]
        for limit, answer in zip(limits, at_once(calls), strict=True):
            assert answer.status == 408
            assert limit - 0.05 <= answer.took_s <= bound(limit + 0.3)
