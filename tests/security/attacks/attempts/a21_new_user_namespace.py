"""Becomes root of a user namespace of its own, where much more of the kernel can be reached."""

from fornada_sdk import Context
from tests.security.attacks.kernel import NEWUSER, call, in_a_child
from tests.security.attacks.verdict import Told, Verdict, first_that_works

WALL = "EPERM (filter)"


def attempt(context: Context, told: Told) -> Verdict:
    return first_that_works({"unshare": lambda: in_a_child(lambda: call("unshare", NEWUSER))})
