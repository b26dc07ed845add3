"""Schemathesis, unchanged, over every route that /openapi.json tells of: what it makes up is answered as is published.

It lives in an environment of its own, from fuzzing/requirements.lock: `uv pip compile` makes it from requirements.in with the
options that `make lock` has.
"""

import subprocess
from pathlib import Path

import pytest

from tests.bounds import bound, count
from tests.harness.bundles import archive
from tests.harness.node import DEFAULT_CONFIG, Node
from tests.http.test_any_request import STAND_IN
from tests.models.environments import environment_or_skip

pytestmark = [pytest.mark.packages, pytest.mark.slow, pytest.mark.timeout(1800)]

HERE = Path(__file__).parent / "fuzzing"
EXAMPLES = count(2, long=100)
"""Requests for each operation that its schema allows, and as many that it doesn't."""


def test_what_schemathesis_makes_up_is_answered_as_published(tmp_path: Path):
    python = environment_or_skip(HERE / "requirements.lock")
    node = Node(tmp_path, config=f"{DEFAULT_CONFIG}[devices]\nfake = [{{ total = '1GiB' }}]\n")
    try:
        node.start()
        node.deploy("@fuzz/custom", archive({"model.toml": 'name = "@fuzz/custom"\n', "model.py": STAND_IN, "answer.json": "{}"}))
        command = [str(part) for part in (python, HERE / "walk.py", node.url, EXAMPLES)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=bound(900), check=False, cwd=tmp_path)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-4000:]}"
        assert " requests, 0 faults" in done.stdout
        assert node.ready()
        assert node.stop() == 0, node.said()
    finally:
        node.destroy()
