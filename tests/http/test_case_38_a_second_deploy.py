"""Case 38: deploys under load. The new version is warm before the old one goes; a bad one changes nothing; nobody is dropped."""

import threading
import time
from functools import partial
from typing import Any

import pytest

from tests.bounds import bound, count
from tests.harness.bundles import archive
from tests.harness.fixtures import Probe
from tests.harness.node import Node
from tests.harness.waiting import Background, stays, until

DEPLOYS = count(5, long=50)
CALLERS = 3


def bundle(name: str, mark: int, *, load: str = "", warm_s: float = 0.2) -> bytes:
    code = f"""
import time
import fornada_sdk

class Model(fornada_sdk.Model):
    def load(self, context):
        time.sleep({warm_s})
        {load or "pass"}

    def run(self, inputs, context):
        time.sleep(0.01)
        return {{"mark": {mark}, "pid": context.pid}}
"""
    return archive({"model.toml": f'name = "{name}"\n[serving]\nqueue = 256\n', "model.py": code})


class Load:
    """Callers that ask without a pause, and what each of them was answered, in order."""

    def __init__(self, node: Node, name: str) -> None:
        self._node, self._name = node, name
        self._enough = threading.Event()
        self.answers: list[list[dict[str, Any]]] = [[] for _ in range(CALLERS)]
        self.refusals: list[tuple[int, bytes]] = []

    def caller(self, number: int) -> None:
        while not self._enough.is_set():
            answer = self._node.run(self._name, {})
            if answer.status == 200:
                self.answers[number].append(answer.result)
            else:
                self.refusals.append((answer.status, answer.body))

    def stop(self) -> None:
        self._enough.set()


def test_deploys_under_load_drop_nobody_and_roll_forward_only(node: Node, probe: Probe, fresh_name):
    name, bystander = fresh_name(), probe()
    untouched = node.ask(bystander, {"echo": 1})
    node.deploy(name, bundle(name, 0))
    node.load(name)
    load = Load(node, name)
    with Background() as background:
        callers = [background.start(partial(load.caller, number)) for number in range(CALLERS)]
        try:
            versions = []
            for mark in range(1, DEPLOYS + 1):
                versions.append(node.deploy(name, bundle(name, mark))["version"])
                until(partial(serves, node, name, mark), within_s=15, what=f"version {mark} serves")
        finally:
            load.stop()
        for caller in callers:
            caller.result()
    assert load.refusals == []
    assert len(set(versions)) == DEPLOYS
    for answers in load.answers:
        marks = [answer["mark"] for answer in answers]
        assert marks == sorted(marks), "a caller never falls back to an older version"
    until(lambda: len(node.pids(name)) == 1, within_s=5, what="the old versions have drained")
    again = node.ask(bystander, {"echo": 2})
    assert (again["pid"], again["load_count"]) == (untouched["pid"], 1), "other models keep their pids"
    assert node.model(name)["version"].startswith(versions[-1]) or versions[-1].startswith(node.model(name)["version"])


def serves(node: Node, name: str, mark: int) -> bool:
    return bool(node.ask(name, {})["mark"] == mark)


def test_the_old_version_serves_until_the_new_one_is_warm(node: Node, fresh_name):
    name = fresh_name()
    node.deploy(name, bundle(name, 1))
    old = node.ask(name, {})
    began = time.monotonic()
    node.deploy(name, bundle(name, 2, warm_s=1.5))
    while (answer := node.run(name, {})).result["mark"] == 1:
        assert answer.result["pid"] == old["pid"] and answer.took_s < bound(0.5), "nobody waits for the new version"
        assert time.monotonic() - began < bound(10)
    assert answer.result["mark"] == 2
    assert time.monotonic() - began >= 1.4, "it was switched to before it was warm"


