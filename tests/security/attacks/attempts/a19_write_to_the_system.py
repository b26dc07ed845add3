"""Leaves a file in /, /usr, /etc, or among the files of the user who runs the node."""

from functools import partial
from pathlib import Path

from fornada_sdk import Context
from tests.security.attacks.verdict import MARK, Told, Verdict, first_that_works, refused

WALL = "EROFS, EACCES, ENOENT"


def attempt(context: Context, told: Told) -> Verdict:
    def leave(folder: str) -> None:
        (Path(folder) / MARK).write_text("")

    system = first_that_works({folder: partial(leave, folder) for folder in told["protected"]})
    if system["worked"]:
        return system
    # A folder of that name in a file system of its own is no harm, so here the trace outside is what counts.
    walls = [first_that_works({folder: partial(leave, folder)})["how"] for folder in told["folders"]]
    return refused(", ".join([system["how"], *walls]))
