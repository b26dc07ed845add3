"""Leaves a link to a secret in its scratch folder, for a reader outside to follow. This is allowed: no reader may follow it."""

import os
from pathlib import Path

from fornada_sdk import Context
from tests.security.attacks.verdict import Told, Verdict, first_that_works

WALL = "none is meant: readers outside don't follow links"
ALLOWED = True


def attempt(context: Context, told: Told) -> Verdict:
    return first_that_works({"symlink": lambda: os.symlink(told["token_file"], Path(context.scratch) / "result.json")})
