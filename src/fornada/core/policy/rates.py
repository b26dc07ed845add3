"""How many requests may come within a minute."""

from collections import deque

from fornada.core.names import Instant

WINDOW_S = 60.0


class Rate:
    """At most `most` within any 60 seconds: it remembers when the last ones came."""

    __slots__ = ("_times", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self._times: deque[Instant] = deque(maxlen=most)

    def wait_s(self, now: Instant) -> float:
        """How long until one more may come; 0: now."""
        times = self._times
        if len(times) < self.most:
            return 0.0
        return max(0.0, times[0] + WINDOW_S - now)

    def take(self, now: Instant) -> None:
        """One has come."""
        self._times.append(now)
