"""Leaves code in the environment that other models import from."""

import os
import sys
from pathlib import Path

from fornada_sdk import Context
from tests.security.attacks.verdict import MARK, Told, Verdict, first_that_works

WALL = "EROFS, EACCES"


def attempt(context: Context, told: Told) -> Verdict:
    folder = Path(told["environment"] or Path(sys.prefix) / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages")

    def leave() -> None:
        (folder / f"{MARK}.pth").write_text("")

    def loosen() -> None:
        os.chmod(folder, 0o700)
        leave()

    return first_that_works({"write": leave, "chmod and write": loosen})
