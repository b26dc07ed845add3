"""Changes its root folder."""

import os

from fornada_sdk import Context
from tests.security.attacks.kernel import in_a_child
from tests.security.attacks.verdict import Told, Verdict, first_that_works

WALL = "EPERM"
PROVES_NOTHING = "an ordinary user may not in any case"


def attempt(context: Context, told: Told) -> Verdict:
    return first_that_works({"chroot": lambda: in_a_child(lambda: os.chroot(context.scratch))})
