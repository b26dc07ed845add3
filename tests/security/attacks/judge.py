"""Says of an attempt whether it got through: by what it did and what it holds, not by what it believes."""

import importlib
import pkgutil
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import Any

from tests.security.attacks import attempts as package
from tests.security.attacks.verdict import Verdict

PACKAGE = "tests.security.attacks.attempts"


@dataclass(frozen=True)
class Attempt:
    """One module of attempts/, and what it says of itself."""

    name: str
    module: ModuleType

    @property
    def number(self) -> int:
        return int(self.name[1:3])

    @property
    def tries(self) -> str:
        """What it does, in a sentence."""
        return (self.module.__doc__ or "").strip().splitlines()[0]

    @property
    def wall(self) -> str:
        return str(self.module.WALL)

    @property
    def proves_nothing(self) -> str:
        """Why it fails without walls too; empty where it must succeed there."""
        return str(getattr(self.module, "PROVES_NOTHING", ""))

    @property
    def parts(self) -> tuple[str, ...]:
        """The ways in which it tries, each in a fresh process."""
        return tuple(getattr(self.module, "PARTS", ("",)))

    def says(self, flag: str) -> bool:
        """BOMB: it takes what all share. MAY_DIE: to be killed for it is a refusal. SEEN_OUTSIDE: it counts only if its trace is
        found. OUTLIVES: what counts is what is left after its end. ALLOWED: nothing is meant to stop it. SHARES: the node shares
        memory with it by then."""
        return bool(getattr(self.module, flag, False))


def all_attempts() -> list[Attempt]:
    """Those of attempts/, by number."""
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    return [named(name) for name in names]


def named(name: str) -> Attempt:
    return Attempt(name, importlib.import_module(f"{PACKAGE}.{name}"))


@dataclass(frozen=True)
class Outcome:
    """What came of one part of an attempt."""

    attempt: str
    part: str
    through: bool
    how: str
    skip: str = ""
    broken: str = ""
    """It ended in a way that proves nothing about walls: the test must fail."""
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def judge(attempt: Attempt, verdict: Verdict, *, harm: Sequence[str], secrets: Collection[str], part: str = "") -> Outcome:
    """A trace outside or a secret in its hand is through, whatever it says; a claim alone counts where no trace could be."""
    loot = verdict["loot"]
    claimed = verdict["worked"] and not loot and not attempt.says("SEEN_OUTSIDE")
    through = bool(harm) or loot in secrets or claimed
    how = "; ".join([verdict["how"], *harm]) + (f" (it holds {loot!r}, which is no secret)" if loot and loot not in secrets else "")
    return Outcome(attempt.name, part, through, how, skip=verdict["skip"] if not through else "")
