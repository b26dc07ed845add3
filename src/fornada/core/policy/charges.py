"""What a model is charged for its memory, and what its processes have taught about it.

A charge is what nobody else may take: the largest of what is expected of the model and what it holds already, and a slack.
Expected is what its author declared until something was measured, and the measured peak from then on. The ledger (node.ledger)
keeps one for the device of an instance and one for its host memory.
"""

import enum
import re
from dataclasses import dataclass

from fornada.core.resources import parse_size

FORGETS = 4
"""A peak that didn't come back is forgotten by such a part of what it was too much."""
GROWTH = 1.25
"""By how much more is planned after memory ran out, where nobody says how much was missing."""


class Because(enum.StrEnum):
    """What a charge rests on."""

    DECLARED = "declared"
    """model.toml: nothing has been measured yet."""
    LEARNED = "learned"
    """The measured peak of earlier processes, or of this one."""
    LIVE = "live"
    """It holds more than was expected."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What one model may need of one kind of memory."""

    declared_bytes: int = 0
    learned_bytes: int = 0
    """0: nothing was measured, which says nothing about what it takes."""
    most_bytes: int = 0
    """Where what was declared is a bound and no need: all that there is for models. The first process is planned with that at most, and
    has it alone if need be. 0: what was declared is the need."""

    @property
    def expected_bytes(self) -> int:
        return self.learned_bytes or (min(self.declared_bytes, self.most_bytes) if self.most_bytes else self.declared_bytes)


@dataclass(frozen=True, slots=True)
class Charge:
    """Bytes that count as taken, and why so many."""

    bytes: int
    because: Because
    declared_bytes: int
    learned_bytes: int
    live_bytes: int
    slack_bytes: int


NOTHING = Charge(0, Because.DECLARED, 0, 0, 0, 0)


def charge(estimate: Estimate, *, live_bytes: int, slack_bytes: int, total_bytes: int) -> Charge:
    """`total_bytes` is what the device has for models: slack never makes something too large that fits without it. What neither
    declares nor takes anything is charged nothing, slack neither."""
    expected = estimate.expected_bytes
    base = max(expected, live_bytes)
    if live_bytes > expected:
        because = Because.LIVE
    else:
        because = Because.LEARNED if estimate.learned_bytes else Because.DECLARED
    slack = min(slack_bytes, max(0, total_bytes - base)) if base else 0
    return Charge(base + slack, because, estimate.declared_bytes, estimate.learned_bytes, live_bytes, slack)


def standing(promised: Estimate, now: Estimate, *, peak_bytes: int) -> Estimate:
    """What is expected of a loaded instance that was `promised` memory by an earlier estimate and has held `peak_bytes` itself. It gives
    back what it was expected to take and doesn't, for good: others have it by then. What was learned since, or is to be forgotten, is
    planned for the next one."""
    expected = promised.expected_bytes
    if not now.learned_bytes or not expected:
        return promised
    return Estimate(now.declared_bytes, max(peak_bytes, min(now.learned_bytes, expected)))


def learned_from(known_bytes: int, seen_bytes: int, *, over: bool) -> int:
    """What is expected from now on, after a process whose peak so far is `seen_bytes`. It grows at once; it shrinks when the process is
    `over`, and slowly: one run that was asked for little says little about the next."""
    if not known_bytes or seen_bytes >= known_bytes:
        return max(known_bytes, seen_bytes)
    return known_bytes - (known_bytes - seen_bytes) // FORGETS if over and seen_bytes else known_bytes


def learned_from_shortage(estimate: Estimate, *, live_bytes: int, missing_bytes: int) -> int:
    """What is expected of a model whose memory ran out while it held `live_bytes`. `missing_bytes` is what it couldn't get; 0: unknown."""
    if missing_bytes:
        return max(live_bytes + missing_bytes, estimate.learned_bytes)
    return max(int(max(live_bytes, estimate.expected_bytes) * GROWTH), estimate.learned_bytes)


_SAID = re.compile(
    r"(?:tried to allocate|out of memory allocating|requested buffer of size|allocating|allocate)\s+(\d{1,20}(?:\.\d{1,9})?)\s*([KMGT]?i?B|bytes)?",
    re.IGNORECASE,
)


def missing_in(text: str) -> int:
    """Bytes that a library says it couldn't get ("Tried to allocate 2.00 GiB"); 0 where it doesn't say."""
    found = _SAID.search(text)
    if found is None:
        return 0
    unit = (found[2] or "").lower()
    return parse_size(f"{found[1]}{'' if unit == 'bytes' else unit}")
