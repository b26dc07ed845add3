"""At which level, and as whom, attacks are tried."""

import os

import pytest

from tests.security.attacks.runs import LEVELS, USERS

USUAL = {("full", "root")} if os.geteuid() == 0 else {("full", "user"), ("namespaces", "user")}
"""In every run of the tests, where the machine offers it; the rest in `make test-long`."""
PAIRS = [
    pytest.param(level, user, marks=() if (level, user) in USUAL else pytest.mark.long, id=f"{level}-{user}")
    for level in LEVELS
    for user in USERS
]
