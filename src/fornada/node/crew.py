"""What the instances of one version have in common: the line in which requests wait, and how often they come.

Whoever of them has a place free takes the next request, so that none waits while an instance has nothing to do.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from fornada.core.names import Instant
from fornada.node.admission import Line
from fornada.node.call import SENT, STREAMING, WAITING, Call
from fornada.node.link import Link
from fornada.node.worth import Asked

_LIVE = frozenset({WAITING, SENT, STREAMING})


class Member(Protocol):
    """An instance's intake."""

    @property
    def link(self) -> Link | None:
        """To its runner, while requests may go there."""

    @property
    def working(self) -> int:
        """Requests that it works on together."""

    @property
    def lanes(self) -> int:
        """Of these, the most that don't wait for one another: requests of one batch do."""

    def feed(self, now: Instant) -> None:
        """It takes from the line what it has room for."""


class Crew:
    """Of one version. With a single instance, which is the rule, nothing here costs a request anything."""

    def __init__(self, asked: Asked, *, weights: Mapping[str, float]) -> None:
        """`weights` of accounts."""
        self.line = Line(weights)
        self.asked = asked
        self.open: list[Member] = []
        """Those to which requests may go, the one that has been open longest first."""
        self.several = False
        self.jobs: list[Call] = []
        """Calls of jobs that were sent or wait, and perhaps some that are over."""

    def joined(self, member: Member) -> None:
        self.open.append(member)
        self.several = len(self.open) > 1

    def left(self, member: Member) -> None:
        if member in self.open:
            self.open.remove(member)
            self.several = len(self.open) > 1

    def freest(self) -> Link | None:
        """Where the fewest requests are, the oldest member's of several such: so that those beyond it come to rest when there is less
        to do. None where nobody has room."""
        best, fewest = None, 1 << 30
        for member in self.open:
            link = member.link
            if link is not None and link.has_room and len(link.calls) < fewest:
                best, fewest = link, len(link.calls)
        return best

    def feed(self, now: Instant) -> None:
        """Whoever has room takes from the line, those with the least to do first."""
        for member in sorted(self.open, key=_busyness) if self.several else self.open:
            if not self.line:
                return
            member.feed(now)

    def took_job(self, call: Call) -> None:
        """A job's item has come."""
        self.jobs = [*[job for job in self.jobs if job.state in _LIVE], call]

    def in_the_way(self) -> Sequence[Call]:
        """The item that was begun last, where every lane is taken; all of them where they would share a batch with whoever comes."""
        begun = [call for call in self.jobs if call.state is SENT or call.state is STREAMING]
        if not begun or not self.full:
            return ()
        return begun if self.lanes < self.working else begun[-1:]

    @property
    def full(self) -> bool:
        """Who comes now waits for somebody."""
        return self.in_flight >= self.lanes

    @property
    def asked_here(self) -> int:
        """Requests at runners or in the line that somebody waits for."""
        jobs = sum(call.state in _LIVE for call in self.jobs)
        return max(0, self.in_flight + len(self.line) - jobs)

    @property
    def working(self) -> int:
        """Requests that all together work on."""
        return sum(member.working for member in self.open)

    @property
    def lanes(self) -> int:
        """Of all together."""
        return sum(member.lanes for member in self.open)

    @property
    def in_flight(self) -> int:
        """Requests at runners."""
        return sum(_busyness(member) for member in self.open)


def _busyness(member: Member) -> int:
    return len(member.link.calls) if member.link is not None else 0
