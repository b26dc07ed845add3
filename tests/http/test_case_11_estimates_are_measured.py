"""Case 11: a wrong estimate costs one load. What was measured is kept, and planned with after a restart."""

from typing import Any

from tests.harness.fixtures import StartNode
from tests.harness.node import Node

MIB = 1024 * 1024
CONFIG = """
[node]
drain_s = 5
kill_s = 2
max_wait_s = 10
[[devices.fake]]
total = "1000MiB"
"""


def deploy(node: Node, name: str, *, declares: int, takes: int) -> None:
    node.deploy_probe(name, settings={"device_mib": takes}, resources={"device": "cuda", "device_memory": f"{declares}MiB"})


def card(node: Node) -> dict[str, Any]:
    found: dict[str, Any] = node.fetch("GET", "/api/v1/devices").json()["devices"][1]
    return found


def charges(node: Node) -> dict[str, tuple[int, str]]:
    """Model -> (MiB charged, why)."""
    return {holder["model"]: (holder["bytes"] // MIB, holder["because"]) for holder in card(node)["holders"]}


def evictions(node: Node) -> float:
    return node.metrics().total("fornada_evictions_total", reason="room")


def test_who_takes_more_than_he_declares_is_served_after_one_eviction_and_planned_with_it_from_then_on(new_node: StartNode):
    node = new_node(config=CONFIG).start()
    deploy(node, "@test/other", declares=500, takes=500)
    deploy(node, "@test/liar", declares=100, takes=600)
    node.load("@test/other")
    assert node.ask("@test/liar", {"echo": 1})["echo"] == 1
    assert evictions(node) == 1
    assert charges(node) == {"@test/liar": (600, "learned")}
    assert node.model("@test/liar")["peak_bytes"] == 600 * MIB
    assert len([line for line in node.probe_log("@test/liar") if line["event"] == "load"]) == 2, "it was tried twice"
    assert node.stop() == 0

    again = node.start()
    assert again.model("@test/liar")["peak_bytes"] == 600 * MIB
    again.load("@test/other")
    assert again.ask("@test/liar", {"echo": 2})["echo"] == 2
    loads = [line["load_attempt"] for line in again.probe_log("@test/liar") if line["event"] == "load"]
    assert len(loads) == 3, "the first try succeeded: 600 MiB were planned at once"
    assert again.metrics().total("fornada_model_loads_total", outcome="failed") == 0
    assert again.stop() == 0


def test_who_takes_less_than_he_declares_leaves_the_rest_to_others(new_node: StartNode):
    node = new_node(config=CONFIG).start()
    models = [f"@test/modest-{number}" for number in range(4)]
    for model in models:
        deploy(node, model, declares=900, takes=50)
        node.load(model)
    assert evictions(node) == 1, "the fourth, of which nothing is known yet, needs what three have left and 50 MiB more"
    for model in models:
        node.load(model)
    assert charges(node) == dict.fromkeys(models, (50, "learned"))
    assert evictions(node) == 1, "all of them are known now, and fit"
    why = node.fetch("GET", "/api/v1/models/@test/modest-0/why").json()["memory"]["charged"]["device"]
    assert (why["declared_bytes"], why["learned_bytes"], why["live_bytes"]) == (900 * MIB, 50 * MIB, 50 * MIB)
    assert node.stop() == 0


def test_who_can_t_ever_have_what_he_takes_is_told_both_numbers(new_node: StartNode):
    node = new_node(config=CONFIG).start()
    deploy(node, "@test/giant", declares=100, takes=1500)
    answer = node.run("@test/giant", {"echo": 1})
    assert (answer.status, answer.json()["errors"][0]["code"]) == (503, 3104)
    assert "1.5 GiB" in answer.body.decode() and "1000 MiB" in answer.body.decode()
    assert node.stop() == 0
