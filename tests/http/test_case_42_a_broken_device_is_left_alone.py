"""Case 42: a fault of the card fences it until an operator says otherwise; a program's fault is that program's alone."""

import os
import signal
import subprocess
from functools import partial
from typing import Any

from tests.bounds import bound
from tests.harness.fixtures import StartNode
from tests.harness.node import FORNADA, Node, node_environ
from tests.harness.waiting import Background, until

CONFIG = """
[node]
drain_s = 5
kill_s = 2
max_wait_s = 2
[devices]
fake = [{ total = "1GiB" }, { total = "1GiB" }]
"""


def deploy(node: Node, name: str, device: str = "auto") -> None:
    node.deploy_probe(name, settings={"device_mib": 100}, resources={"device": device, "device_memory": "100MiB"})


def device(node: Node, number: int) -> dict[str, Any]:
    found: dict[str, Any] = node.fetch("GET", "/api/v1/devices").json()["devices"][1 + number]
    return found


def tell(node: Node, number: int, xid: int) -> None:
    assert node.fetch("PATCH", f"/api/v1/devices/cuda:{number}", payload={"xid": xid}).status == 200


def where(node: Node, model: str) -> list[str]:
    return [instance["device"] for instance in node.model(model)["instances"]]


def test_models_leave_a_card_that_broke_and_nobody_is_placed_on_it_until_it_is_unfenced(new_node: StartNode):
    node = new_node(config=CONFIG).start()
    deploy(node, "@test/bound", "cuda:0")
    deploy(node, "@test/free")
    deploy(node, "@test/late")
    node.load("@test/bound")
    node.load("@test/free")
    assert where(node, "@test/free") == ["cuda:1"], "the emptier one"
    tell(node, 1, 79)
    assert (device(node, 1)["state"], device(node, 1)["fence"]) == ("fenced", "XID 79: it has fallen off the bus")
    until(lambda: where(node, "@test/free") == ["cuda:0"], within_s=10, what="the model has moved")
    assert node.ask("@test/free", {"echo": 1})["echo"] == 1
    node.load("@test/late")
    assert where(node, "@test/late") == ["cuda:0"]
    pids = node.pids("@test/bound")

    with Background() as background:
        caller = background.start(lambda: node.run("@test/bound", {"sleep_s": 30}))
        until(lambda: node.model("@test/bound")["instances"][0]["in_flight"] == 1, within_s=5, what="it has work")
        tell(node, 0, 79)
        cut = caller.result()
    assert cut.status in (502, 503) and "79" in cut.message, "who was being served by the broken card is told so"
    refused = node.run("@test/bound", {"echo": 1})
    assert refused.status in (429, 502, 503) and "79" in node.fetch("GET", "/api/v1/models/@test/bound/why").body.decode()
    control = node.control_pid
    os.kill(control, signal.SIGKILL)
    node.wait_next_control_plane(after_pid=control)
    assert [device(node, number)["state"] for number in (0, 1)] == ["fenced", "fenced"], "a fence outlives the control plane"
    assert node.run("@test/late", {"echo": 1}).status == 429

    command = [str(FORNADA), "unfence", "cuda:0"]
    environ = node_environ({"FORNADA_URL": node.url})
    unfenced = subprocess.run(command, capture_output=True, text=True, timeout=bound(30), env=environ, check=False)
    assert (unfenced.returncode, unfenced.stdout) == (0, "cuda:0: ok\n"), unfenced
    assert node.ask("@test/bound", {"echo": 2})["echo"] == 2
    assert node.pids("@test/bound") != pids
    assert [device(node, number)["state"] for number in (0, 1)] == ["ok", "fenced"]
    assert node.stop() == 0


def test_a_program_s_fault_recycles_its_own_model_alone(new_node: StartNode):
    node = new_node(config=CONFIG).start()
    for name, card in (("@test/bad", "cuda:0"), ("@test/quiet", "cuda:0"), ("@test/far", "cuda:1")):
        deploy(node, name, card)
        node.load(name)
    node.ask("@test/quiet", {"echo": 1})
    node.ask("@test/far", {"echo": 1})
    node.ask("@test/bad", {"echo": 1})
    before = {name: node.pids(name) for name in ("@test/bad", "@test/quiet", "@test/far")}
    with Background() as background:
        callers = {name: background.start(partial(node.run, name, {"echo": name, "sleep_s": 2})) for name in ("@test/bad", "@test/far")}
        until(lambda: all(node.model(name)["instances"][0]["in_flight"] for name in callers), within_s=5, what="two have work")
        tell(node, 0, 31)
        answers = {name: caller.result() for name, caller in callers.items()}
    assert answers["@test/bad"].status in (502, 503) and "31" in answers["@test/bad"].message
    assert answers["@test/far"].result["echo"] == "@test/far"
    until(lambda: node.pids("@test/bad") not in ([], before["@test/bad"]), within_s=10, what="a new process")
    assert node.ask("@test/bad", {"echo": 2})["echo"] == 2
    assert {name: node.pids(name) for name in ("@test/quiet", "@test/far")} == {n: before[n] for n in ("@test/quiet", "@test/far")}
    assert device(node, 0)["state"] == "ok"
    assert node.stop() == 0
