"""Fifty attacks by deployed models, at every level of isolation that the machine offers, as root and as an ordinary user: refused."""

import pytest

from tests.security.attacks.judge import Attempt, Outcome, all_attempts
from tests.security.attacks.runs import Unavailable, outcomes
from tests.security.pairs import PAIRS

pytestmark = pytest.mark.timeout(400)

ALL = all_attempts()
EACH = [pytest.param(attempt, part, id=f"{attempt.name}{'-' if part else ''}{part}") for attempt in ALL for part in attempt.parts]
REFUSED_ALWAYS = {3, 6, 34, 35, 41, 42, 45, 46, 48, 49}
"""By what a runner gets and doesn't get even without isolation."""
OPEN_WITHOUT = {1, 2, 4, 5, 7, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 21, 22, 25, 32, 33, 47, 50}
"""Those that must get through there, whoever runs the node: else they prove nothing where they are refused.
Not the bombs: bounds of memory and processes are watched over at every level."""


def campaign(level: str, user: str) -> dict[tuple[str, str], Outcome]:
    try:
        return outcomes(level, user)
    except Unavailable as error:
        pytest.skip(str(error))


def test_there_are_fifty():
    assert [attempt.number for attempt in ALL] == list(range(1, 51))


IN_SOCKETS = "what waits in sockets is no process's, and no group counts it (SECURITY.md)"
WATCHED_ALONE = {"files without a name", "files that never had a name", "files that are only mapped", "files on their way"}
"""Parts of 31: where scratch is on disk the node looks for open files, which it may miss and which these needn't be (SECURITY.md)."""


@pytest.mark.parametrize(("attempt", "part"), EACH)
@pytest.mark.parametrize(("level", "user"), PAIRS)
def test_an_attack_is_refused(level: str, user: str, attempt: Attempt, part: str):
    outcome = campaign(level, user)[attempt.name, part]
    assert not outcome.broken, outcome
    if outcome.skip:
        pytest.skip(f"{attempt.name}: {outcome.skip}")
    if outcome.through and level == "landlock" and attempt.number == 31 and part in WATCHED_ALONE:
        pytest.xfail("nothing at this level bounds files without a name")
    if outcome.through and level != "full" and attempt.number == 30 and part == "sockets":
        pytest.xfail(IN_SOCKETS)
    assert not outcome.through or attempt.says("ALLOWED"), f"{attempt.tries} {outcome.how}"


@pytest.mark.slow
@pytest.mark.parametrize("user", ["user", pytest.param("root", marks=pytest.mark.long)])
def test_the_same_attacks_get_through_without_isolation(user: str):
    found = campaign("none", user)
    assert set(found) == {(attempt.name, part) for attempt in ALL for part in attempt.parts}
    assert not [outcome for outcome in found.values() if outcome.broken]
    through = {int(outcome.attempt[1:3]) for outcome in found.values() if outcome.through}
    assert OPEN_WITHOUT - through == set(), "these attack nothing"
    assert not [outcome for outcome in found.values() if outcome.through and int(outcome.attempt[1:3]) in REFUSED_ALWAYS]


@pytest.mark.slow
def test_nothing_of_a_package_runs_while_it_is_installed():
    (outcome,) = [outcome for outcome in campaign("none", "user").values() if outcome.attempt.startswith("a50")]
    assert "-start was written" in outcome.how, "the package's code doesn't run at all"
    assert "-install was written" not in outcome.how
