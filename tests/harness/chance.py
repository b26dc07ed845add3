"""Random choices of a test: others in each test and with each SEED of a run, the same when that SEED is given again."""

import random

import pytest


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """What a failing test shows of it is enough to repeat its choices: the run's seed and the test's own name."""
    seed = f"{request.config.getoption('randomly_seed', 0)} {request.node.nodeid}"
    print(f"seed of its choices, repeated by --randomly-seed (make: SEED) and this test: {seed}")
    return random.Random(seed)
