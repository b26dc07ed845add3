"""Attacks from a package: while it is installed, when an interpreter starts in its environment, and when it is imported."""

import importlib
from typing import Any

from fornada_sdk import Context
from tests.security.attacks.verdict import Told, Verdict, refused

WALL = "what imports is walled in as what runs; while it is installed, nothing runs"
SEEN_OUTSIDE = True
DEPENDS = True
"""The model depends on tests/security/attacks/poison.py's wheel."""


def attempt(context: Context, told: Told) -> Verdict:
    verdicts: dict[str, Any] = importlib.import_module("poison").VERDICTS
    return refused(f"{len(verdicts)} attempts ran at import", verdicts=verdicts)
