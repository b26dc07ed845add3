"""Two models with libraries that can't live in one interpreter, at the same time in one node."""

from functools import partial

import pytest

from tests.harness.bundles import archive
from tests.harness.fixtures import StartNode
from tests.harness.node import Node
from tests.harness.waiting import at_once

CODE = """
import numpy

def handle_request(request, context):
    values = numpy.array(request.body.json["values"], dtype="float32")
    return {"version": numpy.__version__, "sum": float(values.sum()), "pid": context.pid}
"""


@pytest.mark.packages
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_numpy_1_26_and_numpy_2_serve_at_the_same_time(new_node: StartNode):
    node = new_node().start()
    wanted = {"@test/numpy-one": "1.26.4", "@test/numpy-two": "2.2.6"}
    for name, version in wanted.items():
        deploy(node, name, version)
    for _ in range(3):
        answers = at_once([partial(node.ask, name, {"values": [1.5, 2.5]}, timeout_s=240) for name in wanted], within_s=240)
        assert [answer["version"] for answer in answers] == list(wanted.values())
        assert [answer["sum"] for answer in answers] == [4.0, 4.0]
    assert all(node.state(name) == "ready" for name in wanted)
    assert len({answer["pid"] for answer in answers}) == 2
    assert node.stop() == 0


def deploy(node: Node, name: str, version: str) -> None:
    """Skips where packages can't be had."""
    toml = f'name = "{name}"\n[python]\ndependencies = ["numpy=={version}"]\n[serving]\ntimeout_s = 240\n'
    answer = node.put(name, archive({"model.toml": toml, "model.py": CODE}))
    if answer.status != 200 and ("index" in answer.message or "fetch" in answer.message or "connect" in answer.message):
        pytest.skip(f"packages can't be reached: {answer.message}")
    assert answer.status == 200, answer.body
