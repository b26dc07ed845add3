"""Reads the operator's token, a file with mode 0600 of the same user."""

from pathlib import Path

from fornada_sdk import Context
from tests.security.attacks.verdict import Told, Verdict, first_that_works, secret_in

WALL = "ENOENT (own mounts) or EACCES (Landlock)"


def attempt(context: Context, told: Told) -> Verdict:
    return first_that_works({"read": lambda: secret_in(Path(told["token_file"]).read_bytes())})
