"""Makes itself the last process that the kernel ends for want of memory."""

from pathlib import Path

from fornada_sdk import Context
from tests.security.attacks.verdict import Told, Verdict, first_that_works

WALL = "EACCES"
PROVES_NOTHING = "only a privileged process may lower it in any case"


def attempt(context: Context, told: Told) -> Verdict:
    return first_that_works({"oom_score_adj": lambda: Path("/proc/self/oom_score_adj").write_text("-999")})
