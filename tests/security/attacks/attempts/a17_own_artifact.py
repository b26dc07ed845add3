"""Changes its own weights, which other models and later versions may share."""

import os
from pathlib import Path

from fornada_sdk import Context
from tests.security.attacks.verdict import MARK, Told, Verdict, first_that_works, nothing_there

WALL = "EROFS, EACCES"


def attempt(context: Context, told: Told) -> Verdict:
    paths = list(context.artifacts.values())
    if not paths:
        return nothing_there("it was given no artifact")

    def overwrite(path: Path) -> None:
        with open(path, "r+b") as file:
            file.write(MARK.encode())

    def loosen() -> None:
        os.chmod(paths[0], 0o600)
        overwrite(paths[0])

    def replace() -> None:
        new = paths[0].with_name("new")
        new.write_bytes(MARK.encode())
        os.rename(new, paths[0])

    return first_that_works({"write": lambda: overwrite(paths[0]), "chmod and write": loosen, "rename over it": replace})
