"""What keeps models apart on this machine: what its kernel was seen to allow, and what of that this release uses."""

import os
from dataclasses import dataclass

from fornada.keeper import probes
from fornada.keeper.levels import AUTO, Chosen, Facts, Level, Missing, best, choose, missing

WIRED = False
"""Whether the keeper puts models behind what was found. As long as it doesn't, nothing but `none` is had, and nothing else is said."""


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
    wired: bool
    """WIRED."""

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
    return described(wanted, probes.look(ours=[os.getpid()]), wired=WIRED)


def described(wanted: str, facts: Facts, *, wired: bool) -> Isolation:
    """The same of what was seen. `wanted` is AUTO or a level's name."""
    used: Level | None = Level.NONE
    if wired:
        choice = choose(wanted, facts)
        used = choice.level if isinstance(choice, Chosen) else None
    return Isolation(wanted=wanted, used=used, offered=best(facts), missing=tuple(missing(facts, Level.FULL)), facts=facts, wired=wired)
