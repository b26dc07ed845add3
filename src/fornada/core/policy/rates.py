"""How many requests may come within a minute, or another time."""

from collections import deque

from fornada.core.names import Instant

WINDOW_S = 60.0


class Rate:
    """At most `most` within any `window_s` seconds: it remembers when the last ones came."""

    __slots__ = ("_times", "most", "window_s")

    def __init__(self, most: int, window_s: float = WINDOW_S) -> None:
        self.most = most
        self.window_s = window_s
        self._times: deque[Instant] = deque(maxlen=most)

    def wait_s(self, now: Instant) -> float:
        """How long until one more may come; 0: now."""
        times = self._times
        if len(times) < self.most:
            return 0.0
        return max(0.0, times[0] + self.window_s - now)

    def take(self, now: Instant) -> None:
        """One has come."""
        self._times.append(now)
