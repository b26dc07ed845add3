"""What was handed out a short while ago and stays, though nothing refers to it yet: a deploy or a start is under way."""

import contextlib
import threading
import time
from collections.abc import Iterator


class Lent:
    """Names. Any thread may ask; `lend` never waits long, since nobody does more than a rename inside of `unless_lent`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._turn = threading.Lock()
        self._until: dict[str, float] = {}

    def lend(self, name: str) -> None:
        """From now on it stays for a while: whoever looks afterwards finds it whole, or gone already."""
        with self._turn:
            self._until[name] = time.monotonic() + self._seconds

    def names(self) -> frozenset[str]:
        """Those that stay now. Forgets the others."""
        with self._turn:
            now = time.monotonic()
            self._until = {name: until for name, until in self._until.items() if until > now}
            return frozenset(self._until)

    @contextlib.contextmanager
    def unless_lent(self, name: str) -> Iterator[bool]:
        """Whether it may go. It isn't lent before the block is left."""
        with self._turn:
            yield self._until.get(name, 0.0) <= time.monotonic()
