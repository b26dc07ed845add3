"""A job's life: any order of what can happen keeps its promises, every event is handled or refused, and the usual way reads like the docs."""

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fornada.core.jobs import ENDED, Status
from fornada.core.lifecycle.job import Begun, Conclude, Done, Event, IllegalTransition, JobLife, NoteBeginning, Returned, Stopped, Withdraw

QUEUED, RUNNING, COMPLETED, FAILED, CANCELLED, EXPIRED = Status
numbers = st.integers(0, 5)


def test_the_usual_way():
    life = JobLife([QUEUED, QUEUED])
    assert life.tell(Begun(1)) == (NoteBeginning(),)
    assert life.status is RUNNING
    assert life.tell(Returned(1)) == ()
    assert life.tell(Begun(1)) == ()
    assert life.tell(Done(1, FAILED)) == ()
    assert life.tell(Begun(0)) == ()
    assert life.tell(Done(0, COMPLETED)) == (Conclude(COMPLETED),)
    assert life.items == (COMPLETED, FAILED)


def test_a_job_of_which_nothing_was_answered_has_failed():
    life = JobLife([FAILED, QUEUED], status=RUNNING)
    life.tell(Begun(1))
    assert life.tell(Done(1, FAILED)) == (Conclude(FAILED),)


@pytest.mark.parametrize("how", [CANCELLED, EXPIRED])
def test_a_stop_ends_what_has_no_end_and_leaves_what_has(how: Status):
    life = JobLife([COMPLETED, FAILED, QUEUED, QUEUED])
    life.tell(Begun(2))
    assert life.tell(Stopped(how)) == (Withdraw((2,)),)
    assert life.items == (COMPLETED, FAILED, how, how)
    assert life.status is how


def test_a_process_that_died_before_the_last_word_leaves_it_to_the_next():
    assert JobLife([COMPLETED, FAILED]).due() == (Conclude(COMPLETED),)
    assert JobLife([COMPLETED, QUEUED]).due() == ()


# Rows: an event for item 0; columns: what item 0 is. "-" is refused.
EVENTS: dict[str, Event] = {"begun": Begun(0), "returned": Returned(0), "completed": Done(0, COMPLETED), "failed": Done(0, FAILED)}
TABLE = {
    ("begun", QUEUED): RUNNING,
    ("returned", RUNNING): QUEUED,
    ("completed", RUNNING): COMPLETED,
    ("failed", RUNNING): FAILED,
}


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("before", [QUEUED, RUNNING, COMPLETED, FAILED])
def test_every_event_in_every_state_of_an_item(event: str, before: Status):
    life = JobLife([QUEUED if before is RUNNING else before, QUEUED])
    if before is RUNNING:
        life.tell(Begun(0))
    after = TABLE.get((event, before))
    if after is None:
        with pytest.raises(IllegalTransition):
            life.tell(EVENTS[event])
    else:
        life.tell(EVENTS[event])
    assert life.item(0) is (after or before)


@pytest.mark.parametrize("event", [*EVENTS.values(), Stopped(CANCELLED)])
def test_a_job_that_has_ended_is_told_nothing_more(event):
    life = JobLife([QUEUED])
    life.tell(Stopped(EXPIRED))
    with pytest.raises(IllegalTransition):
        life.tell(event)
    assert life.items == (EXPIRED,)


@pytest.mark.parametrize("event", [Begun(2), Begun(-1), Done(0, CANCELLED), Stopped(COMPLETED)])
def test_nonsense_is_refused_and_changes_nothing(event):
    life = JobLife([QUEUED, QUEUED])
    with pytest.raises(IllegalTransition):
        life.tell(event)
    assert (life.items, life.status) == ((QUEUED, QUEUED), QUEUED)


@pytest.mark.parametrize("items", [[], [RUNNING]])
def test_no_job_begins_empty_or_in_the_middle_of_an_item(items):
    with pytest.raises(IllegalTransition):
        JobLife(items)


class Life(RuleBasedStateMachine):
    """Plays who drives the life, badly: it tells anything at any time, and keeps the books that the life is to keep."""

    @initialize(items=st.lists(st.sampled_from([QUEUED, COMPLETED, FAILED]), min_size=1, max_size=6))
    def begin(self, items):
        self.life = JobLife(items)
        self.ends = {number: status for number, status in enumerate(items) if status in ENDED}
        self.concluded: list[Status] = []
        self.noted = 0
        self.carry_out(self.life.due())

    def carry_out(self, commands):
        for command in commands:
            match command:
                case Conclude(status):
                    self.concluded.append(status)
                case NoteBeginning():
                    self.noted += 1
                case Withdraw(which):
                    assert which, "a withdrawal of nothing"

    def tell(self, event):
        before = (self.life.items, self.life.status)
        try:
            commands = self.life.tell(event)
        except IllegalTransition:
            assert (self.life.items, self.life.status) == before, "a refused event changed something"
            return False
        self.carry_out(commands)
        return True

    @rule(number=numbers)
    def begun(self, number):
        self.tell(Begun(number))

    @rule(number=numbers)
    def returned(self, number):
        self.tell(Returned(number))

    @rule(number=numbers, status=st.sampled_from(Status))
    def done(self, number, status):
        if self.tell(Done(number, status)):
            assert number not in self.ends, "an item ended twice"
            self.ends[number] = status

    @rule(status=st.sampled_from(Status))
    def stopped(self, status):
        running = {number for number, each in enumerate(self.life.items) if each is RUNNING}
        try:
            commands = self.life.tell(Stopped(status))
        except IllegalTransition:
            return
        assert {number for command in commands if isinstance(command, Withdraw) for number in command.numbers} == running

    @invariant()
    def what_ended_stays_as_it_ended(self):
        for number, status in self.ends.items():
            assert self.life.item(number) is status

    @invariant()
    def counts_are_those_of_the_items(self):
        for status in Status:
            assert self.life.count(status) == list(self.life.items).count(status)

    @invariant()
    def it_has_ended_when_and_only_when_all_items_have(self):
        assert (self.life.status in ENDED) == all(item in ENDED for item in self.life.items)
        assert len(self.concluded) <= 1 and self.noted <= 1
        if self.life.status in (COMPLETED, FAILED):
            assert self.concluded == [self.life.status]
            assert (self.life.status is COMPLETED) == (COMPLETED in self.life.items)


TestLife = Life.TestCase
