"""Case 19: a model that hangs where nothing can interrupt it holds up nobody else, neither while it loads nor while it answers."""

import time
from functools import partial

import pytest

from tests.bounds import bound
from tests.harness.bundles import archive
from tests.harness.fixtures import Probe
from tests.harness.node import Node
from tests.harness.processes import all_gone, seen
from tests.harness.waiting import Background, until

MARGIN_S = 1.0
"""A load here takes some tenths of a second; to wait for the stuck one would take a minute."""


def bundle(name: str, *, where: str) -> bytes:
    """Its sleep keeps the interpreter's lock: no thread, no signal handler and no answer of its process comes in between."""
    code = """
import ctypes
import fornada_sdk

STUCK = ctypes.PyDLL(None).sleep

class Model(fornada_sdk.Model):
    def load(self, context):
        LOAD

    def run(self, inputs, context):
        RUN
        return {}
"""
    for step in ("load", "run"):
        code = code.replace(step.upper() + "\n", ("STUCK(60)" if step == where else "pass") + "\n")
    return archive({"model.toml": f'name = "{name}"\n[serving]\ntimeout_s = 1.0\nload_timeout_s = 2.0\n', "model.py": code})


def loads_in(node: Node, model: str) -> float:
    began = time.monotonic()
    node.load(model)
    took_s = time.monotonic() - began
    node.unload(model)
    return took_s


@pytest.mark.parametrize("where", ["load", "run"])
def test_others_load_and_answer_in_their_usual_time(node: Node, probe: Probe, fresh_name, where: str):
    stuck, other, resident = fresh_name(), probe(), probe()
    node.ask(resident, {"echo": 0})
    loads_in(node, other)
    alone_s = loads_in(node, other)
    node.deploy(stuck, bundle(stuck, where=where))
    with Background() as background:
        caller = background.start(partial(node.run, stuck, {}))
        until(lambda: node.pids(stuck), within_s=10, what="the stuck model has a process")
        if where == "run":
            until(lambda: node.model(stuck)["instances"][0]["in_flight"], within_s=10, what="it is stuck")
        process = seen(node.pids(stuck)[0])
        for number in range(3):
            assert loads_in(node, other) < bound(alone_s + MARGIN_S)
            answer = node.run(resident, {"echo": number})
            assert answer.status == 200 and answer.took_s < bound(MARGIN_S)
        refusal = caller.result()
    assert (refusal.status, refusal.code) == (408, 3046), refusal.body
    assert node.unload(stuck, grace_s=0.5).took_s < bound(10)
    all_gone([process], within_s=5, what="the stuck process, whom nothing but SIGKILL can end")
    assert loads_in(node, other) < bound(alone_s + MARGIN_S)
    assert node.metrics().total("fornada_scheduler_loop_age_seconds") < bound(1)
