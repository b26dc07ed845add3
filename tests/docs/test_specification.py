"""SPECIFICATION.md names checks that exist."""

import ast
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (REPOSITORY / "SPECIFICATION.md").read_text().splitlines()
    if line.startswith("|") and not line.startswith(("|---", "| number"))
]


def test_every_row_has_a_number_a_promise_and_a_check():
    assert ROWS
    for row in ROWS:
        assert len(row) == 3, row
        assert all(row), row


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1][:40])
def test_a_check_that_is_named_exists(row):
    named = re.findall(r"`([^`]+)`", row[2])
    assert named or row[2] == "none yet", f"neither a test, nor a benchmark, nor 'none yet': {row[2]}"
    for check in named:
        file, _, name = check.partition("::")
        path = REPOSITORY / file
        assert path.is_file(), f"{file} isn't there"
        if name:
            functions = [
                node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            ]
            assert name in functions, f"{file} has no {name}"
