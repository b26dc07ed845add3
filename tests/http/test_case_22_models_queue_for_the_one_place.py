"""Case 22: more models than places is a queue, never an error."""

from functools import partial

from tests.bounds import bound, count
from tests.harness.fixtures import StartNode
from tests.harness.waiting import at_once

CONFIG = "[node]\nmax_resident = 1\ndrain_s = 5\nkill_s = 2\n"
MODELS = [f"@test/{letter}" for letter in "abc"]
ROUNDS = count(2, long=20)


def test_three_models_asked_at_the_same_moment_are_all_served_by_one_place(new_node: StartNode):
    node = new_node(config=CONFIG).start()
    for model in MODELS:
        node.deploy_probe(model)
    for number in range(ROUNDS):
        answers = at_once([partial(node.run, model, {"echo": number}) for model in MODELS], within_s=30)
        assert [answer.status for answer in answers] == [200, 200, 200], [answer.body for answer in answers]
        assert [answer.result["model"] for answer in answers] == MODELS
        resident = [model for model in MODELS if node.state(model) in ("ready", "asleep")]
        assert len(resident) <= 1
    assert node.metrics().total("fornada_scheduler_loop_age_seconds") < bound(1)
    assert node.stop() == 0


def test_a_busy_model_is_not_stopped_for_another_s_sake(new_node: StartNode):
    node = new_node(config=CONFIG).start()
    for model in MODELS[:2]:
        node.deploy_probe(model)
    with node.open_stream(MODELS[0], {"steps": 20, "step_s": 0.05}) as stream:
        head = stream.read_head()
        assert head.status == 200
        other = node.run(MODELS[1], {"echo": "then"})
        events = [event.data for event in stream.read_events()]
    assert len(events) == 21 and events[-1] == "[DONE]", "all its items came before it was stopped"
    assert other.result["echo"] == "then"
    assert node.stop() == 0
