"""A model that takes more memory than it may is ended, and everybody who can do something about it is told which bound it was."""

import json

import pytest

from tests.security.attacks.out_of_memory import ANSWERING, LOADING
from tests.security.attacks.runs import Unavailable, run_at
from tests.security.pairs import PAIRS

pytestmark = pytest.mark.timeout(300)

BOUND = "[resources] memory in model.toml"


@pytest.mark.parametrize(("level", "user"), [pair for pair in PAIRS if pair.values[0] != "landlock"])
def test_the_bound_is_named_to_callers_and_people(level: str, user: str):
    try:
        done = run_at(level, user, "tests.security.attacks.out_of_memory")
    except Unavailable as error:
        pytest.skip(str(error))
    assert done.status == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    for name, expected in ((ANSWERING, [502, 3101]), (LOADING, [503, 3104])):
        *code, message = told[name]["answer"]
        assert code == expected and BOUND in message, told
        assert BOUND in told[name]["why"] and BOUND in told[name]["failure"]["reason"], told
    assert told["again"] == "well"
    over = {entry["model"] for entry in told["ended"] if entry.get("over_memory") and BOUND in entry["how"]}
    assert over == {ANSWERING, LOADING}, told
