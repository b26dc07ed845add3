"""Case 30: a failure in the middle of a stream never looks like success."""

import pytest

from tests.bounds import bound
from tests.harness.fixtures import Probe
from tests.harness.node import Node, run_path


def test_a_death_at_step_five_is_an_error_event_and_the_end(node: Node, probe: Probe):
    model = probe()
    node.load(model)
    with node.open_stream(model, {"steps": 10, "step_s": 0.05, "die_at": 5}) as connection:
        stream = connection.events_to_end()
        last_item = [event for event in stream.events if event.name != "error"][-1]
        assert not stream.done and "[DONE]" not in [event.data for event in stream.events]
        assert stream.ended_at - last_item.at < bound(1)
        assert connection.at_end(within_s=1), "the connection is closed"
    assert 4 <= len(stream.items) <= 6
    (error,) = [event for event in stream.events if event.name == "error"]
    assert stream.events[-1] is error
    body = error.json()
    assert body["errors"][0]["code"] == 3101 and body["error"]["message"]
    metrics = node.metrics()
    assert metrics.total("fornada_requests_total", model=model) == 1
    assert metrics.total("fornada_requests_total", model=model, outcome="ok") == 0
    assert node.ask(model, {"echo": "after"})["echo"] == "after"


@pytest.mark.parametrize(("payload", "status", "code"), [({"die": True}, 502, 3101), ({"bad": True}, 400, 5006)])
def test_an_error_before_the_first_item_is_a_real_status(node: Node, probe: Probe, payload: dict, status: int, code: int):
    model = probe()
    node.load(model)
    answer = node.run(model, {**payload, "stream": True})
    assert (answer.status, answer.code) == (status, code), answer.body
    assert answer.headers["content-type"] == "application/json"


def test_without_stream_a_death_at_step_five_is_an_error_and_no_half_answer(node: Node, probe: Probe):
    model = probe()
    answer = node.run(model, {"steps": 10, "step_s": 0.02, "die_at": 5})
    assert (answer.status, answer.code) == (502, 3101)
    assert "items" not in answer.json()


def test_a_stream_past_its_deadline_ends_with_an_error(node: Node, probe: Probe):
    model = probe()
    node.load(model)
    with node.connect() as connection:
        body = b'{"steps": 100, "step_s": 0.1, "stream": true}'
        connection.send_request("POST", run_path(model), body, {"x-timeout-ms": "700"})
        stream = connection.events_to_end()
    assert stream.ended_at - connection.sent_at <= bound(1.1)
    assert stream.events[-1].name == "error" and not stream.done
    assert stream.events[-1].json()["errors"][0]["code"] == 3046
