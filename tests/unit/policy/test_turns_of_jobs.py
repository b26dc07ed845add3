"""Whose job has the next free place."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fornada.core.jobs import JobId
from fornada.core.names import AccountId
from fornada.core.policy.turns_of_jobs import Turn, Turns

A, B = AccountId("a"), AccountId("b")
ONE, TWO, THREE = JobId("1"), JobId("2"), JobId("3")


def drained(turns: Turns) -> list[Turn]:
    return [turns.pop() for _ in range(len(turns))]


def test_one_job_goes_by_its_order():
    turns = Turns({})
    turns.add(ONE, A, [3, 1, 2], created=0.0)
    assert [turn.number for turn in drained(turns)] == [3, 1, 2]
    with pytest.raises(KeyError):
        turns.pop()


def test_of_one_account_the_older_job_is_done_first_but_for_each_sixteenth_turn():
    turns = Turns({})
    turns.add(TWO, A, range(30), created=2.0)
    turns.add(ONE, A, range(30), created=1.0)
    first = Counter(turns.pop().job for _ in range(30))
    assert first[ONE] >= 28


def test_a_small_job_of_another_account_does_not_wait_for_a_large_one():
    turns = Turns({})
    turns.add(ONE, A, range(1000), created=1.0)
    turns.add(TWO, B, range(3), created=2.0)
    jobs = [turns.pop().job for _ in range(8)]
    assert jobs.count(TWO) == 3


def test_two_accounts_share_by_weight():
    turns = Turns({"a": 3.0})
    turns.add(ONE, A, range(400), created=1.0)
    turns.add(TWO, B, range(400), created=1.0)
    shares = Counter(turns.pop().job for _ in range(320))
    assert shares[ONE] / shares[TWO] == pytest.approx(3.0, rel=0.35)


def test_what_is_given_back_is_next_of_its_job():
    turns = Turns({})
    turns.add(ONE, A, range(3), created=0.0)
    turn = turns.pop()
    turns.give_back(turn, A, created=0.0)
    assert [each.number for each in drained(turns)] == [0, 1, 2]
    turns.give_back(turn, A, created=0.0)
    assert drained(turns) == [turn]


@given(st.lists(st.tuples(st.sampled_from(["add", "pop", "back", "remove"]), st.sampled_from([ONE, TWO, THREE]), st.integers(1, 4))))
def test_nothing_is_lost_and_nothing_comes_twice(steps):
    turns = Turns({})
    waiting: Counter[Turn] = Counter()
    popped: list[Turn] = []
    next_number = 0
    for what, job, count in steps:
        account = A if job == ONE else B
        if what == "add":
            numbers = range(next_number, next_number + count)
            next_number += count
            turns.add(job, account, numbers, created=1.0)
            waiting.update(Turn(job, number) for number in numbers)
        elif what == "pop" and len(turns):
            popped.append(turns.pop())
            waiting.subtract([popped[-1]])
        elif what == "back" and popped:
            turn = popped.pop()
            turns.give_back(turn, A if turn.job == ONE else B, created=1.0)
            waiting.update([turn])
        elif what == "remove":
            turns.remove(job)
            waiting = Counter({turn: number for turn, number in waiting.items() if turn.job != job})
        assert len(turns) == waiting.total()
    assert Counter(drained(turns)) == +waiting
