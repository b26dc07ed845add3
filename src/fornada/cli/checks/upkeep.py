"""What a node that has worked for a while needs somebody to look after: its backups, and who may come in."""

import os
import time
from collections.abc import Iterator

from fornada.app.backup import last_backup
from fornada.app.data_directory import STORE
from fornada.cli.checks.finding import Finding, ok, warn
from fornada.cli.checks.machine import Machine
from fornada.store.keys import has_keys

DAY_S = 86400.0
OLD_S = 7 * DAY_S


def backups(machine: Machine) -> Iterator[Finding]:
    """Nothing where there is no store yet, or this user may not look."""
    if not os.path.exists(machine.data_dir / STORE):
        return
    advice = "'fornada backup FILE' makes one while the node serves"
    last = last_backup(machine.data_dir)
    if last is None:
        yield warn("backup", f"none was made of {machine.data_dir} that this user could see", advice)
        return
    age_s = max(0.0, time.time() - last.at)
    seen = f"{last.path}, {f'{age_s / DAY_S:.0f} days' if age_s >= 2 * DAY_S else f'{age_s / 3600:.0f} hours'} ago"
    if age_s > OLD_S:
        yield warn("backup", seen, f"{advice}; let a timer do it every night")
    else:
        yield ok("backup", seen)


def keys(machine: Machine) -> Iterator[Finding]:
    store = machine.data_dir / STORE
    if not os.path.exists(store):
        return
    if has_keys(store):
        yield ok("keys", "every request needs one")
    else:
        yield ok("keys", "none: open to everybody on this machine, and to no other", "'fornada keys create' locks it")
