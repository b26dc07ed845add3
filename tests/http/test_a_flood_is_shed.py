"""Far more requests at once than a model's queue holds: who finds a place waits, everybody else hears so while the model is still busy."""

import json
import selectors
from collections.abc import Iterator
from contextlib import ExitStack

from tests.bounds import bound, count
from tests.harness.client import Connection, Response
from tests.harness.fixtures import Probe
from tests.harness.node import Node, run_path
from tests.harness.processes import descriptors
from tests.harness.waiting import until

QUEUE = 64
"""The default of serving.queue."""
CALLERS = count(300, long=2000)
WAVES = count(2, long=6)
BUSY_S = 600
"""Longer than any wave: the model is busy until its caller leaves."""
HANG_S = 60


def test_who_finds_no_place_is_refused_at_once_and_everybody_else_is_answered(node: Node, probe: Probe):
    model, neighbour = probe(serving={"timeout_s": BUSY_S}), probe()
    node.load(model)
    node.load(neighbour)
    before = descriptors(node.control_pid)
    for wave in range(WAVES):
        with node.connect() as busy, ExitStack() as opened:
            busy.send_request("POST", run_path(model), json.dumps({"sleep_s": BUSY_S}).encode())
            until(lambda: node.model(model)["instances"][0]["in_flight"], within_s=10, what="the long one runs")
            flood = {number: opened.enter_context(node.connect(timeout_s=HANG_S)) for number in range(CALLERS)}
            for number, connection in flood.items():
                connection.send_request("POST", run_path(model), json.dumps({"echo": f"{wave}-{number}"}).encode())
            answers = as_they_come(flood)
            for _, refused in (next(answers) for _ in range(CALLERS - QUEUE)):
                assert (refused.status, refused.code) == (429, 3040), refused.body
                assert 1 <= int(refused.headers["retry-after"]) <= 60
            assert node.ask(neighbour, {"echo": wave})["echo"] == wave, "whose queue is full is nobody else's business"
            assert node.metrics().total("fornada_queue_length", model=model) == QUEUE
            busy.close()
            assert all(answer.result["echo"] == f"{wave}-{number}" for number, answer in answers)
            assert node.metrics().total("fornada_queue_length", model=model) == 0
        until(lambda: descriptors(node.control_pid) <= before, within_s=10, what="the connections of the flood are closed")


def as_they_come(flood: dict[int, Connection]) -> Iterator[tuple[int, Response]]:
    """Each caller's number with its answer."""
    with selectors.DefaultSelector() as selector:
        for number, connection in flood.items():
            selector.register(connection.socket, selectors.EVENT_READ, number)
        for _ in range(len(flood)):
            ready = selector.select(bound(HANG_S))
            assert ready, f"no answer for {HANG_S} s: {len(selector.get_map())} callers wait"
            key, _events = ready[0]
            selector.unregister(key.fileobj)
            yield key.data, flood[key.data].read_response()
