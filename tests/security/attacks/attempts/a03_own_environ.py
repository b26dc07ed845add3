"""Looks for secrets of the node in its own environment."""

import os

from fornada_sdk import Context
from tests.security.attacks.verdict import SECRET, Told, Verdict, refused, worked

WALL = "the environment is written from nothing"


def attempt(context: Context, told: Told) -> Verdict:
    for name, value in os.environ.items():
        if SECRET in value:
            return worked(name, value)
    return refused(f"{len(os.environ)} variables, none of them a secret")
