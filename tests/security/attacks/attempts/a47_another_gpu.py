"""Opens the nodes of graphics cards that it wasn't given."""

import os
from functools import partial
from pathlib import Path

from fornada_sdk import Context
from tests.security.attacks.verdict import Told, Verdict, first_that_works, refused

WALL = "ENOENT: /dev has the model's own nodes only"

KINDS = ("nvidia[0-9]*", "dri/renderD*", "dri/card*", "kfd", "accel/accel*")


def attempt(context: Context, told: Told) -> Verdict:
    own = f"nvidia{context.device.id.removeprefix('cuda:')}" if context.device.kind == "cuda" else ""
    nodes = sorted({str(path) for kind in KINDS for path in Path("/dev").glob(kind) if path.name != own} | {"/dev/nvidia0", "/dev/nvidia7"})

    def opened(path: str) -> None:
        descriptor = os.open(path, os.O_RDWR)
        os.close(descriptor)

    if own:
        nodes.remove(f"/dev/{own}")
    return first_that_works({path: partial(opened, path) for path in nodes}) if nodes else refused("ENOENT")
