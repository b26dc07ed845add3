"""One run of a real node, recorded: core.policy makes each plan again, and the simulator chooses as the node did."""

import random
import time
from collections.abc import Iterable, Mapping
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
CARD_MIB = 8192
CONFIG = f"""
[node]
drain_s = 5
kill_s = 2
record_choices = "64MiB"
[[devices.fake]]
total = "{CARD_MIB}MiB"
"""


def leaving_at_least(asked: Iterable[str], mib: Mapping[str, int]) -> int:
    """How often one of them has to leave the card, whoever it is: once in every stretch of requests whose models don't fit on it together."""
    times, stretch = 0, set[str]()
    for name in asked:
        stretch.add(name)
        if sum(mib[each] for each in stretch) > CARD_MIB:
            times, stretch = times + 1, {name}
    return times


def record_of(node: Node) -> list[Entry]:
    return read((node.data_dir / "logs/choices.log").read_bytes().splitlines())


@pytest.mark.slow
@pytest.mark.timeout(bound(count(120, long=600)))
@pytest.mark.parametrize("leaves", ["sleep", "evict"])
def test_every_plan_comes_out_the_same_again_and_the_simulator_chooses_the_same_models_in_the_same_order(new_node: StartNode, leaves: str):
    node = new_node(config=CONFIG).start()
    sizes = {f"@test/m{number}": mib for number, mib in enumerate(SIZES_MIB)}
    names = list(sizes)
    # Where they sleep, the largest can't: both ways to leave are in one run. Of the others the way to sleep and back takes 0.75 s at most.
    those = [name for name in names if leaves == "evict" or sizes[name] < max(SIZES_MIB)]
    for name, mib in sizes.items():
        card = {"device": "cuda", "device_memory": f"{mib}MiB", "memory": "64MiB"}
        sleeps = leaves == "sleep" and name in those
        settings = {"device_mib": mib, "load_s": 1.5 if sleeps else 0.05, "sleeps": sleeps}
        node.deploy_probe(name, settings=settings, serving={"concurrency": 4}, resources=card)
    chance = random.Random(8250)
    weights = [1 / (rank + 1) for rank in range(len(names))]
    asked: list[str] = []
    for number in range(ONE_BY_ONE):
        (name,) = chance.choices(names, weights)
        asked.append(name)
        assert node.ask(name, {"echo": number})["echo"] == number
        time.sleep(chance.random() / 20)
    in_turn = len(record_of(node))
    for number in range(TOGETHER):
        four = chance.choices(names, k=4)
        at_once([partial(node.ask, name, {"echo": number, "sleep_s": 0.05}, timeout_s=60) for name in four], within_s=90)
    assert node.stop() == 0

    whole = record_of(node)
    plans = [entry for entry in whole if isinstance(entry, Moment)]
    assert sum(isinstance(entry, Came) for entry in whole) == ONE_BY_ONE + 4 * TOGETHER
    assert different_plans(whole) == []
    assert any(len(moment.needs) > 1 for moment in plans), "several waited at a time"

    one_by_one = whole[:in_turn]
    chosen = [(choice.what, choice.key) for choice in choices(one_by_one)]
    least = leaving_at_least([name for name in asked if name in those], sizes)
    assert [what for what, _ in chosen].count(leaves) >= least > 0
    assert [(choice.what, choice.key) for choice in Replay(one_by_one).choices()] == chosen
    print(f"{len(plans)} plans made again, {len(chosen)} choices of {ONE_BY_ONE} requests chosen again by the simulator")
