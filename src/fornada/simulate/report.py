"""What came of a simulated run."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from fornada.core.names import Instant, ModelName


@dataclass(frozen=True, slots=True)
class Answered:
    """A request that was served."""

    at: Instant
    model: ModelName
    waited_s: float
    """Until its model began with it."""
    took_s: float
    """Until its answer."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What was decided, as it would stand in a node's log."""

    at: Instant
    what: str
    """start | wake | evict | sleep | prefetch"""
    key: str


@dataclass(slots=True)
class Report:
    """Of one run."""

    answered: list[Answered] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    """By reason: predicted | bound | crashed."""
    choices: list[Choice] = field(default_factory=list)
    swaps: list[tuple[float, float]] = field(default_factory=list)
    """From and until of every step of every ladder."""
    starts: int = 0

    @property
    def swap_s(self) -> float:
        """Seconds of all steps together: each swap weighs what it costs."""
        return sum(until - since for since, until in self.swaps)

    @property
    def swap_share(self) -> float:
        """The part of the time in which at least one model is on its way up or down."""
        covered, reached = 0.0, 0.0
        for since, until in sorted(self.swaps):
            covered += max(0.0, until - max(since, reached))
            reached = max(reached, until)
        return covered / max(self.duration_s, reached) if self.swaps else 0.0

    @property
    def duration_s(self) -> float:
        """Until the last answer."""
        return max((one.at + one.took_s for one in self.answered), default=0.0)

    @property
    def longest_wait_s(self) -> float:
        return max((one.waited_s for one in self.answered), default=0.0)

    def percentile(self, share: float) -> float:
        """Seconds from a request to its answer that `share` of them stayed below."""
        return percentile([one.took_s for one in self.answered], share)

    def line(self) -> str:
        """For people."""
        refused = " ".join(f"{reason}={count}" for reason, count in sorted(self.refused.items())) or "none"
        return (
            f"answered {len(self.answered)}, refused {refused}; p50 {self.percentile(0.5):.2f} s, p95 {self.percentile(0.95):.2f} s, "
            f"p99 {self.percentile(0.99):.2f} s, longest wait {self.longest_wait_s:.2f} s; {len(self.swaps)} steps, {self.swap_s:.0f} s of "
            f"swapping, {self.swap_share:.0%} of the time, {self.starts} starts"
        )


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of them don't exceed; 0 of none."""
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)] if ordered else 0.0
