"""The table in SECURITY.md says of all fifty attacks what came of them."""

from pathlib import Path

import pytest

from tests.security.attacks.judge import Outcome, all_attempts
from tests.security.attacks.runs import LEVELS
from tests.security.attacks.table import NOT_YET, committed, table

ALL = all_attempts()
ROOT = Path(__file__).parents[2]
KNOWN_HOLES = {("31", "landlock"), ("30", "namespaces"), ("30", "landlock")}
"""Number and level: what SECURITY.md says among the rests."""


def test_the_committed_table_has_a_row_for_each_attack_and_a_column_for_each_level():
    text = committed()
    if text == NOT_YET:
        pytest.skip(NOT_YET)
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines()]
    assert [(row[0], row[1]) for row in rows] == [(f"{attempt.number:02}", attempt.tries) for attempt in ALL]
    assert {column.split(",")[0] for column in head[3:]} == set(LEVELS)
    assert all(len(row) == len(head) and all(row) for row in rows)
    cells = [(row[0], column.split(",")[0], cell) for row in rows for column, cell in zip(head[3:], row[3:], strict=True)]
    holes = {(number, level) for number, level, cell in cells if "**" in cell}
    assert holes <= KNOWN_HOLES, "an attack gets through, or was broken"
    assert "Memory that no process shows" in (ROOT / "SECURITY.md").read_text()
    assert "Files without a name" in (ROOT / "SECURITY.md").read_text(), "what is known to get through is said in words, too"


def test_a_row_says_what_stood_in_the_way():
    found = {(attempt.name, part): Outcome(attempt.name, part, False, "EPERM") for attempt in ALL for part in attempt.parts}
    made = table(ALL, {("full", "root"): found}).splitlines()
    assert len(made) == 52
    assert made[0] == "| # | attack | the wall | full, root |"
    assert made[2].startswith("| 01 | Reads the weights of another model. |") and made[2].endswith("| EPERM |")


def test_a_row_says_aloud_what_gets_through():
    (attempt,) = [attempt for attempt in ALL if attempt.number == 30]
    parts = dict.fromkeys(attempt.parts, "killed")
    found = {(attempt.name, part): Outcome(attempt.name, part, part == "memfd", how) for part, how in parts.items()}
    assert table([attempt], {("full", "root"): found}).splitlines()[2].endswith("| **gets through**: killed |")


def test_what_is_allowed_and_what_isn_t_there_has_its_words():
    allowed, absent = (attempt for attempt in ALL if attempt.number in (32, 43))
    found = {
        (allowed.name, ""): Outcome(allowed.name, "", True, "symlink"),
        (absent.name, ""): Outcome(absent.name, "", False, "no arena", skip="no arena"),
    }
    rows = table([allowed, absent], {("full", "user"): found}).splitlines()[2:]
    assert rows[0].endswith("| allowed |") and rows[1].endswith("| nothing to attack: no arena |")
