"""Whose job has the next free place at a model: accounts by weight, the jobs of one account in the order in which they came."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from fornada.core.jobs import JobId
from fornada.core.names import AccountId
from fornada.core.policy.fairness import FairQueue


class Turn(NamedTuple):
    """An item whose turn it is."""

    job: JobId
    number: int


@dataclass(slots=True)
class _Waiting:
    id: JobId
    account: AccountId
    created: float
    place: int
    """Its number in the queue."""
    numbers: deque[int] = field(default_factory=deque)
    """Of its items, the next one first."""


class Turns:
    """Of the items that wait for one model. A job has one place in the queue, whose turn is that of its next item."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        """`weights` of accounts."""
        self._queue = FairQueue(weights)
        self._jobs: dict[JobId, _Waiting] = {}
        self._by_place: dict[int, _Waiting] = {}
        self._count = 0
        self._next_place = 0

    def __len__(self) -> int:
        return self._count

    def add(self, job: JobId, account: AccountId, numbers: Iterable[int], *, created: float) -> None:
        """Items of a job that wait for the model from now on. `created` says which of an account's jobs comes first."""
        waiting = self._waiting(job, account, created)
        before = len(waiting.numbers)
        waiting.numbers.extend(numbers)
        self._count += len(waiting.numbers) - before

    def give_back(self, turn: Turn, account: AccountId, *, created: float) -> None:
        """An item that had its turn waits again, before the others of its job."""
        self._waiting(turn.job, account, created).numbers.appendleft(turn.number)
        self._count += 1

    def pop(self) -> Turn:
        """Raises KeyError where nothing waits."""
        waiting = self._by_place[self._queue.pop()]
        number = waiting.numbers.popleft()
        self._count -= 1
        if waiting.numbers:
            self._enter(waiting)
        else:
            del self._jobs[waiting.id], self._by_place[waiting.place]
        return Turn(waiting.id, number)

    def remove(self, job: JobId) -> None:
        """None of its items waits any more."""
        waiting = self._jobs.pop(job, None)
        if waiting is not None:
            self._count -= len(waiting.numbers)
            del self._by_place[waiting.place]
            self._queue.discard(waiting.place)

    def _waiting(self, job: JobId, account: AccountId, created: float) -> _Waiting:
        waiting = self._jobs.get(job)
        if waiting is None:
            self._next_place += 1
            waiting = self._jobs[job] = self._by_place[self._next_place] = _Waiting(job, account, created, self._next_place)
            self._enter(waiting)
        return waiting

    def _enter(self, waiting: _Waiting) -> None:
        self._queue.add(waiting.place, waiting.account, priority=0, deadline=waiting.created)
