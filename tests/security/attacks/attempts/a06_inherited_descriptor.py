"""Reads what a descriptor holds that was left open for it by mistake."""

import os

from fornada_sdk import Context
from tests.security.attacks.verdict import SECRET, Told, Verdict, refused, secret_in, worked

WALL = "close_range"


def attempt(context: Context, told: Told) -> Verdict:
    tried = 0
    for descriptor in range(3, 1024):
        try:
            data = os.pread(descriptor, 4096, 0)
        except OSError:
            continue
        tried += 1
        if SECRET.encode() in data:
            return worked(f"descriptor {descriptor}", secret_in(data))
    return refused(f"{tried} files are open, none with a secret")
