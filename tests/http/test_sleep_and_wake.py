"""A model that sleeps gives its device memory back and keeps its process; the next request wakes it, with the answers of before."""

from functools import partial
from typing import Any

import pytest

from tests.bounds import bound
from tests.harness.fixtures import StartNode
from tests.harness.node import Node
from tests.harness.processes import alive, kill, seen
from tests.harness.waiting import Background, until

MIB = 1024 * 1024
HELD = 600 * MIB
CONFIG = """
[devices]
fake = [{ total = "1000MiB" }]
"""
MODEL = "@test/a"


def card(node: Node) -> dict[str, Any]:
    answer = node.fetch("GET", "/api/v1/devices")
    found: dict[str, Any] = next(device for device in answer.json()["devices"] if device["id"] == "cuda:0")
    return found


def host(node: Node) -> dict[str, Any]:
    found: dict[str, Any] = next(device for device in node.fetch("GET", "/api/v1/devices").json()["devices"] if device["id"] == "cpu")
    return found


def deploy(node: Node, name: str = MODEL, *, serving: dict[str, Any] | None = None, **settings: Any) -> None:
    resources = {"device": "cuda", "device_memory": "600MiB"}
    node.deploy_probe(name, settings={"device_mib": 600, "load_s": 0.5, **settings}, resources=resources, serving=serving or {})


def put_to_sleep(node: Node, name: str = MODEL) -> dict[str, Any]:
    answer = node.act(name, "sleep")
    assert answer.status == 200, answer.body.decode()
    found: dict[str, Any] = answer.json()
    return found


def pid_of(node: Node, name: str = MODEL) -> int:
    return int(node.model(name)["instances"][0]["pid"])


@pytest.mark.timeout(bound(120))
def test_its_device_memory_is_free_while_it_sleeps_and_its_answers_are_the_same_afterwards(new_node: StartNode):
    node = new_node(config=CONFIG).start()
    deploy(node)
    before = node.ask(MODEL, {"echo": "same"})
    assert card(node)["used_bytes"] == HELD
    model = put_to_sleep(node)
    assert model["state"] == "asleep" and "sleeps" in model["why"]
    assert card(node)["used_bytes"] == 0 and card(node)["reserved_bytes"] == 0
    assert put_to_sleep(node)["state"] == "asleep", "it is true already"
    after = node.ask(MODEL, {"echo": "same"})
    assert card(node)["used_bytes"] == HELD
    assert {**after, "seq": 0} == {**before, "seq": 0}, "the same process, which was loaded once"
    put_to_sleep(node)
    assert node.load(MODEL)["state"] == "ready"
    assert [entry["event"] for entry in node.probe_log(MODEL)].count("load") == 1


@pytest.mark.timeout(bound(120))
def test_a_model_that_can_not_sleep_says_what_to_do(new_node: StartNode):
    node = new_node(config=CONFIG).start()
    node.deploy_probe(MODEL)
    for state, hint in (("stopped", "load it first"), ("ready", "unload it instead")):
        node.wait_state(MODEL, state)
        answer = node.act(MODEL, "sleep")
        assert answer.status == 409 and hint in answer.body.decode(), answer.body.decode()
        node.load(MODEL)


@pytest.mark.timeout(bound(120))
def test_two_models_that_don_t_fit_together_sleep_in_turns(new_node: StartNode):
    node = new_node(config=CONFIG).start()
    names = (MODEL, "@test/b")
    for name in names:
        deploy(node, name)
    for number in range(3):
        for name in names:
            assert node.ask(name, {"echo": number}, timeout_s=60)["load_count"] == 1
            assert card(node)["used_bytes"] <= HELD
    assert sorted(node.model(name)["state"] for name in names) == ["asleep", "ready"]


@pytest.mark.timeout(bound(120))
def test_a_model_that_has_no_work_sleeps_and_is_stopped_after_as_long_again(new_node: StartNode):
    node = new_node(config=CONFIG).start()
    deploy(node, serving={"idle_timeout_s": 1})
    node.ask(MODEL, {})
    node.wait_state(MODEL, "asleep", within_s=20)
    node.wait_state(MODEL, "stopped", within_s=20)
    assert node.ask(MODEL, {})["load_count"] == 2


@pytest.mark.timeout(bound(120))
def test_a_request_that_comes_while_it_falls_asleep_wakes_it(new_node: StartNode):
    node = new_node(config=CONFIG).start()
    deploy(node, sleep_takes_s=1.0)
    pid = node.ask(MODEL, {})["pid"]
    with Background() as background:
        slept = background.start(partial(put_to_sleep, node))
        until(lambda: "sleep" in [entry["event"] for entry in node.probe_log(MODEL)], within_s=20, what="the probe's word")
        assert node.ask(MODEL, {"echo": 1}, timeout_s=30)["pid"] == pid
        slept.result()
    assert node.model(MODEL)["state"] == "ready"


