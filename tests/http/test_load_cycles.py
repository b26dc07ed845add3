"""A model loaded and unloaded over and over, while control planes are killed in between: nothing stays of any turn."""

from pathlib import Path

import pytest

from tests.bounds import bound, count
from tests.harness.bundles import archive
from tests.harness.fixtures import StartNode
from tests.harness.node import Node
from tests.harness.processes import all_gone, kill
from tests.harness.waiting import until
from tests.harness.walls import Held, at_rest, no_more_open, tops

LONG_CYCLES = 1000
KILLED_EVERY = count(9, long=50)
MODEL = "@test/cycle"


def cycle(node: Node, number: int) -> int:
    """The pid of the instance that came and went."""
    answer = node.ask(MODEL, {"echo": number})
    assert answer["echo"] == number
    (pid,) = node.pids(MODEL)
    node.unload(MODEL)
    assert not Path(f"/proc/{pid}").exists() or node.pids(MODEL) == []
    return pid


def next_control_plane(node: Node) -> None:
    pid = node.control_pid
    kill(pid)
    node.wait_next_control_plane(after_pid=pid)


def resting(node: Node, processes: int = 0) -> tuple[Held, int]:
    """What the node holds, and how many processes it has, once that are no more than `processes`."""
    if processes:
        until(lambda: len(node.tree()) <= processes, within_s=10, what=f"no more than {processes} processes: {node.tree()}")
    return at_rest(node.data_dir, node.keeper_pid, node.control_pid), len(node.tree())


@pytest.mark.slow
@pytest.mark.timeout(bound(120 + LONG_CYCLES))
@pytest.mark.parametrize(
    ("forked", "cycles"),
    [pytest.param(True, count(50, long=LONG_CYCLES), id="forked"), pytest.param(False, count(10, long=LONG_CYCLES), id="executed")],
)
def test_load_and_unload_leave_nothing_whoever_dies_between(new_node: StartNode, forked: bool, cycles: int):
    config = f"[node]\ndrain_s = 5\nkill_s = 2\nzygotes = {str(forked).lower()}\n"
    node = new_node(config=config).start()
    node.deploy_probe(MODEL)
    cycle(node, 0)
    next_control_plane(node)  # what a successor holds is what is compared
    cycle(node, 1)
    if forked:
        until(lambda: node.metrics().total("fornada_zygotes", state="ready") == 1, within_s=10, what="a zygote")
        cycle(node, 2)
    before, processes = resting(node)
    for number in range(cycles):
        cycle(node, number)
        if number % KILLED_EVERY == KILLED_EVERY - 1:
            next_control_plane(node)
    after, _ = resting(node, processes)
    assert len(after.groups) == len(before.groups) and len(after.views) == len(before.views)  # a spare's, which is another one now
    assert after.scratch == before.scratch
    assert after.mounts <= before.mounts, (before, after)
    no_more_open(before, node.keeper_pid, node.control_pid)
    if not forked:
        assert not after.groups and not after.views and not after.scratch
        node.ask(MODEL, {"echo": 1})
    assert node.stop() == 0
    assert not tops(node.data_dir)


DAEMON = """
import os
import time
import fornada_sdk

class Model(fornada_sdk.Model):
    def load(self, context):
        pass

    def run(self, inputs, context):
        child = os.fork()
        if child == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(600)
            os._exit(0)
        os.waitpid(child, 0)
        return {}
"""


@pytest.mark.parametrize("level", ["auto", "none"])
@pytest.mark.parametrize("forked", [True, False], ids=["forked", "executed"])
def test_a_process_that_a_model_left_behind_goes_with_it(new_node: StartNode, forked: bool, level: str):
    config = f"[node]\ndrain_s = 5\nkill_s = 2\nspares = 0\nzygotes = {str(forked).lower()}\n"
    node = new_node(config=config, flags=["--isolation", level]).start()
    node.deploy(MODEL, archive({"model.toml": f'name = "{MODEL}"\n', "model.py": DAEMON}))
    node.load(MODEL)
    if forked:
        until(lambda: node.metrics().total("fornada_zygotes", state="ready") == 1, within_s=10, what="a zygote")
        node.unload(MODEL)
    at_rest(node.data_dir, node.keeper_pid)
    before = {process.pid for process in node.tree()}
    node.run(MODEL, {})
    left = [process for process in node.tree() if process.pid not in before | set(node.pids(MODEL))]
    assert len(left) == 1, "the model's own process"
    node.unload(MODEL)
    all_gone(left, within_s=2, what="what it left behind")
    assert node.stop() == 0
