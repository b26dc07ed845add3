"""Case 18: no supervisor fights the operator. What was stopped stays stopped, and the list agrees with /proc."""

import os

import pytest

from tests.harness.fixtures import Probe
from tests.harness.node import Node
from tests.harness.processes import alive, all_gone, kill, seen
from tests.harness.waiting import Background, stays, until


def agrees_with_proc(node: Node) -> None:
    """Every instance listed lives below main, and every runner below the keeper is listed."""
    listed = {i["pid"] for m in node.fetch("GET", "/api/v1/models").json()["models"] for i in m["instances"] if i["pid"]}
    running = {process.pid for process in node.tree()}
    assert listed <= running


@pytest.mark.parametrize("least", [0, 1])
def test_a_model_killed_while_it_is_being_stopped_stays_stopped(node: Node, probe: Probe, least: int):
    model = probe(settings={"stop_s": 1.5}, serving={"min_instances": least})
    node.load(model)
    (pid,) = node.pids(model)
    runner = seen(pid)
    with Background() as background:
        unload = background.start(lambda: node.act(model, "unload"))
        until(lambda: node.state(model) == "stopping", within_s=3, what="it is stopping")
        kill(pid)
        assert unload.result().status == 200
    all_gone([runner], within_s=1, what="the killed runner")
    stays(lambda: node.state(model) == "stopped" and not node.pids(model), for_s=2, what="it is stopped")
    agrees_with_proc(node)
    assert node.ask(model, {"echo": "asked for"})["echo"] == "asked for", "until the next request"


def test_a_stopped_model_s_old_pid_is_nobody_s(node: Node, probe: Probe):
    model = probe()
    node.load(model)
    (pid,) = node.pids(model)
    runner = seen(pid)
    node.unload(model)
    assert not runner.alive
    if alive(pid):
        pytest.skip("the pid was given to another process meanwhile")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 9)
    stays(lambda: node.state(model) == "stopped", for_s=1.5, what="it is stopped")
    assert node.model(model)["instances"] == []
    agrees_with_proc(node)


def test_an_idle_model_that_is_killed_is_shown_as_what_it_is(node: Node, probe: Probe):
    model = probe()
    node.load(model)
    (pid,) = node.pids(model)
    kill(pid)
    until(lambda: pid not in node.pids(model), within_s=2, what="the list drops the dead pid")
    agrees_with_proc(node)
    assert node.ask(model, {"echo": 1})["pid"] != pid