@pytest.mark.timeout(bound(120))
def test_a_sleep_that_the_device_does_not_confirm_ends_the_process(new_node: StartNode):
    node = new_node(config=CONFIG).start()
    deploy(node)
    node.ask(MODEL, {})
    process = seen(pid_of(node))
    node.fetch("PATCH", "/api/v1/devices/cuda:0", payload={"frozen": True})
    answer = node.act(MODEL, "sleep")
    assert answer.status == 500 and "600 MiB" in answer.body.decode(), answer.body.decode()
    assert not alive(process.pid)
    node.fetch("PATCH", "/api/v1/devices/cuda:0", payload={"clear": True})
    assert node.ask(MODEL, {})["load_count"] == 2
    answer = node.act(MODEL, "sleep")
    assert answer.status == 409 and "its last sleep failed" in answer.body.decode(), answer.body.decode()


@pytest.mark.timeout(bound(120))
def test_a_model_on_the_cpu_gives_host_memory_back(new_node: StartNode):
    node = new_node().start()
    node.deploy_probe(MODEL, settings={"hold_mib": 200, "sleeps": True})
    before = node.ask(MODEL, {"echo": "same"})
    held = node.model(MODEL)["instances"][0]["resident_bytes"]
    reserved = host(node)["reserved_bytes"]
    assert put_to_sleep(node)["instances"][0]["resident_bytes"] <= held - 190 * MIB
    assert host(node)["reserved_bytes"] <= reserved - 190 * MIB
    assert {**node.ask(MODEL, {"echo": "same"}), "seq": 0} == {**before, "seq": 0}, "the same process, which was loaded once"
    assert node.model(MODEL)["instances"][0]["resident_bytes"] >= held - 10 * MIB


@pytest.mark.timeout(bound(120))
def test_a_model_on_the_cpu_that_gives_nothing_back_is_not_believed(new_node: StartNode):
    node = new_node().start()
    node.deploy_probe(MODEL, settings={"sleeps": True})
    process = seen(node.ask(MODEL, {})["pid"])
    answer = node.act(MODEL, "sleep")
    assert answer.status == 500 and "cpu doesn't count its memory as free" in answer.body.decode(), answer.body.decode()
    assert not alive(process.pid)
    assert node.ask(MODEL, {})["load_count"] == 2


@pytest.mark.timeout(bound(120))
@pytest.mark.parametrize("fault", ["fail_sleep", "fail_wake"])
def test_a_step_that_raises_ends_the_process_and_the_next_request_gets_another(new_node: StartNode, fault: str):
    node = new_node(config=CONFIG).start()
    deploy(node, fail_sleep=fault == "fail_sleep", fail_wake=fault == "fail_wake")
    first = node.ask(MODEL, {})
    answer = node.act(MODEL, "sleep")
    assert (answer.status, fault) in ((500, "fail_sleep"), (200, "fail_wake")), answer.body.decode()
    second = node.ask(MODEL, {"echo": 1}, timeout_s=60)
    assert second["pid"] != first["pid"] and second["echo"] == 1
    until(lambda: card(node)["used_bytes"] == HELD, within_s=10, what="what the card counts")


@pytest.mark.timeout(bound(180))
@pytest.mark.parametrize("moment", ["falling", "asleep", "waking"])
def test_a_control_plane_killed_on_the_way_is_succeeded_by_one_that_knows(new_node: StartNode, moment: str):
    node = new_node(config=CONFIG).start()
    deploy(node, sleep_takes_s=0.0 if moment == "asleep" else 2.0)
    first = node.ask(MODEL, {})
    runner, control = seen(first["pid"]), node.control_pid
    with Background() as background:
        if moment != "falling":
            put_to_sleep(node)
        if moment == "falling":
            background.start(partial(node.act, MODEL, "sleep"))
        if moment == "waking":
            background.start(partial(node.act, MODEL, "load"))
        word = {"falling": "sleep", "asleep": "asleep", "waking": "wake"}[moment]
        until(lambda: word in [entry["event"] for entry in node.probe_log(MODEL)], within_s=20, what="the probe's word")
        kill(control)
        node.wait_next_control_plane(after_pid=control)
    there = {"falling": "asleep", "asleep": "asleep", "waking": "ready"}[moment]
    node.wait_state(MODEL, there, within_s=30)
    held = HELD if there == "ready" else 0
    until(lambda: (card(node)["used_bytes"], card(node)["reserved_bytes"]) == (held, held), within_s=10, what="the book and the card")
    again = node.ask(MODEL, {"echo": 2}, timeout_s=30)
    assert alive(runner.pid) and again["pid"] == first["pid"] and again["load_count"] == 1
