"""A batch of a thousand in the background, and those who wait for an answer meanwhile."""

import time
from collections.abc import Callable
from functools import partial

import pytest

from tests.bounds import count
from tests.harness.fixtures import Probe
from tests.harness.node import Node
from tests.harness.waiting import Background, until
from tests.http.test_case_40_an_accepted_job_is_done import job, submit

ITEMS = 1000
REQUEST_S, ITEM_S = 0.25, 0.1
REQUESTS = count(15, long=100)
MOST = 1.25
TRIES = 3
"""Pairs of rounds. One without a disturbance from outside is enough: what jobs do they do in each."""


def ask(node: Node, model: str) -> list[float]:
    """Seconds of one caller's requests, one after the other."""
    took = []
    with node.connect() as connection:
        for _ in range(REQUESTS):
            began = time.monotonic()
            connection.send_request("POST", f"/client/v4/accounts/local/ai/run/{model}", b'{"sleep_s": %f}' % REQUEST_S)
            assert connection.read_response().status == 200
            took.append(time.monotonic() - began)
    return took


def p99_s(node: Node, model: str, callers: int) -> float:
    with Background() as background:
        asked: list[Callable[[], list[float]]] = [background.start(partial(ask, node, model)).result for _ in range(callers)]
        took = sorted(seconds for each in asked for seconds in each())
    return took[int(0.99 * (len(took) - 1))]


@pytest.mark.parametrize(("concurrency", "callers"), [(1, 1), (4, 2)], ids=["no place left over", "a place left over"])
def test_a_batch_of_a_thousand_hardly_delays_anybody(node: Node, probe: Probe, concurrency: int, callers: int):
    model = probe(serving={"concurrency": concurrency})
    node.ask(model, {"echo": 0})
    ratios: list[float] = []
    while not ratios or (min(ratios) > MOST and len(ratios) < TRIES):
        alone_s = p99_s(node, model, callers)
        id = submit(node, model, [{"sleep_s": ITEM_S}] * ITEMS)
        beside_s = p99_s(node, model, callers)
        ratios.append(beside_s / alone_s)
        before = job(node, id)["counts"].get("completed", 0)
        if concurrency > 1:
            assert before > REQUESTS, "a place was left over, and hardly used"
        until(lambda: job(node, id)["counts"].get("completed", 0) > before + 5, within_s=60, what="the batch goes on in the lull")  # noqa: B023
        assert node.fetch("POST", f"/api/v1/jobs/{id}/cancel").json()["status"] == "cancelled"
    assert min(ratios) <= MOST, f"the 99th percentile was raised by these factors: {ratios}"


def test_a_request_takes_the_place_of_an_item_at_once_and_the_item_is_done_later(node: Node, probe: Probe):
    model = probe()
    node.load(model)
    id = submit(node, model, [{"sleep_s": 20}, {"echo": 1}])
    until(lambda: node.model(model)["instances"][0]["in_flight"] == 1, within_s=30, what="the item runs")
    began = time.monotonic()
    node.ask(model, {"echo": 1})
    assert time.monotonic() - began < 15, "the request waited for the item"
    assert job(node, id)["status"] == "running"
    assert node.fetch("POST", f"/api/v1/jobs/{id}/cancel").json()["counts"] == {"cancelled": 2}
