"""Two models with libraries that can't live in one interpreter, at the same time in one node."""

import sys
from functools import partial
from pathlib import Path

import pytest

from tests.harness.bundles import packed
from tests.harness.fixtures import StartNode
from tests.harness.node import Node
from tests.harness.waiting import at_once

MODELS = Path(__file__).parents[1] / "models"
VERSIONS = {"numpy-1.26": "1.26.4", "numpy-2": "2.4.6"}


@pytest.mark.packages
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(sys.version_info >= (3, 13), reason="numpy 1.26 has wheels up to Python 3.12")
def test_numpy_1_26_and_numpy_2_serve_at_the_same_time(new_node: StartNode):
    node = new_node().start()
    names = {f"@test/{folder}": version for folder, version in VERSIONS.items()}
    for folder in VERSIONS:
        deploy_or_skip(node, f"@test/{folder}", packed(MODELS / folder))
    for name in names:
        node.load(name)
    for _ in range(3):
        answers = at_once([partial(node.ask, name, {"values": [1, 2, 6]}) for name in names])
        assert [answer["numpy"] for answer in answers] == list(names.values())
        assert [answer["has_float_"] for answer in answers] == [True, False]
        assert [answer["mean"] for answer in answers] == [3, 3]
        assert len({answer["pid"] for answer in answers}) == 2
    assert all(node.state(name) == "ready" for name in names)
    assert node.stop() == 0


def deploy_or_skip(node: Node, name: str, bundle: bytes) -> None:
    """Skips where packages can't be had; any other refusal is a failure."""
    answer = node.put(name, bundle)
    if answer.status != 200 and any(word in answer.message for word in ("fetch", "connect", "dns", "network", "offline")):
        pytest.skip(f"packages can't be reached: {answer.message}")
    assert answer.status == 200, answer.body
