"""Case 7: a stop that never ends. Whatever the model does, an unload is over within its grace and the kill bound."""

import time

import pytest

from tests.bounds import bound
from tests.harness.fixtures import Probe, StartNode
from tests.harness.node import Node
from tests.harness.processes import alive, all_gone, seen
from tests.harness.waiting import Background, until

GRACE_S = 2
KILL_S = 2  # [node] kill_s of the shared node
MODEL = "@test/a"


def test_an_unload_ends_although_the_model_ignores_sigterm_and_streams_for_ever(node: Node, probe: Probe):
    model = probe(settings={"ignore_sigterm": True})
    node.load(model)
    (pid,) = node.pids(model)
    with Background() as background, node.open_stream(model, {"steps": 100_000, "step_s": 0.05}) as caller:
        head = caller.read_head()
        assert head.status == 200
        next(caller.read_events())
        began = time.monotonic()
        unload = background.start(lambda: node.act(model, "unload", query=f"?grace={GRACE_S}"))
        rest = caller.rest_of_events(head)
        answer = unload.result()
        took_s = time.monotonic() - began
    assert answer.status == 200, answer.body
    assert took_s <= bound(GRACE_S + KILL_S + 0.5)
    assert rest.events[-1].name == "error" and "[DONE]" not in [event.data for event in rest.events]
    assert not alive(pid)
    assert node.state(model) == "stopped"
    assert node.ask(model, {"echo": "again"})["echo"] == "again"


@pytest.mark.parametrize("grace", ["0", "0.5"])
def test_an_unload_with_work_in_flight_answers_the_worker_s_caller(node: Node, probe: Probe, grace: str):
    model = probe()
    node.load(model)
    with Background() as background:
        caller = background.start(lambda: node.run(model, {"sleep_s": 20}))
        until(lambda: node.model(model)["instances"][0]["in_flight"] == 1, within_s=3, what="the request runs")
        began = time.monotonic()
        assert node.act(model, "unload", query=f"?grace={grace}").status == 200
        assert time.monotonic() - began <= bound(float(grace) + KILL_S + 0.5)
        answer = caller.result()
    assert answer.status in (502, 503), answer.body
    assert answer.json()["success"] is False


ON_CARD = {"device": "cuda", "device_memory": "100MiB"}
CONFIG = f"""
[node]
drain_s = 5
kill_s = {KILL_S}
[devices]
fake = [{{ total = "1GiB" }}]
"""


@pytest.mark.parametrize(
    ("acts", "reached"),
    [
        (("sleep",), "asleep"),
        (("sleep",), "stopping"),
        (("sleep", "load"), "pending"),
    ],
    ids=["asleep", "falling asleep", "waking"],
)
def test_an_unload_works_in_every_state_of_sleep(new_node: StartNode, acts: tuple[str, ...], reached: str):
    node = new_node(config=CONFIG).start()
    takes_s = 0.0 if reached == "asleep" else 1.0
    node.deploy_probe(MODEL, settings={"device_mib": 100, "load_s": 0.2, "sleep_takes_s": takes_s}, resources=ON_CARD)
    node.load(MODEL)
    (pid,) = node.pids(MODEL)
    with Background() as background:
        for act in acts[:-1]:
            assert node.act(MODEL, act).status == 200
        acting = background.start(lambda: node.act(MODEL, acts[-1]))
        until(lambda: node.state(MODEL) == reached, within_s=10, what=f"it is {reached}")
        began = time.monotonic()
        assert node.unload(MODEL, grace_s=GRACE_S).status == 200
        assert time.monotonic() - began <= bound(GRACE_S + KILL_S + 0.5)
        assert acting.result().status < 600, "who asked for the sleep or the wake is told something"
    assert not alive(pid)
    assert node.state(MODEL) == "stopped"
    assert node.fetch("GET", "/api/v1/devices").json()["devices"][1]["used_bytes"] == 0
    assert node.ask(MODEL, {"echo": "again"})["echo"] == "again"
    assert node.stop() == 0


def test_an_unload_works_in_every_state(node: Node, probe: Probe):
    stopped = probe()
    until(lambda: node.state(stopped) == "stopped", within_s=10, what="its environment, which the deploy began to build, is there")
    assert node.unload(stopped).status == 200
    assert node.state(stopped) == "stopped"

    failed = probe(settings={"fail_load_n": "inf"})
    assert node.run(failed, {"echo": 1}).status == 503
    assert node.state(failed) == "failed"
    assert node.unload(failed).status == 200
    assert node.pids(failed) == []

    pending = probe(settings={"load_s": 4})
    with Background() as background:
        waiting = background.start(lambda: node.run(pending, {"echo": 1}))
        until(lambda: node.pids(pending), within_s=10, what="its runner loads")
        loading = seen(node.pids(pending)[0])
        began = time.monotonic()
        assert node.unload(pending, grace_s=1).status == 200
        assert time.monotonic() - began <= bound(1 + KILL_S + 0.5)
        all_gone([loading], within_s=1, what="the runner that was loading")
        assert waiting.result().status in (200, 502, 503), "who waited for the load is told, or served by a load of his own"

    stopping = probe(settings={"stop_s": 1})
    node.load(stopping)
    with Background() as background:
        unloads = [background.start(lambda: node.act(stopping, "unload")) for _ in range(3)]
        assert [unload.result().status for unload in unloads] == [200, 200, 200]
    assert node.state(stopping) == "stopped"
