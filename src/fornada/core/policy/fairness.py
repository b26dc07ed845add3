"""In which order the requests of several accounts are worked on, where they wait for the same model.

Between accounts: start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM 1996), each request counting as one. An account that has requests
waiting gets its share by weight however many another one sends; one that is alone gets everything; one that had none waiting has saved up
nothing. Within an account: priority, then the earliest deadline, then who came first, so that nobody gains over other accounts by what he
says of his own.

Each ELDEST_TURN-th turn is that of whoever has waited longest, whatever the rest says: low priorities, and everybody else where accounts are
made up by the thousand, wait a bounded number of turns.
"""

import heapq
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

ELDEST_TURN = 16
REMEMBERED_MOST = 1024
"""Accounts without a waiting request whose last turn is still held against them. Beyond it the ones that had least of it are forgotten."""

Rank = tuple[int, float, int]
"""Priority (less is more urgent), deadline, order of arrival."""


@dataclass(slots=True)
class _Account:
    weight: float
    start: float = 0.0
    """The virtual time at which its next request's turn is."""
    entered: int = 0
    """The order in which accounts of the same virtual time have their turn."""
    ranks: list[tuple[Rank, int]] = field(default_factory=list)
    """A heap. Those who have left are still in it, until they would be next or are too many."""
    waiting: int = 0


class FairQueue:
    """Of numbers that stand for requests. Everything but `weakest` takes logarithmic time at most, over many calls."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        """`weights` of accounts, more than 0; 1 where nothing is said."""
        self._weights = weights
        self._of: OrderedDict[int, tuple[str, Rank]] = OrderedDict()
        """Who waits, in the order of arrival."""
        self._accounts: dict[str, _Account] = {}
        self._next: list[tuple[float, int, str]] = []
        """A heap of accounts by their turn, with entries that hold no more."""
        self._active = 0
        self._now = 0.0
        """Virtual time: the turn that was taken last."""
        self._order = 0
        self._turns = 0

    def __len__(self) -> int:
        return len(self._of)

    def __iter__(self) -> Iterator[int]:
        """In the order of arrival."""
        return iter(self._of)

    def __contains__(self, number: int) -> bool:
        return number in self._of

    def add(self, number: int, account: str, *, priority: int, deadline: float) -> None:
        self._order += 1
        rank = (priority, deadline, self._order)
        self._of[number] = account, rank
        known = self._accounts.get(account)
        if known is None:
            self._forget_some()
            known = self._accounts[account] = _Account(self._weights.get(account, 1.0))
        if not known.waiting:
            known.start = max(known.start, self._now)
            self._active += 1
            self._enter(account, known)
        heapq.heappush(known.ranks, (rank, number))
        known.waiting += 1

    def discard(self, number: int) -> bool:
        """Whether it was there."""
        found = self._of.pop(number, None)
        if found is None:
            return False
        known = self._accounts[found[0]]
        known.waiting -= 1
        if not known.waiting:
            known.ranks.clear()
            self._rests(found[0], known)
        elif len(known.ranks) > 2 * known.waiting + ELDEST_TURN:
            known.ranks = [entry for entry in known.ranks if entry[1] in self._of]
            heapq.heapify(known.ranks)
        self._tidy()
        return True

    def pop(self) -> int:
        """Whose turn it is. Raises KeyError where nobody waits."""
        if not self._of:
            raise KeyError("nobody waits")
        self._turns += 1
        if self._turns % ELDEST_TURN == 0:
            number = next(iter(self._of))
            account = self._of[number][0]
        else:
            account = self._turn()
            number = self._head(self._accounts[account])
        known = self._accounts[account]
        self._now = max(self._now, min(known.start, self._accounts[self._turn()].start))
        known.start += 1.0 / known.weight
        self.discard(number)
        if known.waiting:
            self._enter(account, known)
        if not self._of:
            # Nobody is to be held to turns that nobody waited for.
            self._accounts.clear()
            self._next.clear()
            self._now = 0.0
        return number

    def eldest(self) -> int | None:
        """Who came first of those who wait."""
        return next(iter(self._of), None)

    def waiting(self) -> dict[str, int]:
        """Requests of each account that has any."""
        return {account: known.waiting for account, known in self._accounts.items() if known.waiting}

    def before(self, account: str) -> int:
        """About how many of those who wait have their turn before one that `account` would add now."""
        known = self._accounts.get(account)
        weight = self._weights.get(account, 1.0)
        rounds = ((known.waiting if known is not None else 0) + 1) / weight
        others = (min(other.waiting, int(rounds * other.weight)) for other in self._accounts.values() if other is not known)
        return (known.waiting if known is not None else 0) + sum(others)

    def last(self) -> int | None:
        """Who came last of those who wait."""
        return next(reversed(self._of), None)

    def weakest(self, account: str) -> int | None:
        """Who would give way to one more of `account` if there were no place left: the last in turn of the account that has most waiting by
        its weight, where that is more than `account` would have then. None: it has no claim to anybody's place."""
        known = self._accounts.get(account)
        own = ((known.waiting if known is not None else 0) + 1) / self._weights.get(account, 1.0)
        most = max(
            (other for other in self._accounts.values() if other.waiting), key=lambda other: other.waiting / other.weight, default=None
        )
        if most is None or most is known or most.waiting / most.weight <= own:
            return None
        return max(entry for entry in most.ranks if entry[1] in self._of)[1]

    # ---- within

    def _enter(self, account: str, known: _Account) -> None:
        self._order += 1
        known.entered = self._order
        heapq.heappush(self._next, (known.start, known.entered, account))

    def _rests(self, account: str, known: _Account) -> None:
        self._active -= 1
        if known.start <= self._now:
            del self._accounts[account]  # it owes nothing

    def _turn(self) -> str:
        """The account that is next."""
        while True:
            start, entered, account = self._next[0]
            known = self._accounts.get(account)
            if known is not None and known.waiting and (known.start, known.entered) == (start, entered):
                return account
            heapq.heappop(self._next)

    def _head(self, known: _Account) -> int:
        while known.ranks[0][1] not in self._of:
            heapq.heappop(known.ranks)
        return known.ranks[0][1]

    def _tidy(self) -> None:
        if len(self._next) > 2 * self._active + ELDEST_TURN:
            waiting = [(known.start, known.entered, account) for account, known in self._accounts.items() if known.waiting]
            heapq.heapify(waiting)
            self._next = waiting

    def _forget_some(self) -> None:
        if len(self._accounts) - self._active < REMEMBERED_MOST:
            return
        resting = [(known.start, account) for account, known in self._accounts.items() if not known.waiting]
        for _, account in heapq.nsmallest(REMEMBERED_MOST // 2, resting):
            del self._accounts[account]
