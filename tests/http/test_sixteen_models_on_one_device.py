"""Sixteen models of 2 GiB on a device of 8: each answer is its own, none waits beyond its bound, and the device never runs out."""

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import pytest

from fornada.core.names import Instant
from fornada.simulate.report import percentile
from fornada.simulate.traffic import GIB, Asked, Load, models, requests
from tests.bounds import bound, count
from tests.harness.fixtures import StartNode
from tests.harness.node import Node
from tests.harness.waiting import Background

MODELS = 16
SECONDS = count(10, long=120)
RATE = 4.0
WORK_S = 0.05
LOAD_S = 0.2
"""As long as 2 GiB take at 10 GiB a second."""
MAX_WAIT_S = 60.0
CONFIG = f"""
[node]
drain_s = 5
kill_s = 2
max_wait_s = {MAX_WAIT_S:g}
[[devices.fake]]
total = "8GiB"
"""


class Seen(NamedTuple):
    """An answer."""

    asked: Asked
    took_s: float


@pytest.mark.slow
@pytest.mark.timeout(bound(SECONDS + 240))
def test_at_four_times_the_memory_all_answers_are_right_in_time_and_the_device_never_runs_out(
    new_node: StartNode, record_property: Callable[[str, object], None]
):
    node = new_node(config=CONFIG).start()
    named = models([2 * GIB] * MODELS, bandwidth=8 * GIB)
    for model in named:
        node.deploy_probe(
            model.name,
            settings={"device_mib": 2048, "load_s": LOAD_S},
            serving={"concurrency": 4, "timeout_s": 2 * MAX_WAIT_S},
            resources={"device": "cuda", "device_memory": "2GiB", "memory": "64MiB"},
        )
    traffic = requests(named, Load(duration_s=SECONDS, rate=RATE, work_s=WORK_S), random.Random(8250))
    once_each = [Asked(Instant(SECONDS * (number + 0.5) / MODELS), model.name, WORK_S) for number, model in enumerate(named)]
    with device_within_its_memory(node) as looks:
        seen = asked(node, sorted([*traffic, *once_each], key=lambda one: one.at))
    assert looks[0] > SECONDS, "the device was looked at all the time"

    for one in seen:
        assert one.took_s <= bound(MAX_WAIT_S) + one.asked.work_s, f"{one.asked.model} waited beyond the bound"
    assert {one.asked.model for one in seen} == {model.name for model in named}
    metrics = node.metrics()
    assert metrics.total("fornada_model_loads_total", outcome="failed") == 0
    assert metrics.total("fornada_requests_total", outcome="ok") == len(seen) == metrics.total("fornada_requests_total")
    evictions = metrics.total("fornada_evictions_total", reason="room")
    assert evictions >= MODELS - 4, "four fit"
    share = swap_share(node)
    assert node.stop() == 0

    took = [one.took_s for one in seen]
    figures = {"p50_s": percentile(took, 0.5), "p95_s": percentile(took, 0.95), "longest_s": max(took), "swap_share": share}
    for name, value in figures.items():
        record_property(f"sixteen_{name}", round(value, 3))
    print(f"{len(seen)} requests to {MODELS} models in {SECONDS} s, {evictions:.0f} evictions: {figures}")
    assert 0.0 < share <= 1.0


def asked(node: Node, traffic: list[Asked]) -> list[Seen]:
    """Sends each request when its time has come; every answer must be the request's own."""
    began = time.monotonic()

    def ask(number: int, one: Asked) -> Seen:
        time.sleep(max(0.0, began + one.at - time.monotonic()))
        sent = time.monotonic()
        answer = node.ask(one.model, {"echo": f"{one.model} {number}", "sleep_s": one.work_s}, timeout_s=2 * MAX_WAIT_S)
        assert (answer["echo"], answer["model"]) == (f"{one.model} {number}", one.model)
        return Seen(one, time.monotonic() - sent)

    with Background(threads=len(traffic)) as background:
        futures = [background.start(partial(ask, number, one)) for number, one in enumerate(traffic)]
        return [future.result(timeout=bound(SECONDS + 3 * MAX_WAIT_S)) for future in futures]


@contextmanager
def device_within_its_memory(node: Node) -> Iterator[Counter[int]]:
    """Looks at the device until the block ends: neither what is held nor what is promised may ever exceed it. Counts looks under 0."""
    over, looks, wrong = threading.Event(), Counter[int](), list[str]()

    def look() -> None:
        while not over.wait(0.05):
            card = next(device for device in node.fetch("GET", "/api/v1/devices").json()["devices"] if device["id"] == "cuda:0")
            looks[0] += 1
            if max(card["used_bytes"], card["reserved_bytes"] + card["lingering_bytes"]) > card["total_bytes"] or card["state"] != "ok":
                wrong.append(json.dumps(card))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield looks
    finally:
        over.set()
        thread.join()
    assert not wrong, wrong[0]


def swap_share(node: Node) -> float:
    """The part of the time in which a model was on its way up or down, by the node's log."""
    moves: list[tuple[float, int]] = []
    lines = [json.loads(line) for line in (node.data_dir / "logs/node.log").read_text().splitlines()]
    for line in lines:
        match line["event"]:
            case "instance.spawned" | "instance.unwanted":
                moves.append((seconds(line["time"]), 1))
            case "instance.ready" | "instance.ended":
                moves.append((seconds(line["time"]), -1))
    moves.sort()
    swapping_s, open_moves = 0.0, 0
    for (at, step), (until, _) in pairwise(moves):
        open_moves += step
        swapping_s += until - at if open_moves > 0 else 0.0
    return swapping_s / (moves[-1][0] - moves[0][0])


def seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()
