"""A model that takes what all share harms itself: its caller is told, and the model next door goes on as if nothing were."""

import json
from statistics import median
from typing import Any

import pytest

from tests.security.attacks.neighbourhood import ATTACKS, RATIO_MOST, SPIN, p99
from tests.security.attacks.runs import Unavailable, run_at
from tests.security.pairs import PAIRS

pytestmark = pytest.mark.timeout(300)

USUAL = ("memory", "processes", "disk", "output")
"""In every run of the tests; one takes half a minute."""
TOLD = {(502, 3101), (500, 3103), (503, 3102)}
"""The runner died; model code raised; it died too often, and is given a rest."""


def measured(level: str, user: str, which: str) -> dict[str, Any]:
    try:
        done = run_at(level, user, "tests.security.attacks.neighbourhood", which)
    except Unavailable as error:
        pytest.skip(str(error))
    assert done.status == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def suffers_alone(found: dict[str, Any]) -> None:
    assert found["refused"] == 0 and found["same_process"], found
    assert found["answers"], found
    for status, code, _ in found["answers"]:
        assert status == 200 or (status, code) in TOLD, found
    assert median(found["ratios"]) <= RATIO_MOST, found


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.parametrize("which", [which if which in USUAL else pytest.param(which, marks=pytest.mark.long) for which in ATTACKS])
@pytest.mark.parametrize(("level", "user"), PAIRS)
def test_a_model_that_takes_what_all_share_harms_itself_alone(level: str, user: str, which: str):
    suffers_alone(measured(level, user, which))


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("which", ["output", "short lines", "one line"])
def test_a_flood_of_output_is_held_back_without_isolation_too(which: str):
    suffers_alone(measured("none", "user", which))


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.long
def test_the_measure_feels_a_model_that_takes_the_processors():
    """Without isolation nothing holds it: a measure that doesn't see this sees nothing."""
    found = measured("none", "user", SPIN)
    assert min(found["medians"]) > RATIO_MOST and max(found["ratios"]) > RATIO_MOST, found


def test_the_worst_of_a_hundred_is_not_the_worst_of_a_thousand():
    assert p99([1.0] * 99 + [9.0]) == 9.0
    assert p99([1.0] * 995 + [9.0] * 5) == 1.0
