"""Takes memory until it can't; three times what its model.toml declares is enough to say that nothing stops it."""

import mmap
import os
import time
from collections.abc import Iterator

from fornada_sdk import Context
from tests.security.attacks.verdict import Told, Verdict, refused, worked

WALL = "killed for memory, or MemoryError"
BOMB = True
MAY_DIE = True
PARTS = ("heap", "mapping", "memfd")

STEP = 16 * 1024 * 1024


def attempt(context: Context, told: Told) -> Verdict:
    held: list[object] = []
    enough = 3 * told["memory_bytes"]
    taken = 0
    try:
        for piece in _pieces(told["part"]):
            held.append(piece)
            taken += STEP
            if taken >= enough:
                break
        time.sleep(2)  # time for a watchdog, where that is what stops it
    except (MemoryError, OSError) as error:
        count = taken // 2**20
        held.clear()
        if taken <= told["memory_bytes"]:
            return refused(f"{type(error).__name__} after {count} MiB")
        return worked(f"{count} MiB, then {type(error).__name__}")
    return worked(f"{taken // 2**20} MiB, {told['memory_bytes'] // 2**20} declared")


def _pieces(part: str) -> Iterator[object]:
    """Memory that is really there: every page was written to."""
    if part == "heap":
        while True:
            yield bytearray(b"x") * STEP
    if part == "mapping":
        while True:
            area = mmap.mmap(-1, STEP)  # shared: no part of the data segment
            area.write(b"x" * STEP)
            yield area
    while True:
        file = open(os.memfd_create("bomb"), "wb", buffering=0)  # noqa: SIM115 - it stays open
        file.write(b"x" * STEP)
        yield file
