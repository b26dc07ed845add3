"""Mounts a file system of its own, and makes what is read-only writable."""

from fornada_sdk import Context
from tests.security.attacks.kernel import call
from tests.security.attacks.verdict import Told, Verdict, first_that_works

WALL = "EPERM"
PROVES_NOTHING = "an ordinary user may not mount in any case"

BIND_REMOUNT = 4096 | 32


def attempt(context: Context, told: Told) -> Verdict:
    scratch = str(context.scratch).encode()
    return first_that_works(
        {
            "tmpfs": lambda: call("mount", b"none", scratch, b"tmpfs", 0, b""),
            "remount /": lambda: call("mount", b"none", b"/", b"", BIND_REMOUNT, b""),
            "bind": lambda: call("mount", b"/", scratch, b"", 4096, b""),
        }
    )
