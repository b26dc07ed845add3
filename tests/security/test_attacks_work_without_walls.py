"""No attack passes because it is broken: each one works as a plain child process, in a namespace that ends with it."""

import functools
import json
import os

import pytest

from tests.harness.throwaway import STRANGER, Bounds, NotPossible, run_apart
from tests.security.attacks.judge import Attempt, all_attempts

FIRST_FORTY = [attempt for attempt in all_attempts() if attempt.number <= 40]
EACH = [pytest.param(attempt, part, id=f"{attempt.name}{'-' if part else ''}{part}") for attempt in FIRST_FORTY for part in attempt.parts]
BOUNDS = Bounds(seconds=50, disk_bytes=400 * 1024 * 1024)
ONE_USER = "one user alone has no set-uid programs in a namespace: uid 0 isn't in it"


@functools.cache
def why_not() -> str:
    """Why there is no such namespace here; empty where there is."""
    try:
        run_apart("this", bounds=BOUNDS, uid=STRANGER)
    except NotPossible as error:
        return str(error)
    return ""


def test_there_are_forty():
    assert [attempt.number for attempt in FIRST_FORTY] == list(range(1, 41))
    assert all(attempt.tries.endswith(".") and attempt.wall for attempt in FIRST_FORTY)


def test_at_most_eleven_prove_nothing_here_and_each_says_why():
    silent = [attempt for attempt in FIRST_FORTY if attempt.proves_nothing]
    assert {attempt.number for attempt in silent} == {20, 24, 26, 27, 28, 34, 36, 37, 38, 39, 40}


@pytest.mark.parametrize(("attempt", "part"), EACH)
def test_an_attack_works_where_nothing_holds_it(attempt: Attempt, part: str):
    if why_not():
        pytest.skip(why_not())
    if attempt.number == 23 and os.geteuid() != 0:
        pytest.skip(ONE_USER)
    done = run_apart("tests.security.attacks.plain", [attempt.name, part], bounds=BOUNDS, uid=STRANGER)
    assert done.status == 0, done.stderr
    outcome = json.loads(done.stdout.splitlines()[-1])
    assert not outcome["broken"], (outcome, done.stderr)
    if not attempt.proves_nothing:
        assert outcome["through"], (outcome, done.stderr)
