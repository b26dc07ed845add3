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
