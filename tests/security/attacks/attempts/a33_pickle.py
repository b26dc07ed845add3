"""Weights that are a pickle, which writes a file of the operator's when it is read."""

import pickle
from pathlib import Path

from fornada_sdk import Context
from tests.security.attacks.verdict import MARK, Told, Verdict, first_that_works

WALL = "ENOENT (own mounts) or EACCES (Landlock)"
SEEN_OUTSIDE = True


class _Weights:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return (Path.write_text, (Path(self.path), "owned"))


def attempt(context: Context, told: Told) -> Verdict:
    weights = pickle.dumps(_Weights(f"{told['host_folder']}/{MARK}"))
    return first_that_works({"pickle": lambda: pickle.loads(weights)})