def test_what_runs_on_the_old_version_is_finished_there(node: Node, fresh_name):
    name = fresh_name()
    node.deploy_probe(name)
    old = node.ask(name, {"echo": 1})
    with Background() as background:
        long = background.start(partial(node.stream, name, {"steps": 20, "step_s": 0.1}))
        until(lambda: node.model(name)["instances"][0]["in_flight"], within_s=3, what="the stream runs")
        node.deploy(name, bundle(name, 7))
        until(lambda: "mark" in node.ask(name, {"echo": 1}), within_s=10, what="the new version serves")
        stream = long.result()
    assert len(stream.items) == 20 and stream.done
    assert {item["pid"] for item in stream.items} == {old["pid"]}


def test_a_node_killed_in_the_middle_of_a_deploy_serves_the_old_version_until_the_new_one_is_warm(own_node: Node):
    node, name = own_node, "@test/interrupted"
    node.deploy(name, bundle(name, 1))
    assert node.ask(name, {})["mark"] == 1
    node.deploy(name, bundle(name, 2, warm_s=2.0))
    node.kill()
    node.start()
    assert serves(node, name, 1), "the new version has answered nobody yet"
    until(partial(serves, node, name, 2), within_s=15, what="the deploy goes on")
    node.kill()
    node.start()
    assert serves(node, name, 2)


@pytest.mark.parametrize("fault", ["load", "toml", "import"])
def test_a_bad_version_leaves_the_old_one_in_place_and_says_why(node: Node, fresh_name, fault: str):
    name = fresh_name()
    node.deploy(name, bundle(name, 1))
    good = node.ask(name, {})
    if fault == "toml":
        answer = node.put(name, archive({"model.toml": "name = \n[serving]\nconcurency = 2\n", "model.py": ""}))
        assert answer.status == 400 and answer.message, answer.body
    else:
        raising = "raise RuntimeError('the new weights are broken')"
        bad = bundle(name, 2, load=raising) if fault == "load" else archive({"model.toml": f'name = "{name}"\n', "model.py": raising})
        node.deploy(name, bad)
        until(lambda: "new weights are broken" in why(node, name), within_s=10, what="the failure is visible")
    stays(lambda: node.ask(name, {}) == good, for_s=0.8, what="the old version serves, in its old process")
    assert node.state(name) == "ready"
    node.deploy(name, bundle(name, 3))
    until(partial(serves, node, name, 3), within_s=10, what="a good one takes over")


def why(node: Node, name: str) -> str:
    return node.fetch("GET", f"/api/v1/models/{name}/why").body.decode() + str(node.model(name))


def test_the_same_bundle_again_changes_nothing(node: Node, fresh_name):
    name = fresh_name()
    first = node.deploy(name, bundle(name, 1))
    before = node.ask(name, {})
    assert node.deploy(name, bundle(name, 1))["version"] == first["version"]
    stays(lambda: node.ask(name, {}) == before, for_s=0.8, what="the same process serves")


def test_a_removed_model_drains(node: Node, fresh_name):
    name = fresh_name()
    node.deploy_probe(name)
    node.load(name)
    with Background() as background:
        long = background.start(partial(node.stream, name, {"steps": 10, "step_s": 0.1}))
        until(lambda: node.model(name)["instances"][0]["in_flight"], within_s=3, what="the stream runs")
        assert node.remove(name).status in (200, 204)
        gone = node.run(name, {"echo": 1})
        assert (gone.status, gone.code) == (400, 5007)
        stream = long.result()
    assert len(stream.items) == 10 and stream.done


def test_two_deploys_of_one_name_at_the_same_moment_leave_one_of_them(node: Node, fresh_name):
    name = fresh_name()
    with Background() as background:
        deploys = [background.start(partial(node.put, name, bundle(name, mark))) for mark in (1, 2)]
        answers = [deploy.result() for deploy in deploys]
    accepted = [answer.json()["version"] for answer in answers if answer.status == 200]
    assert accepted and all(answer.status in (200, 409) for answer in answers)
    assert node.ask(name, {})["mark"] in (1, 2)
    until(lambda: len(node.pids(name)) == 1, within_s=5, what="one instance")
