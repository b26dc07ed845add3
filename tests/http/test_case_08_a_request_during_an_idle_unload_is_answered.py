"""Case 8: a request that arrives while the model is being unloaded for idleness waits for the stop, then for the start."""

import json
import random
import time
from datetime import datetime
from functools import partial

import pytest

from tests.bounds import bound, count
from tests.harness.fixtures import Probe, StartNode
from tests.harness.node import Node
from tests.harness.waiting import at_once

IDLE_S, STOP_S = (count(5, long=10) / 10, count(8, long=20) / 10)
MODELS = 4
ROUNDS = count(24, long=200) // MODELS
CONFIG = "[node]\ndrain_s = 5\nkill_s = 6\n"
"""A slow stop isn't cut short."""


def stops(node: Node, model: str) -> list[tuple[float, float]]:
    """From when to when each of its processes was on its way out, in seconds since 1970, by the node's log."""
    lines = [json.loads(line) for line in (node.data_dir / "logs/node.log").read_text().splitlines()]
    events = [(line["event"], datetime.fromisoformat(line["time"]).timestamp()) for line in lines if line.get("model") == model]
    begun = [at for event, at in events if event == "instance.unwanted"]
    ended = [at for event, at in events if event == "instance.ended"]
    return list(zip(begun, ended, strict=False))


@pytest.mark.slow
@pytest.mark.timeout(bound(60 + ROUNDS * (IDLE_S + STOP_S) * 4))
def test_requests_at_any_moment_around_the_expiry_are_all_answered(new_node: StartNode):
    node = new_node(config=CONFIG).start()
    models = [f"@test/m{number}" for number in range(MODELS)]
    for model in models:
        node.deploy_probe(model, settings={"stop_s": STOP_S}, serving={"idle_timeout_s": IDLE_S})
    asked: dict[str, list[float]] = {model: [] for model in models}

    def rounds(number: int, model: str) -> None:
        chance = random.Random(number)
        for turn in range(ROUNDS):
            asked[model].append(time.time())
            began = time.monotonic()
            assert node.ask(model, {"echo": turn}, timeout_s=bound(30))["echo"] == turn
            assert time.monotonic() - began < STOP_S + bound(5), "it waits for one stop and one start"
            time.sleep(chance.uniform(IDLE_S - 0.2, IDLE_S + STOP_S + 0.2))  # the case itself: a random moment around the expiry

    at_once([partial(rounds, number, model) for number, model in enumerate(models)], within_s=ROUNDS * (IDLE_S + STOP_S) * 4 + 30)
    caught = sum(begun < at < ended for model in models for at in asked[model] for begun, ended in stops(node, model))
    assert caught >= ROUNDS * MODELS // 8, "too few of them came during an unload: this proves nothing"
    assert sum(node.loads(model) for model in models) > caught, "each that did was loaded anew"
    assert node.stop() == 0


def test_idleness_counts_from_the_last_byte_of_the_last_answer(node: Node, probe: Probe):
    model = probe(serving={"idle_timeout_s": 0.8})
    stream = node.stream(model, {"steps": 10, "step_s": 0.2})  # longer than the idle time
    assert len(stream.items) == 10 and stream.done
    first = node.model(model)["instances"][0]
    assert node.ask(model, {"echo": 1})["pid"] == first["pid"], "it was unloaded in or right after its stream"
    began = time.monotonic()
    node.wait_state(model, "stopped", within_s=5)
    assert time.monotonic() - began >= 0.7
