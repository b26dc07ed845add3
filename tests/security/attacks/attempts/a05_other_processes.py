"""Sees what else runs on the machine."""

import os
from pathlib import Path

from fornada_sdk import Context
from tests.security.attacks.verdict import Told, Verdict, refused, worked

WALL = "/proc shows one process"


def attempt(context: Context, told: Told) -> Verdict:
    own = os.readlink("/proc/self") if os.path.lexists("/proc/self") else ""
    try:
        pids = [entry for entry in os.listdir("/proc") if entry.isdigit()]
    except OSError as error:
        return refused(error)
    for pid in pids:
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
            parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if pid != own and parent != own and line:
            return worked(f"{pid}: {line[:40].decode(errors='replace')}")
    return refused(f"{len(pids)} processes, none of them another's")
