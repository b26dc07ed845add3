"""The order in which several accounts' requests to one model are worked on."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fornada.core.policy.fairness import ELDEST_TURN, REMEMBERED_MOST, FairQueue

NEVER = float("inf")


def queue_of(*accounts: str, weights: dict[str, float] | None = None) -> FairQueue:
    """Request n is of the n-th account."""
    queue = FairQueue(weights or {})
    for number, account in enumerate(accounts):
        queue.add(number, account, priority=1, deadline=NEVER)
    return queue


def drained(queue: FairQueue) -> list[int]:
    return [queue.pop() for _ in range(len(queue))]


def test_of_one_account_who_came_first_is_first():
    assert drained(queue_of(*["a"] * 40)) == list(range(40))


def test_one_request_of_another_account_waits_for_one_of_the_flood():
    assert drained(queue_of(*["flood"] * 40, "b")).index(40) <= 1


def test_two_that_always_wait_have_their_turns_by_weight():
    queue = queue_of(*["a"] * 400, *["b"] * 400, weights={"a": 3.0})
    turns = Counter("a" if queue.pop() < 400 else "b" for _ in range(320))
    assert turns["a"] / turns["b"] == pytest.approx(3.0, rel=0.35)  # each 16th turn is the eldest's, which is always one of a's here


def test_who_had_nothing_waiting_has_saved_up_nothing():
    queue = queue_of(*["a"] * 20)
    for _ in range(10):
        queue.pop()
    for number in range(100, 120):
        queue.add(number, "b", priority=1, deadline=NEVER)
    turns = [queue.pop() >= 100 for _ in range(8)]
    assert 3 <= sum(turns) <= 5


def test_who_comes_back_at_once_has_no_more_turns_than_who_waits_in_numbers():
    queue = queue_of(*["many"] * 100)
    ones = 0
    queue.add(1000, "one", priority=1, deadline=NEVER)
    for turn in range(60):
        number = queue.pop()
        if number >= 1000:
            ones += 1
            queue.add(1001 + turn, "one", priority=1, deadline=NEVER)
    assert 24 <= ones <= 31


def test_within_an_account_priority_comes_first_then_the_deadline_then_who_was_first():
    queue = FairQueue({})
    for number, (priority, deadline) in enumerate([(1, 9.0), (2, 1.0), (1, 5.0), (0, NEVER), (1, 5.0)]):
        queue.add(number, "a", priority=priority, deadline=deadline)
    assert drained(queue) == [3, 2, 4, 0, 1]


def test_a_priority_wins_nothing_over_another_account():
    queue = queue_of(*["a"] * 4)
    for number in range(10, 30):
        queue.add(number, "b", priority=0, deadline=0.0)
    assert [number for number in drained(queue)[:8] if number < 10] == [0, 1, 2, 3]


def test_low_priority_and_made_up_accounts_starve_nobody():
    queue = queue_of("a")
    queue.add(1, "b", priority=2, deadline=NEVER)
    queue.add(2, "b", priority=0, deadline=NEVER)
    order = []
    for turn in range(3 * ELDEST_TURN):
        order.append(queue.pop())
        queue.add(100 + 2 * turn, f"new-{turn}", priority=0, deadline=0.0)
        queue.add(101 + 2 * turn, "b", priority=0, deadline=0.0)
    assert {0, 1, 2} <= set(order)


def test_who_has_most_waiting_gives_way_and_the_last_of_it_in_turn():
    queue = queue_of(*["flood"] * 10, "b")
    assert queue.weakest("b") == 9
    assert queue.weakest("flood") is None
    queue.add(50, "flood", priority=2, deadline=NEVER)
    assert queue.weakest("c") == 50
    even = queue_of("a", "b")
    assert even.weakest("c") is None


def test_weights_count_where_somebody_has_to_give_way():
    queue = queue_of(*["large"] * 6, *["small"] * 3, weights={"large": 4.0})
    assert queue.weakest("other") == 8
    assert queue.weakest("small") is None


def test_about_as_many_come_before_as_do():
    queue = queue_of(*["flood"] * 40, *["b"] * 3)
    assert queue.before("c") == 2
    assert queue.before("b") == 3 + 4
    assert queue.before("flood") == 43


@given(st.lists(st.sampled_from("abc"), max_size=60), st.lists(st.integers(0, 59), max_size=30))
def test_everybody_who_stays_comes_out_once(accounts, leaving):
    queue = queue_of(*accounts)
    gone = {number for number in leaving if queue.discard(number)}
    assert sorted(drained(queue)) == [number for number in range(len(accounts)) if number not in gone]


@given(
    st.dictionaries(st.sampled_from("abcd"), st.floats(0.25, 4.0), min_size=4, max_size=4),
    st.lists(st.sampled_from("abcd"), min_size=0, max_size=40),
)
def test_accounts_that_always_wait_get_their_shares_within_a_turn_each_but_for_the_eldests(weights, before):
    queue = queue_of(*before, *"abcd" * 200, weights=weights)
    accounts = [*before, *"abcd" * 200]
    turns = Counter(accounts[queue.pop()] for _ in range(160))
    eldest = 160 // ELDEST_TURN
    for account in "abcd":
        share = (160 - eldest) * weights[account] / sum(weights.values())
        assert share - eldest - 4 * max(1.0, weights[account] / min(weights.values())) <= turns[account]


class Waiting(RuleBasedStateMachine):
    """Anything in any order, against what must always hold."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = FairQueue({"a": 2.0})
        self.there: dict[int, tuple[str, tuple[int, float, int]]] = {}
        self.passed: dict[int, int] = {}
        self.number = 0

    @rule(account=st.sampled_from("abcdef"), priority=st.integers(0, 2), deadline=st.sampled_from([1.0, 2.0, NEVER]))
    def comes(self, account, priority, deadline):
        self.number += 1
        self.queue.add(self.number, account, priority=priority, deadline=deadline)
        self.there[self.number] = account, (priority, deadline, self.number)
        self.passed[self.number] = 0

    @precondition(lambda self: self.there)
    @rule(data=st.data())
    def leaves(self, data):
        number = data.draw(st.sampled_from(sorted(self.there)))
        assert self.queue.discard(number) and not self.queue.discard(number)
        del self.there[number]

    @precondition(lambda self: self.there)
    @rule()
    def turn(self):
        eldest, number = min(self.there), self.queue.pop()
        account, rank = self.there.pop(number)
        if number != eldest:
            mine = [other for of, other in self.there.values() if of == account]
            assert all(rank < other for other in mine), "the most urgent of the account"
        for other in self.there:
            self.passed[other] += 1
        elder = sum(other < eldest for other in self.there)
        assert self.passed[number] <= ELDEST_TURN * (elder + 2 + number), "a bound by those who came before"

    @invariant()
    def the_sums_are_right(self):
        assert len(self.queue) == len(self.there) and list(self.queue) == sorted(self.there)
        assert self.queue.waiting() == dict(Counter(account for account, _ in self.there.values()))
        assert self.queue.eldest() == min(self.there, default=None)

    @invariant()
    def little_is_kept(self):
        assert len(self.queue._next) <= 2 * len(self.queue.waiting()) + ELDEST_TURN + 1
        assert sum(len(known.ranks) for known in self.queue._accounts.values()) <= 2 * len(self.there) + 6 * (ELDEST_TURN + 1)


TestWaiting = Waiting.TestCase


def test_accounts_that_come_and_go_leave_nothing():
    queue = queue_of("stays")
    for number in range(1, 5 * REMEMBERED_MOST):
        queue.add(number, f"account-{number}", priority=1, deadline=NEVER)
        if number % 3:
            queue.discard(number)
        elif len(queue) > 4:
            queue.pop()
    assert len(queue._accounts) <= REMEMBERED_MOST + len(queue) + 1
    drained(queue)
    assert not queue._accounts and not queue._next
