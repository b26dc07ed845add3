"""Case 9: a model is placed by what devices have left and by what was measured of it, not by guesses."""

from tests.harness.fixtures import StartNode

CONFIG = """
[node]
drain_s = 5
kill_s = 2
[devices]
fake = [{ total = "1GiB", foreign = "820MiB" }, { total = "1GiB" }]
"""
MODELS = [f"@test/{letter}" for letter in "abc"]


def test_nothing_lands_on_a_device_that_others_have_filled(new_node: StartNode):
    node = new_node(config=CONFIG).start()
    for model in MODELS:
        node.deploy_probe(model, settings={"device_mib": 300}, resources={"device": "auto", "device_memory": "300MiB"})
        node.load(model)
    assert [node.model(model)["instances"][0]["device"] for model in MODELS] == ["cuda:1"] * 3
    assert [node.ask(model, {"echo": model})["echo"] for model in MODELS] == MODELS
    assert node.metrics().total("fornada_model_loads_total", outcome="failed") == 0
    full, mine = node.fetch("GET", "/api/v1/devices").json()["devices"][1:]
    assert (full["used_bytes"], full["holders"]) == (0, [])
    assert sorted(holder["model"] for holder in mine["holders"]) == MODELS
    assert node.stop() == 0


def test_what_others_take_and_leave_later_counts_from_then_on(new_node: StartNode):
    node = new_node(config=CONFIG).start()
    for model in MODELS[:2]:
        node.deploy_probe(model, settings={"device_mib": 300}, resources={"device": "auto", "device_memory": "300MiB"})
    node.load(MODELS[0])
    assert node.fetch("PATCH", "/api/v1/devices/cuda:0", payload={"foreign": "0"}).status == 200
    assert node.fetch("PATCH", "/api/v1/devices/cuda:1", payload={"foreign": "700MiB"}).status == 200
    node.load(MODELS[1])
    assert [node.model(model)["instances"][0]["device"] for model in MODELS[:2]] == ["cuda:1", "cuda:0"]
    assert node.stop() == 0


def test_a_model_is_placed_by_what_was_measured_of_it(new_node: StartNode):
    """It declares less than what either device has left, and takes more than the first has: after one load that is known."""
    node = new_node(config=CONFIG).start()
    node.deploy_probe("@test/big", settings={"device_mib": 900}, resources={"device": "cuda:1", "device_memory": "900MiB"})
    node.deploy_probe("@test/liar", settings={"device_mib": 300, "sleeps": False}, resources={"device": "auto", "device_memory": "100MiB"})
    node.load("@test/liar")
    assert node.model("@test/liar")["instances"][0]["device"] == "cuda:1"
    assert node.model("@test/liar")["peak_bytes"] == 300 * 1024**2
    node.load("@test/big")  # it goes for it
    node.load("@test/liar")
    assert node.model("@test/liar")["instances"][0]["device"] == "cuda:1", "204 MiB on the other one are less than it was seen to take"
    loads = [line["event"] for line in node.probe_log("@test/liar")]
    assert loads.count("load") == loads.count("loaded") == 2, "nobody ran out of memory"
    assert node.stop() == 0
