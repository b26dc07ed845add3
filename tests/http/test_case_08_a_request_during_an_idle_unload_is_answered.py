"""Case 8: a request that arrives while the model is being unloaded for idleness waits for the stop, then for the start."""

import random
import time
from functools import partial

from tests.bounds import count
from tests.harness.fixtures import Probe
from tests.harness.node import Node
from tests.harness.waiting import at_once

IDLE_S = 0.5
STOP_S = 0.8
MODELS = 4
ROUNDS = count(20, long=200) // MODELS


def test_requests_at_any_moment_around_the_expiry_are_all_answered(node: Node, probe: Probe):
    models = [probe(settings={"stop_s": STOP_S}, serving={"idle_timeout_s": IDLE_S}) for _ in range(MODELS)]

    def rounds(number: int, model: str) -> list[int]:
        chance = random.Random(number)
        statuses = []
        for _ in range(ROUNDS):
            statuses.append(node.run(model, {"echo": number}).status)
            time.sleep(chance.uniform(IDLE_S - 0.2, IDLE_S + STOP_S + 0.2))  # the case itself: a random moment around the expiry
        return statuses

    answers = at_once([partial(rounds, number, model) for number, model in enumerate(models)], within_s=ROUNDS * 5)
    assert answers == [[200] * ROUNDS] * MODELS
    loads = sum(node.loads(model) for model in models)
    assert loads > MODELS, "no model was unloaded at all: this proves nothing"


def test_idleness_counts_from_the_last_byte_of_the_last_answer(node: Node, probe: Probe):
    model = probe(serving={"idle_timeout_s": 0.8})
    stream = node.stream(model, {"steps": 10, "step_s": 0.2})  # longer than the idle time
    assert len(stream.items) == 10 and stream.done
    first = node.model(model)["instances"][0]
    assert node.ask(model, {"echo": 1})["pid"] == first["pid"], "it was unloaded in or right after its stream"
    began = time.monotonic()
    node.wait_state(model, "stopped", within_s=5)
    assert time.monotonic() - began >= 0.7
