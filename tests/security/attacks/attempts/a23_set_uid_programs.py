"""Becomes root through a program with the set-uid bit."""

import os
import re
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

from fornada_sdk import Context
from tests.security.attacks.verdict import Told, Verdict, nothing_there, refused, worked

WALL = "no_new_privs; uid 0 means nothing in its user namespace"
TRIES = 5
"""A program that ends at once may have ended before it was looked at; on a busy machine all of them."""
PLACES = ("/usr/bin", "/bin", "/usr/sbin", "/sbin")


def attempt(context: Context, told: Told) -> Verdict:
    if os.getuid() == 0:
        return refused("it is root already")
    found = None
    for found in [*_set_uid_programs()] * TRIES:
        with subprocess.Popen([found], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                # Popen returns once the program was executed, so this is the uid that it got; it may have ended already.
                status = Path(f"/proc/{process.pid}/status").read_text()
            except OSError:
                continue
            finally:
                process.kill()
        uids = re.search(r"^Uid:\s+(\d+)\s+(\d+)", status, re.MULTILINE)
        if uids and uids[1] != uids[2] and "State:\tZ" not in status:
            return worked(f"{found} runs as {uids[2]}")
    if not found:
        return nothing_there("no program here has the set-uid bit")
    bit = re.search(r"^NoNewPrivs:\s+(\d)", Path("/proc/self/status").read_text(), re.MULTILINE)
    return refused(f"its programs stay with uid {os.getuid()}, no_new_privs {bit[1] if bit else '?'}")


def _set_uid_programs() -> Iterator[str]:
    for place in PLACES:
        try:
            entries = list(os.scandir(place))
        except OSError:
            continue
        for entry in entries:
            try:
                about = os.stat(entry.path)
            except OSError:
                continue
            if about.st_mode & stat.S_ISUID and about.st_uid != os.getuid() and os.access(entry.path, os.X_OK):
                yield entry.path
