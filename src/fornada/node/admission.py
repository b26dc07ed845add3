"""The line of requests that wait for one version of a model."""

from collections.abc import Iterator, Mapping

from fornada.core.names import AccountId, Instant
from fornada.core.policy.fairness import FairQueue
from fornada.core.requests import Priority
from fornada.node.call import Call


class Line:
    """Accounts have their turns by weight, jobs of the batch API are after everybody else. Whoever leaves is out at once."""

    def __init__(self, weights: Mapping[str, float] | None = None) -> None:
        self._calls: dict[int, Call] = {}
        self._interactive = FairQueue(weights or {})
        self._jobs = FairQueue(weights or {})

    def __len__(self) -> int:
        return len(self._calls)

    def __iter__(self) -> Iterator[Call]:
        """In the order in which they came, jobs last."""
        yield from [self._calls[number] for number in [*self._interactive, *self._jobs]]

    def add(self, call: Call) -> None:
        request = call.request
        self._calls[call.id] = call
        self._of(call).add(call.id, request.account, priority=int(request.priority), deadline=call.deadline)

    def discard(self, call: Call) -> bool:
        """Whether it was there."""
        self._calls.pop(call.id, None)
        return self._of(call).discard(call.id)

    def pop(self) -> Call:
        """The next one. Raises KeyError where nobody waits."""
        return self._calls.pop((self._interactive if len(self._interactive) else self._jobs).pop())

    def oldest(self) -> Instant | None:
        """Since when the one waits who has waited longest."""
        heads = [self._calls[number].since for queue in (self._interactive, self._jobs) if (number := queue.eldest()) is not None]
        return min(heads, default=None)

    def before(self, account: AccountId, priority: Priority) -> int:
        """About how many have their turn before one more of the account."""
        if priority is Priority.JOB:
            return len(self._interactive) + self._jobs.before(account)
        return self._interactive.before(account)

    def weakest(self, account: AccountId, priority: Priority) -> Call | None:
        """Who gives way to one more of the account where there is no place left, if anybody does."""
        if priority is Priority.JOB:
            number = self._jobs.weakest(account)
        else:
            number = self._jobs.last() if len(self._jobs) else self._interactive.weakest(account)
        return self._calls[number] if number is not None else None

    def by_account(self) -> dict[str, int]:
        """How many of each wait."""
        waiting = self._interactive.waiting()
        for account, count in self._jobs.waiting().items():
            waiting[account] = waiting.get(account, 0) + count
        return waiting

    def _of(self, call: Call) -> FairQueue:
        return self._jobs if call.request.priority is Priority.JOB else self._interactive
