"""Leaves a file in /, /usr, /etc or the home of the user."""

from functools import partial
from pathlib import Path

from fornada_sdk import Context
from tests.security.attacks.verdict import MARK, Told, Verdict, first_that_works

WALL = "EROFS, EACCES, ENOENT"


def attempt(context: Context, told: Told) -> Verdict:
    def leave(folder: str) -> None:
        path = Path(folder) / MARK
        path.write_text("")
        path.unlink()

    return first_that_works({folder: partial(leave, folder) for folder in told["protected"]})
