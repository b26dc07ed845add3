"""Case 4: a model is never stopped over its work for another one's sake."""

from functools import partial

from tests.harness.fixtures import StartNode
from tests.harness.waiting import Background, until

STEPS = 40
CONFIG = """
[node]
drain_s = 20
kill_s = 2
[devices]
fake = [{ total = "1000MiB" }]
"""


def test_a_stream_is_whole_although_another_model_waits_for_its_memory(new_node: StartNode):
    node = new_node(config=CONFIG).start()
    for name, mib in (("@test/a", 700), ("@test/b", 600)):
        node.deploy_probe(name, settings={"device_mib": mib}, resources={"device": "cuda", "device_memory": f"{mib}MiB"})
    node.load("@test/a")
    with Background() as background, node.open_stream("@test/a", {"steps": STEPS, "step_s": 0.05}) as stream:
        assert stream.read_head().status == 200
        events = stream.read_events()
        first = next(iter(events))
        other = background.start(partial(node.ask, "@test/b", {"echo": "then"}, timeout_s=60))
        until(lambda: node.state("@test/b") == "pending", within_s=5, what="b waits")
        data = [first.data, *(event.data for event in events)]
        assert len(data) == STEPS + 1 and data[-1] == "[DONE]"
        assert node.probe_log("@test/b") == [], "b's load began after a's last item"
        assert other.result()["echo"] == "then"
    assert node.metrics().total("fornada_evictions_total", model="@test/a", reason="room") == 1
    assert node.ask("@test/a", {"echo": "again"})["echo"] == "again"
    assert node.stop() == 0
