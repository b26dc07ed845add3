"""One run of a real node, recorded: core.policy makes each plan again, and the simulator chooses as the node did."""

import random
import time
from functools import partial

import pytest

from fornada.core.policy.record import Came, Entry, Moment, read
from fornada.simulate.replay import Replay, choices, different_plans
from tests.bounds import bound, count
from tests.harness.fixtures import StartNode
from tests.harness.node import Node
from tests.harness.waiting import at_once

SIZES_MIB = (3072, 1024, 2048, 1536, 4096, 1024, 2560, 1792)
ONE_BY_ONE = count(30, long=200)
TOGETHER = count(5, long=40)
CONFIG = """
[node]
drain_s = 5
kill_s = 2
record_choices = "64MiB"
[[devices.fake]]
total = "8GiB"
"""


def record_of(node: Node) -> list[Entry]:
    return read((node.data_dir / "logs/choices.log").read_bytes().splitlines())


@pytest.mark.slow
@pytest.mark.timeout(bound(count(120, long=600)))
@pytest.mark.parametrize("leaves", ["sleep", "evict"])
def test_every_plan_comes_out_the_same_again_and_the_simulator_chooses_the_same_models_in_the_same_order(new_node: StartNode, leaves: str):
    node = new_node(config=CONFIG).start()
    names = [f"@test/m{number}" for number in range(len(SIZES_MIB))]
    for name, mib in zip(names, SIZES_MIB, strict=True):
        card = {"device": "cuda", "device_memory": f"{mib}MiB", "memory": "64MiB"}
        node.deploy_probe(
            name,
            settings={"device_mib": mib, "load_s": 0.5 if leaves == "sleep" else 0.05, "sleeps": leaves == "sleep"},
            serving={"concurrency": 4},
            resources=card,
        )
    chance = random.Random(8250)
    weights = [1 / (rank + 1) for rank in range(len(names))]
    for number in range(ONE_BY_ONE):
        (name,) = chance.choices(names, weights)
        assert node.ask(name, {"echo": number})["echo"] == number
        time.sleep(chance.random() / 20)
    in_turn = len(record_of(node))
    for number in range(TOGETHER):
        asked = chance.choices(names, k=4)
        at_once([partial(node.ask, name, {"echo": number, "sleep_s": 0.05}, timeout_s=60) for name in asked], within_s=90)
    assert node.stop() == 0

    whole = record_of(node)
    plans = [entry for entry in whole if isinstance(entry, Moment)]
    assert sum(isinstance(entry, Came) for entry in whole) == ONE_BY_ONE + 4 * TOGETHER
    assert different_plans(whole) == []
    assert any(len(moment.needs) > 1 for moment in plans), "several waited at a time"

    one_by_one = whole[:in_turn]
    chosen = [(choice.what, choice.key) for choice in choices(one_by_one)]
    assert [what for what, _ in chosen].count(leaves) > ONE_BY_ONE // 5
    assert [(choice.what, choice.key) for choice in Replay(one_by_one).choices()] == chosen
    print(f"{len(plans)} plans made again, {len(chosen)} choices of {ONE_BY_ONE} requests chosen again by the simulator")
