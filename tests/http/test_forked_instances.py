"""Instances that are forked from a zygote, on a real node: how they come about, and that nothing depends on the zygote."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.fixtures import StartNode
from tests.harness.node import Node
from tests.harness.processes import all_gone, seen
from tests.harness.waiting import until

A, B = "@test/forked-a", "@test/forked-b"


def why(node: Node, name: str = A) -> dict[str, Any]:
    process: dict[str, Any] = node.fetch("GET", f"/api/v1/models/{name}/why").json()["process"]
    return process


def zygote(node: Node, name: str = A) -> dict[str, Any]:
    """The ready one of a running model's environment."""
    node.load(name)

    def ready() -> dict[str, Any]:
        found: dict[str, Any] = why(node, name)["zygote"] or {}
        return found if found.get("zygote") == "ready" else {}

    return until(ready, within_s=30, what="a zygote")


def start(node: Node, name: str) -> str:
    return str(node.model(name)["instances"][0]["start"])


def reload(node: Node, name: str) -> str:
    """How the next process of it comes about."""
    assert node.act(name, "unload").status == 200
    node.load(name)
    return start(node, name)


def bounded(*, spares: int = 1, more: str = "") -> str:
    return f"[node]\ndrain_s = 5\nkill_s = 2\nspares = {spares}\n{more}"


@pytest.fixture(params=["auto", pytest.param("namespaces", marks=pytest.mark.long), "none"])
def level(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def forking(new_node: StartNode, level: str) -> Iterator[Node]:
    node = new_node(config=bounded(spares=0), flags=["--isolation", level]).start()
    if node.record["isolation"] == "landlock":
        pytest.skip("no zygotes at landlock")
    node.deploy_probe(A)
    yield node
    assert node.stop() == 0, node.said()


def test_the_first_is_executed_and_the_next_forked(forking: Node):
    forking.load(A)
    assert start(forking, A) == "exec"
    facts = zygote(forking)
    assert facts["reason"] == ""
    assert facts["failed"] == {}
    assert reload(forking, A) == "fork"
    answer = forking.ask(A, {"echo": 1})
    assert answer["pid"] == forking.pids(A)[0]
    text = forking.fetch("GET", "/metrics").body.decode()
    assert 'fornada_zygotes{state="ready"} 1.0' in text


def test_models_of_one_environment_share_a_zygote_and_not_their_fate(forking: Node):
    first = zygote(forking)
    forking.deploy_probe(B)
    forking.load(B)
    assert (start(forking, B), why(forking, B)["zygote"]["pid"]) == ("fork", first["pid"])
    assert reload(forking, A) == "fork"
    forking.run(A, {"die": True})
    assert forking.ask(B, {"echo": 2})["echo"] == 2
    assert forking.ask(A, {"echo": 3})["echo"] == 3


def test_a_killed_zygote_costs_its_instances_and_nothing_else(forking: Node):
    facts = zygote(forking)
    assert reload(forking, A) == "fork"
    doomed = [seen(pid) for pid in forking.pids(A)]
    os.kill(facts["pid"], signal.SIGKILL)
    all_gone(doomed, within_s=20, what="the end of what it had forked")
    assert until(lambda: forking.run(A, {"echo": 1}).status == 200, within_s=20, what="an answer")
    # It is executed, or forked from the next zygote, which a quick machine has by then.
    assert start(forking, A) in ("exec", "fork")
    assert forking.ask(A, {"echo": 4})["echo"] == 4
    until(lambda: zygote(forking)["pid"] != facts["pid"], within_s=20, what="another zygote")


def test_instances_and_zygote_outlive_the_control_plane(forking: Node):
    facts = zygote(forking)
    assert reload(forking, A) == "fork"
    before = forking.ask(A, {"echo": 1})["pid"]
    control = forking.control_pid
    os.kill(control, signal.SIGKILL)
    forking.wait_next_control_plane(after_pid=control)
    assert forking.ask(A, {"echo": 2})["pid"] == before
    assert reload(forking, A) == "fork", "the successor finds the zygote"
    assert why(forking)["zygote"]["pid"] == facts["pid"]


def test_a_spare_is_the_next_instance(new_node: StartNode):
    node = new_node(config=bounded()).start()
    if node.record["isolation"] not in ("full", "namespaces"):
        pytest.skip("spares need walls")
    node.deploy_probe(A)
    zygote(node)
    assert until(lambda: reload(node, A) == "spare", within_s=20, what="a start from a spare")
    assert node.ask(A, {"echo": 1})["echo"] == 1
    assert node.stop() == 0


def test_switched_off_all_are_executed(new_node: StartNode):
    node = new_node(config=bounded(more="zygotes = false\n")).start()
    node.deploy_probe(A)
    node.load(A)
    assert [reload(node, A) for _ in range(2)] == ["exec", "exec"]
    assert why(node)["zygote"] is None


def test_the_death_of_the_keeper_leaves_nothing(new_node: StartNode):
    node = new_node(config=bounded()).start()
    node.deploy_probe(A)
    zygote(node)
    reload(node, A)
    tree = [*node.tree(), seen(node.process.pid)]
    os.kill(node.keeper_pid, signal.SIGKILL)
    all_gone(tree, within_s=5, what="the tree of a killed keeper")


def test_a_module_that_cannot_be_imported_is_shown_and_costs_nothing(new_node: StartNode, tmp_path: Path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.toml").write_text(f'name = "{A}"\n[python]\npreload = ["no_such_module_at_all"]\n')
    (folder / "model.py").write_text("def handle_request(request, context):\n    return request.body.json\n")
    node = new_node(config=bounded(spares=0)).start()
    node.deploy(A, folder)
    facts = zygote(node)
    assert facts["failed"] == {"no_such_module_at_all": "ModuleNotFoundError: No module named 'no_such_module_at_all'"}
    assert reload(node, A) == "fork"
