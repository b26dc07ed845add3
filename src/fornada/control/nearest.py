"""The name that somebody probably meant: of those that they may see, the one that is spelled most alike."""

import difflib
import time
from collections.abc import Callable, Iterable

LONGEST = 80
"""Characters of a name that is compared: comparing takes time by the product of both lengths."""
CUTOFF = 0.75
"""Least likeness (difflib's ratio): a letter or two in ten may differ."""
END_CUTOFF = 0.5
"""Least likeness of the last segments where names are alike as a whole: the account that they share says nothing about what was meant."""
SHARE = 0.05
"""Of this process's time at most, beyond BURST_S: names are made up faster than they are compared with a thousand others."""
BURST_S = 0.05


class Nearest:
    """Suggestions within a budget of time; beyond it there are none."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._left_s = BURST_S
        self._at = clock()

    def find(self, name: str, known: Callable[[], Iterable[str]]) -> str:
        """The known name most like `name`, empty where none is. `known` isn't called where the budget is used up."""
        began = self._clock()
        self._left_s = min(BURST_S, self._left_s + (began - self._at) * SHARE)
        self._at = began
        if self._left_s <= 0 or len(name) > LONGEST:
            return ""
        found = nearest(name, known())
        self._left_s -= self._clock() - began
        return found


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name most like `name`: as a whole, else in its last segment, which many write alone. Empty where none is."""
    whole = {text.lower(): text for text in known}
    for alike in difflib.get_close_matches(name.lower(), whole, n=5, cutoff=CUTOFF):
        if difflib.SequenceMatcher(None, _end(alike), _end(name)).ratio() >= END_CUTOFF:
            return whole[alike]
    ends = {_end(text): text for text in reversed(whole.values())}  # of several the first one
    close = difflib.get_close_matches(_end(name), ends, n=1, cutoff=CUTOFF)
    return ends[close[0]] if close else ""


def _end(name: str) -> str:
    return name.rsplit("/", 1)[-1].lower()
