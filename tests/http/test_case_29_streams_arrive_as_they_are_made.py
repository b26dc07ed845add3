"""Case 29: nothing holds a stream back: each item is at the reader's socket when the model has made it."""

import itertools
import json
import time

from tests.bounds import bound
from tests.harness.fixtures import Probe
from tests.harness.node import Node, run_path

STEPS, STEP_S = 10, 0.2


def test_steps_arrive_one_by_one_and_the_first_at_once(node: Node, probe: Probe):
    model = probe()
    node.load(model)
    with node.open_stream(model, {"steps": STEPS, "step_s": STEP_S}) as connection:
        sent_at = connection.sent_at
        stream = connection.events_to_end()
    assert stream.head.headers["content-type"].startswith("text/event-stream")
    assert stream.head.headers["x-accel-buffering"] == "no"
    assert "no-cache" in stream.head.headers["cache-control"]
    assert stream.complete and stream.done
    assert [item["step"] for item in stream.items] == list(range(stream.items[0]["step"], stream.items[0]["step"] + STEPS))
    times = [event.at for event in stream.events[:STEPS]]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert min(gaps) >= 0.15, gaps
    assert min(stream.head.at, times[0]) - sent_at < bound(0.3), "headers or first item"
    assert times[0] - sent_at < bound(STEP_S + 0.3)
    for item in stream.items:
        assert {"model", "instance", "pid", "load_count", "seq"} <= item.keys()


def test_the_form_of_a_stream_is_that_of_workers_ai(node: Node, probe: Probe):
    model = probe()
    text = "Olá, forno! 🍞"
    with node.open_stream(model, {"text": text}) as connection:
        connection.read_head()
        raw = b"".join(data for _, data in connection.read_chunks()).decode()
    events = raw.split("\n\n")
    assert events[-1] == "" and events[-2] == "data: [DONE]"
    assert all(event.startswith("data: ") for event in events[:-1]), "one literal space after data:"
    responses = [json.loads(event.removeprefix("data: "))["response"] for event in events[:-2]]
    assert "".join(responses) == text
    assert all(isinstance(piece, str) for piece in responses)


def test_without_stream_the_same_items_come_as_one_answer(node: Node, probe: Probe):
    model = probe()
    answer = node.ask(model, {"steps": 3, "step_s": 0.01})
    assert len(answer["items"]) == 3
    assert node.ask(model, {"text": "ab"})["items"][1]["response"] == "b"


def test_only_the_body_decides_whether_it_is_a_stream(node: Node, probe: Probe):
    model = probe()
    body = json.dumps({"steps": 2, "step_s": 0.01, "stream": True}).encode()
    with node.connect() as connection:
        connection.send_request("POST", run_path(model), body, {"accept": "application/json"})
        assert len(connection.events_to_end().items) == 2
    plain = node.fetch("POST", run_path(model), payload={"echo": 1, "stream": False}, headers={"accept": "text/event-stream"})
    assert plain.result["echo"] == 1


def test_a_slow_reader_delays_nobody_and_loses_nothing(node: Node, probe: Probe):
    model = probe(serving={"concurrency": 2})
    node.load(model)
    size = 20_000
    with node.open_stream(model, {"text": "x" * size}, receive_buffer=4096, timeout_s=60) as slow:
        slow.read_head()
        time.sleep(0.5)  # the case itself: a reader that stalls
        answer = node.run(model, {"echo": "quick"})
        assert answer.result["echo"] == "quick" and answer.took_s < bound(1)
        text = "".join(event.json()["response"] for event in slow.read_events() if event.data != "[DONE]")
    assert text == "x" * size


def test_a_connection_is_used_again_after_a_stream(node: Node, probe: Probe):
    model = probe()
    with node.connect() as connection:
        for number in range(3):
            connection.send_request("POST", run_path(model), json.dumps({"steps": 2, "step_s": 0, "stream": True}).encode())
            assert connection.events_to_end().complete
            connection.send_request("POST", run_path(model), json.dumps({"echo": number}).encode())
            assert connection.read_response().result["echo"] == number
