"""Case 12: what a control plane had booked is what its successor finds to be true, within seconds."""

from typing import Any

import pytest

from tests.harness.books import living
from tests.harness.fixtures import StartNode
from tests.harness.node import Node
from tests.harness.processes import kill
from tests.harness.waiting import until

MIB = 1024 * 1024
CONFIG = """
[node]
drain_s = 5
kill_s = 2
[[devices.fake]]
total = "1000MiB"
"""
MODELS = [f"@test/{letter}" for letter in "abc"]
TRUE_S = 5.0


def card(node: Node) -> dict[str, Any]:
    found: dict[str, Any] = node.fetch("GET", "/api/v1/devices").json()["devices"][1]
    return found


def book_is_true(node: Node, models: list[str]) -> bool:
    """Processes of these models live, and no others; the ledger holds each of them, 300 MiB each, and nothing else."""
    live, seen = living(node), card(node)
    return (
        sorted(process.model for process in live) == models
        and {process.instance for process in live} == {holder["instance"] for holder in seen["holders"]}
        and sorted(process.pid for process in live) == sorted(pid for model in MODELS for pid in node.pids(model))
        and seen["reserved_bytes"] == seen["used_bytes"] == 300 * MIB * len(models)
    )


def deploy(node: Node, name: str, *, mib: int) -> None:
    node.deploy_probe(name, settings={"device_mib": mib}, resources={"device": "cuda", "device_memory": f"{mib}MiB"})


def three_residents(new_node: StartNode) -> Node:
    node = new_node(config=CONFIG).start()
    for model in MODELS:
        deploy(node, model, mib=300)
        node.load(model)
    assert book_is_true(node, MODELS)
    return node


def all_that_is_free_can_be_used(node: Node, *, free_mib: int, left: list[str]) -> None:
    deploy(node, "@test/rest", mib=free_mib)
    node.load("@test/rest")
    assert node.metrics().total("fornada_evictions_total", reason="room") == 0
    for model in [*left, "@test/rest"]:
        node.unload(model)
    seen = card(node)
    assert (seen["used_bytes"], seen["reserved_bytes"], seen["holders"]) == (0, 0, [])


@pytest.mark.parametrize("dead", [[], MODELS[2:], MODELS], ids=["none", "one", "all"])
def test_after_a_kill_of_the_control_plane_and_of_some_models_the_ledger_is_what_lives(new_node: StartNode, dead: list[str]):
    node = three_residents(new_node)
    pids = {model: node.pids(model) for model in MODELS}
    control = node.control_pid
    kill(control)
    for model in dead:
        kill(pids[model][0])  # nobody is there to see it
    node.wait_next_control_plane(after_pid=control)
    left = [model for model in MODELS if model not in dead]
    until(lambda: book_is_true(node, left), within_s=TRUE_S, what="the ledger is what lives")
    assert {model: node.pids(model) for model in left} == {model: pids[model] for model in left}, "who lived is served by, not started anew"
    all_that_is_free_can_be_used(node, free_mib=1000 - 300 * len(left), left=left)
    assert node.stop() == 0


def test_a_control_plane_that_lives_hears_of_each_death(new_node: StartNode):
    node = three_residents(new_node)
    left = list(MODELS)
    for model in reversed(MODELS):
        left.remove(model)
        kill(node.pids(model)[0])
        until(lambda: book_is_true(node, left), within_s=TRUE_S, what="the ledger is what lives")
    all_that_is_free_can_be_used(node, free_mib=1000, left=[])
    assert node.stop() == 0


def test_nothing_is_claimed_by_who_died_with_the_keeper(new_node: StartNode):
    node = three_residents(new_node)
    kill(node.keeper_pid)
    assert node.wait() == 1
    node.start()
    until(lambda: book_is_true(node, []), within_s=TRUE_S, what="the ledger is empty")
    all_that_is_free_can_be_used(node, free_mib=1000, left=[])
    assert node.stop() == 0
