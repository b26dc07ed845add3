"""Case 21: the caller who caused a load gives up. The load goes on, and the next caller is answered warm."""

import json
import time

import pytest

from tests.bounds import LONG, bound
from tests.harness.fixtures import Probe
from tests.harness.node import Node, run_path
from tests.harness.waiting import until

LOAD_S, LEAVES_S, BACK_S = (6.0, 2.0, 7.0) if LONG else (2.0, 0.7, 2.5)


@pytest.mark.parametrize("way", ["close", "reset", "deadline"])
def test_the_second_request_is_answered_warm_by_the_first_one_s_load(node: Node, probe: Probe, way: str):
    model = probe(settings={"load_s": LOAD_S})
    body = json.dumps({"echo": "first"}).encode()
    headers = {"x-timeout-ms": str(int(LEAVES_S * 1000))} if way == "deadline" else {}
    with node.connect() as caller:
        caller.send_request("POST", run_path(model), body, headers)
        until(lambda: node.state(model) == "pending", within_s=3, what="the load begins")
        began = time.monotonic()
        if way == "deadline":
            answer = caller.read_response()
            assert (answer.status, answer.code) == (408, 3046)
            assert answer.headers["x-should-retry"] == "false"
            assert answer.took_s <= bound(LEAVES_S + 0.3)
        else:
            time.sleep(LEAVES_S)  # the case itself: it leaves in the middle of the load
            caller.close() if way == "close" else caller.reset()
    assert node.state(model) == "pending", "the load goes on"
    node.wait_state(model, "ready", within_s=BACK_S - (time.monotonic() - began) + 1)
    answer = node.run(model, {"echo": "second"})
    assert answer.result["echo"] == "second" and answer.result["load_count"] == 1
    assert answer.took_s < bound(0.5)
    assert node.loads(model) == 1
