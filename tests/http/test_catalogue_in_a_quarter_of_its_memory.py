"""Real models in a quarter of the memory that they take together: every answer is right, and they never hold more than they may."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, NamedTuple

import pytest

from fornada.node.memory_use import held_by
from fornada.simulate.report import percentile
from tests.bounds import LONG, bound, count
from tests.harness.built import BuiltNode
from tests.harness.fixtures import StartNode
from tests.harness.likeness import unlike
from tests.harness.node import Node
from tests.harness.processes import descendants, read_stat
from tests.harness.waiting import Background
from tests.http.test_catalogue_examples import FIRST_S, MIRROR, Example, asked, examples

FEW = ("@fornada/magika", "@fornada/langid", "@fornada/vader", "@fornada/face-detection", "@fornada/selfie-segmentation")
REQUESTS = count(40, long=400)
CALLERS = 3
ZIPF = 0.7
NODE = "[node]\ndrain_s = 5\nkill_s = 2\nmax_wait_s = 300\nzygotes = false\n"
"""What a zygote holds is no model's: here it is about the models'."""


class Measured(NamedTuple):
    """Of one run."""

    took_s: list[float]
    most_bytes: int
    """That all models held together at one moment."""
    looks: int

    def __str__(self) -> str:
        p50, p95 = (percentile(self.took_s, share) for share in (0.5, 0.95))
        return f"p50 {p50:.3f} s, p95 {p95:.3f} s, at most {self.most_bytes / 2**20:.0f} MiB in {self.looks} looks"


@pytest.mark.packages
@pytest.mark.slow
@pytest.mark.timeout(bound(3000 if LONG else 400))
def test_models_in_a_quarter_of_their_memory_answer_right_and_hold_no_more_than_they_may(
    new_node: StartNode, record_property: Callable[[str, object], None]
):
    chosen = [example for example in examples() if LONG or example.spec.name in FEW]
    environ = {"FORNADA_MIRROR": str(MIRROR)} if MIRROR.is_dir() else {}
    node = new_node(kind=BuiltNode, models=[example.spec.name for example in chosen], config=NODE, environ=environ).start()
    for example in chosen:
        asked(node, example.spec.name, example.request, example.type)
    resident = traffic(node, chosen)
    needs = needed(node)
    assert len(needs) == len(chosen)
    for example in chosen:
        node.unload(example.spec.name)
        assert node.act(example.spec.name, "reset").status == 200  # what was learned is forgotten: the budget meets what was declared
    assert node.stop() == 0

    budget = max(sum(needs.values()) // 4, max(needs.values()) * 21 // 20)
    with node.config.open("a") as config:
        config.write(f"[devices]\ncpu = {{ budget = {budget} }}\n")
    node.start()
    swapped = traffic(node, chosen)
    evictions = node.metrics().total("fornada_evictions_total", reason="room")
    failed = node.metrics().total("fornada_model_loads_total", outcome="failed")
    print(f"{len(chosen)} models that take {sum(needs.values()) / 2**20:.0f} MiB, in {budget / 2**20:.0f} MiB, {REQUESTS} requests")
    print(f"  everything resident: {resident}\n  in the budget:       {swapped}; {evictions:.0f} evictions")
    for name, value in {"resident_p95_s": percentile(resident.took_s, 0.95), "budget_p95_s": percentile(swapped.took_s, 0.95)}.items():
        record_property(f"catalogue_{name}", round(value, 3))
    assert evictions > 0
    assert failed == 0
    assert swapped.most_bytes <= budget
    assert node.stop() == 0


def needed(node: Node) -> dict[str, int]:
    """Model -> bytes of the host that it is planned with, as they were measured, without the slack."""
    (cpu,) = (device for device in node.fetch("GET", "/api/v1/devices").json()["devices"] if device["id"] == "cpu")
    return {holder["model"]: max(holder["learned_bytes"], holder["live_bytes"]) for holder in cpu["holders"]}


def traffic(node: Node, chosen: list[Example]) -> Measured:
    """The same requests in the same order each time, several at once: some models are asked often, each at least once."""
    chance = random.Random(8250)
    weights = list(accumulate((rank + 1) ** -ZIPF for rank in range(len(chosen))))
    popular = chance.sample(chosen, len(chosen))
    wanted = [*chosen, *(chance.choices(popular, cum_weights=weights)[0] for _ in range(REQUESTS - len(chosen)))]
    chance.shuffle(wanted)
    todo, lock = iter(wanted), threading.Lock()

    def call() -> list[float]:
        took: list[float] = []
        while True:
            with lock:
                example = next(todo, None)
            if example is None:
                return took
            began = time.monotonic()
            answer: Any = asked(node, example.spec.name, example.request, example.type)
            took.append(time.monotonic() - began)
            assert not (difference := unlike(answer, example.answer)), f"{example.spec.name}: {difference}"

    with held_together(node) as held, Background(threads=CALLERS) as background:
        callers = [background.start(call) for _ in range(CALLERS)]
        took = [one for caller in callers for one in caller.result(timeout=bound(FIRST_S * 4))]
    return Measured(took, max(held), len(held))


@contextmanager
def held_together(node: Node) -> Iterator[list[int]]:
    """What all processes of models hold, looked at again and again until the block ends. What several of them share counts once (PSS)."""
    over, sums = threading.Event(), [0]
    own = {node.keeper_pid, node.control_pid}

    def look() -> None:
        while not over.wait(0.1):
            models = [process.pid for process in descendants(node.keeper_pid) if process.pid not in own]
            tops = set(models)
            sums.append(sum(held_by(pid).bytes for pid in models if parent(pid) not in tops))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield sums
    finally:
        over.set()
        thread.join()


def parent(pid: int) -> int:
    stat = read_stat(pid)
    return stat.parent if stat is not None else 0
