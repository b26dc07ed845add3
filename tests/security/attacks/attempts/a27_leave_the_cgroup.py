"""Moves itself into another cgroup, or lifts the limits of its own."""

from functools import partial
from pathlib import Path

from fornada_sdk import Context
from tests.security.attacks.verdict import Told, Verdict, first_that_works, refused

WALL = "ENOENT: there is no cgroup file system"
PROVES_NOTHING = "groups belong to root, so an ordinary user stays where it is in any case"


def attempt(context: Context, told: Told) -> Verdict:
    def move(path: Path) -> None:
        with open(path, "w") as file:
            file.write("0")

    root = Path("/sys/fs/cgroup")
    files = [root / "cgroup.procs", *sorted(root.glob("*/cgroup.procs")), *sorted(root.glob("memory/*/cgroup.procs"))]
    files = [path for path in files if path.exists()]
    if not files:
        return refused("ENOENT")
    return first_that_works({str(path): partial(move, path) for path in files})
