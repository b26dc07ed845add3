"""Writes files until it can't; three times the scratch that its model.toml declares is enough to say that nothing stops it."""

import errno
import os
import time
from pathlib import Path

from fornada_sdk import Context
from tests.security.attacks.verdict import Told, Verdict, refused, worked

WALL = "ENOSPC or EFBIG; or the node's look at the folder"
BOMB = True
MAY_DIE = True
PARTS = ("one file", "many files", "files without a name")

RESOURCES = {"device": "cpu", "memory": "512MiB"}
"""So that a disk that is memory isn't held by the bound of memory."""

STEP = 1024 * 1024


def attempt(context: Context, told: Told) -> Verdict:
    enough = 3 * told["scratch_bytes"]
    size = enough if told["part"] == "one file" else 4 * STEP
    written, wall = 0, ""
    paths: list[Path] = []
    nameless: list[int] = []
    try:
        while written < enough and not wall:
            path = Path(context.scratch) / f"full-{len(paths)}"
            paths.append(path)
            with open(path, "wb", buffering=0) as file:
                if told["part"] == "files without a name":
                    nameless.append(os.dup(file.fileno()))
                    os.unlink(path)
                for _ in range(size // STEP):
                    try:
                        written += file.write(bytes(STEP))
                    except OSError as error:
                        wall = errno.errorcode.get(error.errno or 0, str(error))
                        break
        time.sleep(0.2 if wall else 2)  # time for a watchdog, where that is what stops it
    finally:
        for path in paths:
            if path.exists():
                os.unlink(path)
        for descriptor in nameless:
            os.close(descriptor)
    declared = told["scratch_bytes"]
    if wall and written <= 1.25 * declared:
        return refused(f"{wall} after {written // STEP} MiB")
    return worked(f"{written // STEP} MiB, {declared // STEP} declared")
