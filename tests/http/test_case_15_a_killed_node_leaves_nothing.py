"""Case 15: the server is killed with -9. Nothing of it lives on, its port is free, and a restart serves.

The keeper's end is everybody's, and is felt within a second.
"""

import socket
import time
from functools import partial

import pytest

from tests.bounds import bound
from tests.harness.fixtures import StartNode
from tests.harness.node import Node
from tests.harness.processes import all_gone, kill
from tests.harness.waiting import Background, until
from tests.harness.walls import groups, tops

MODELS = ("@test/one", "@test/two", "@test/three")


def busy_node(new_node: StartNode) -> Node:
    node = new_node().start()
    for model in MODELS:
        node.deploy_probe(model)
        node.ask(model, {"echo": 1})
    before = len(node.tree())
    assert node.ask(MODELS[1], {"fork_child": True})["child"]
    assert len(node.tree()) > before, "a child of a model's own"
    return node


@pytest.mark.parametrize("victim", ["main", "keeper"])
def test_three_seconds_after_a_kill_no_descendant_lives(new_node: StartNode, victim: str):
    node = busy_node(new_node)
    tree = node.tree()
    runners = [pid for model in MODELS for pid in node.pids(model)]
    assert len(set(runners)) == 3 and set(runners) <= {process.pid for process in tree}
    address = node.address
    with Background() as background:
        # One of them is in the middle of a request, and wouldn't look at a closed channel by itself.
        caller = background.start(partial(node.cut_off, MODELS[0], {"sleep_s": 30}))
        until(lambda: node.model(MODELS[0])["instances"][0]["in_flight"], within_s=3, what="a request runs")
        kill(node.process.pid if victim == "main" else node.keeper_pid)
        all_gone(tree, within_s=3, what=f"descendants 3 s after kill -9 of {victim}")
        assert node.wait(within_s=3) != 0
        caller.result()
    node.nothing_left()
    if victim == "keeper":
        assert not tops(node.data_dir), "main has removed the cgroups"

    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(address)  # the port is free

    node.start()
    until(lambda: not groups(node.data_dir), within_s=3, what="the cgroups of the dead node are gone")
    assert sorted(m["name"] for m in node.fetch("GET", "/api/v1/models").json()["models"] if m["name"] in MODELS) == sorted(MODELS)
    for model in MODELS:
        answer = node.ask(model, {"echo": 2})
        assert answer["echo"] == 2 and answer["pid"] not in runners
    assert node.stop() == 0


def test_a_second_after_the_keeper_s_death_none_of_ten_idle_models_lives(new_node: StartNode):
    node = new_node().start()
    models = [f"@test/idle-{number}" for number in range(10)]
    for model in models:
        node.deploy_probe(model)
        node.load(model)
    tree = node.tree()
    assert {node.pids(model)[0] for model in models} <= {process.pid for process in tree}
    kill(node.keeper_pid)
    all_gone(tree, within_s=1, what="descendants a second after the keeper's death")
    assert node.wait(within_s=5) != 0
    node.nothing_left()
    node.start()
    until(lambda: not groups(node.data_dir), within_s=3, what="the cgroups of the dead node are gone")
    for model in models[:2]:
        assert node.ask(model, {"echo": 1})["echo"] == 1
    assert node.stop() == 0
    assert not tops(node.data_dir)


@pytest.mark.alone
def test_a_restart_is_ready_within_three_seconds(new_node: StartNode):
    node = busy_node(new_node)
    assert node.stop() == 0
    began = time.monotonic()
    node.start()
    took_s = time.monotonic() - began
    assert node.fetch("GET", "/health/ready").status == 200
    assert took_s <= bound(3)
    assert node.ask(MODELS[0], {"echo": 1})["echo"] == 1
    assert node.stop() == 0
