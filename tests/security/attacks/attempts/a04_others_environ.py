"""Looks for secrets in the environment of every other process."""

import os
from pathlib import Path

from fornada_sdk import Context
from tests.security.attacks.verdict import SECRET, Told, Verdict, refused, secret_in, worked

WALL = "/proc shows only its own processes"


def attempt(context: Context, told: Told) -> Verdict:
    own = os.readlink("/proc/self") if os.path.lexists("/proc/self") else ""
    read, walls = 0, set()
    try:
        pids = [entry for entry in os.listdir("/proc") if entry.isdigit() and entry != own]
    except OSError as error:
        return refused(error)
    for pid in pids:
        try:
            data = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError as error:
            walls.add(type(error).__name__)
            continue
        read += 1
        if SECRET.encode() in data:
            return worked(f"/proc/{pid}/environ", secret_in(data))
    return refused(f"{read} of {len(pids)} could be read {' '.join(sorted(walls))}".strip())
