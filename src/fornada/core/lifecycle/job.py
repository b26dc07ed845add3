"""The life of one job and of its items.

    item   queued ⇄ running → completed | failed
           queued, running → cancelled | expired

    job    queued → running → completed | failed
           queued, running → cancelled | expired

An item that is running goes back to `queued` when its try was nobody's fault of its own: a runner that was killed, a node without room.
A job runs from its first item's beginning on, and ends with its last item, or when it is stopped; then its items end with it. An end is
for good: what comes later is refused, so that no item has two answers. Who keeps the books on disk writes an end before it tells the life.

Unlike a model's life this one is changed in place: a job may have 50,000 items, and a copy of them for each event would take as long as
the items.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import assert_never

from fornada.core.jobs import ENDED, Status


@dataclass(frozen=True, slots=True)
class Begun:
    """An item is being worked on."""

    number: int


@dataclass(frozen=True, slots=True)
class Returned:
    """Its try came to nothing; it waits again."""

    number: int


@dataclass(frozen=True, slots=True)
class Done:
    """Its outcome is kept."""

    number: int
    status: Status
    """COMPLETED or FAILED."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """The job is to go no further, and that is kept."""

    status: Status
    """CANCELLED or EXPIRED."""


Event = Begun | Returned | Done | Stopped


@dataclass(frozen=True, slots=True)
class NoteBeginning:
    """Keep that the job is running."""


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Nobody waits for these items any more: end the work on them."""

    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Conclude:
    """Keep that the job has ended so."""

    status: Status


Command = NoteBeginning | Withdraw | Conclude


class IllegalTransition(Exception):
    """A bug of who drives the life."""


class JobLife:
    """Of a job with these items. Changed by `tell` alone."""

    def __init__(self, items: Iterable[Status], *, status: Status = Status.QUEUED) -> None:
        """As they are kept: an item that ran when its process ended is queued again. Raises IllegalTransition."""
        self._items = list(items)
        self.status = status
        if not self._items or Status.RUNNING in self._items or status in ENDED:
            raise IllegalTransition(f"a job of {len(self._items)} items can't begin as {status}, nor with a running item")
        self._counts = {each: self._items.count(each) for each in Status}

    @property
    def items(self) -> Sequence[Status]:
        return tuple(self._items)

    def item(self, number: int) -> Status:
        return self._items[number]

    def count(self, status: Status) -> int:
        """How many items are so."""
        return self._counts[status]

    def due(self) -> tuple[Command, ...]:
        """What a process that ended had still to do: to conclude a job whose items have all ended."""
        return () if self.status in ENDED else self._concluded()

    def tell(self, event: Event) -> tuple[Command, ...]:
        """Raises IllegalTransition, and changes nothing then."""
        if self.status in ENDED:
            raise IllegalTransition(f"{event} for a job that is {self.status}")
        match event:
            case Begun(number):
                self._move(event, number, Status.QUEUED, Status.RUNNING)
                if self.status is Status.RUNNING:
                    return ()
                self.status = Status.RUNNING
                return (NoteBeginning(),)
            case Returned(number):
                self._move(event, number, Status.RUNNING, Status.QUEUED)
                return ()
            case Done(number, status):
                if status not in (Status.COMPLETED, Status.FAILED):
                    raise IllegalTransition(f"an item can't be done as {status}")
                self._move(event, number, Status.RUNNING, status)
                return self._concluded()
            case Stopped(status):
                return self._stop(status)
            case _:
                assert_never(event)

    def _stop(self, status: Status) -> tuple[Command, ...]:
        if status not in (Status.CANCELLED, Status.EXPIRED):
            raise IllegalTransition(f"a job can't be stopped as {status}")
        running = tuple(number for number, each in enumerate(self._items) if each is Status.RUNNING)
        self._items = [each if each in ENDED else status for each in self._items]
        self._counts = {each: self._items.count(each) for each in Status}
        self.status = status
        return (Withdraw(running),) if running else ()

    def _concluded(self) -> tuple[Command, ...]:
        if self._counts[Status.QUEUED] or self._counts[Status.RUNNING]:
            return ()
        self.status = Status.COMPLETED if self._counts[Status.COMPLETED] else Status.FAILED
        return (Conclude(self.status),)

    def _move(self, event: Event, number: int, before: Status, after: Status) -> None:
        if not 0 <= number < len(self._items) or self._items[number] is not before:
            found = self._items[number] if 0 <= number < len(self._items) else "no item of it"
            raise IllegalTransition(f"{event}: {number} is {found}, not {before}")
        self._items[number] = after
        self._counts[before] -= 1
        self._counts[after] += 1
