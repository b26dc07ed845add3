"""Raises the limits that it was started with."""

import resource

from fornada_sdk import Context
from tests.security.attacks.verdict import Told, Verdict, refused, worked

WALL = "EPERM: the hard limits stand"
PROVES_NOTHING = "an ordinary user can't raise a hard limit in any case"

NAMES = ("RLIMIT_NOFILE", "RLIMIT_NPROC", "RLIMIT_FSIZE", "RLIMIT_DATA", "RLIMIT_CORE")


def attempt(context: Context, told: Told) -> Verdict:
    for name in NAMES:
        which = getattr(resource, name)
        _, hard = resource.getrlimit(which)
        if hard == resource.RLIM_INFINITY:
            continue
        try:
            resource.setrlimit(which, (hard + 1, hard + 1))
        except (ValueError, OSError):
            continue
        return worked(f"{name} to {hard + 1}")
    return refused("EPERM")
