"""What keeps models apart on this machine: what its kernel was seen to allow, and what of that this release uses."""

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from fornada.keeper import probes, reach
from fornada.keeper.config import WallsConfig
from fornada.keeper.levels import AUTO, SCOPED_SIGNALS_SINCE, Chosen, Facts, Feature, Level, Missing, Switch, best, choose, missing
from fornada.keeper.uid_blocks import BLOCK

OPEN_UP = "chmod o+x (a folder), o+rx (Python), or install Python and keep the data directory elsewhere"
"""Advice to `closed_to_models`."""
FIRST_UID = 200_000
"""Below it are people and services, and what /etc/subuid usually gives away first begins at 100000."""
UIDS = 1000
"""Of one node, and so the most children that it may have at a time."""
WINDOWS = 300
"""Nodes beside one another take different uids, by chance of their names; systemd's own begin behind them, at 524288."""
FIRST_UID_OF_FEW, WINDOWS_OF_FEW = 20_000, 40
"""Where there are only 65536, as in a container whose root is an ordinary user outside."""
FIRST_BLOCK_UID = 1_900_000_000
"""Behind all that systemd hands out (which ends at 1879048191), and before the first that a signed 32-bit number doesn't hold."""
BLOCKS = 1000
"""Zygotes of one node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """For the operator."""

    wanted: str
    """The setting: AUTO or a level."""
    used: Level | None
    """What models get. None: the node doesn't start, since what was asked for can't be had."""
    offered: Level
    """The best that the machine gives; NONE if it gives none."""
    missing: tuple[Missing, ...]
    """What keeps it from FULL."""
    facts: Facts

    def view(self) -> dict[str, object]:
        """For JSON."""
        return {
            "wanted": self.wanted,
            "used": self.used,
            "offered": self.offered,
            "missing": [{"what": one.what, "why": one.why, "advice": one.advice} for one in self.missing],
        }


def describe(wanted: str = AUTO) -> Isolation:
    """Probes the machine, in some tens of milliseconds, from the calling process, which must have one thread."""
    return described(wanted, probes.look(ours=[os.getpid()]))


def without_namespaces(facts: Facts) -> Facts:
    """The same machine, where there may be no pid namespace."""
    return replace(facts, refused={**facts.refused, Feature.PID_NAMESPACE: "switched off for this node"})


def walls(level: Level, facts: Facts, *, node: str, run_dir: str) -> WallsConfig:
    """What the keeper is told. `node` is the node's name among others."""
    # Whoever gives up root asks for a namespace as an ordinary user, whom the probe didn't try.
    refused = facts.uid == 0 and (facts.switches.get(Switch.USERNS_CLONE) == 0 or facts.switches.get(Switch.APPARMOR_USERNS) == 1)
    first, windows = (FIRST_UID, WINDOWS) if facts.uids > FIRST_UID + WINDOWS * UIDS else (FIRST_UID_OF_FEW, WINDOWS_OF_FEW)
    window = int.from_bytes(node.encode()[-4:], "big") % windows
    own_uids = facts.uids > first + windows * UIDS
    own_blocks = facts.uids > FIRST_BLOCK_UID + WINDOWS * BLOCKS * BLOCK
    return WallsConfig(
        level=level.value,
        node=node,
        run_dir=run_dir,
        first_uid=first + window * UIDS if own_uids else 0,
        uids=UIDS if own_uids else 0,
        first_block=FIRST_BLOCK_UID + window * BLOCKS * BLOCK if own_blocks else 0,
        blocks=BLOCKS if own_blocks else 0,
        own_users=Feature.INNER_USER_NAMESPACE not in facts.refused and not refused,
        cgroup_namespace=Feature.CGROUP_NAMESPACE not in facts.refused,
        landlock=Feature.LANDLOCK not in facts.refused,
        scoped_signals=facts.landlock_abi >= SCOPED_SIGNALS_SINCE,
    )


def closed_to_models(given: WallsConfig, data_dir: Path) -> str:
    """Why no model could be started behind these walls, in a line; empty: nothing is in its way. Where it has our uid it may what we may."""
    level = Level(given.level)
    if level is Level.NONE or not given.uids:
        return ""
    paths = reach.closed(sys.executable, data_dir, own_mounts=level is not Level.LANDLOCK)
    named = ", ".join(map(str, paths))
    return f"a model has a uid of its own, and no other user may use {named}" if named else ""


def described(wanted: str, facts: Facts) -> Isolation:
    """The same of what was seen. `wanted` is AUTO or a level's name."""
    choice = choose(wanted, facts)
    used = choice.level if isinstance(choice, Chosen) else None
    return Isolation(wanted=wanted, used=used, offered=best(facts), missing=tuple(missing(facts, Level.FULL)), facts=facts)
