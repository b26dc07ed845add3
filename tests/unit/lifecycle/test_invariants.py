"""Any order of what can happen keeps the promises of a life.

The machine below plays everything around a life: it answers commands as the keeper, provisioning, the scheduler and the runner
would, in any order and at any time, and keeps the books that the life itself doesn't keep.
"""

# Instants are plain numbers here.
# mypy: disable-error-code="arg-type"

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fornada.core.lifecycle import events as e
from fornada.core.lifecycle.life import ModelLife, Terms
from fornada.core.lifecycle.model import step
from fornada.core.lifecycle.states import CLOSING, RESTING, WITH_PROCESS, WITH_RESERVATION, Stage, State, Wish


class Life(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.life = ModelLife(Terms(load_timeout_s=300.0, kill_s=5.0, backoff_s=1.0))
        self.now = 0.0
        self.building = self.cancelled = self.waiting = self.spawning = False
        self.process = self.reserved = self.open = self.timer = self.claimed = False
        self.asked_to_start = False
        self.waiters = set()
        self.told = set()
        self.seconds_left = None
        self.breaking = False

    def tell(self, event):
        before = self.life
        self.breaking = isinstance(event, e.Broke)
        self.life, commands = step(self.life, event)
        for command in commands:
            self.carry_out(command)
        if isinstance(event, e.Wanted):
            self.after_a_wish(before, commands)
        if before.state is State.STOPPING:
            assert self.life.state is State.STOPPING or isinstance(event, e.Exited), "what is stopping was revived"
        if self.life.state is not before.state and self.life.state in RESTING and before.state not in RESTING:
            assert any(isinstance(command, e.Announce) for command in commands), "an end that nobody was told of"

    def after_a_wish(self, before, commands):
        announced = any(isinstance(command, e.Announce) for command in commands)
        under_way = self.life.state not in RESTING
        assert announced or under_way, "a wish that comes to nothing"
        if before.state in CLOSING:
            self.asked_to_start = True

    def carry_out(self, command):
        match command:
            case e.BuildEnvironment() | e.FetchArtifacts():
                assert not self.building
                self.building = True
                self.cancelled = False
                self.asked_to_start = False
            case e.CancelProvision():
                assert self.building
                self.cancelled = True
            case e.Reserve():
                assert not self.waiting and self.reserved == (self.life.state is State.ROUSED)
                self.waiting = True
            case e.Withdraw():
                assert self.waiting or self.breaking
                self.waiting = False
            case e.Claim():
                assert self.process and not self.reserved
                self.reserved = True
            case e.Release():
                assert self.reserved or self.breaking, "released twice"
                assert not self.process and not self.spawning, "released before the end was proven"
                self.reserved = False
            case e.Spawn():
                assert self.reserved, "spawned before memory was reserved"
                assert not self.spawning and not self.process, "a second process"
                self.spawning = True
            case e.OpenToWork():
                assert self.process and not self.open
                self.open = True
            case e.CloseToWork():
                assert self.open or self.breaking or self.life.state is State.DRAINING
                self.open = False
            case e.CutOff():
                assert not self.open, "callers cut off while new ones may still come"
            case e.Sleep() | e.Wake():
                assert self.process and not self.open
            case e.Ask() | e.Terminate() | e.Kill():
                assert self.process
            case e.SetTimer():
                assert command.seconds >= 0
                self.timer = True
            case e.ClearTimer():
                self.timer = False
            case e.Announce():
                self.asked_to_start &= self.life.state is not State.FAILED
                self.told |= self.waiters
                self.waiters.clear()

    # ---- us

    @rule()
    def a_bug_of_ours_comes_up(self):
        self.asked_to_start = False
        left = e.Left.PROCESS if self.process else e.Left.WORK if self.building or self.spawning else e.Left.NOTHING
        self.tell(e.Broke(self.now, "KeyError", left))
        if left is e.Left.NOTHING:
            assert self.life.state is State.FAILED
        else:
            assert self.life.ending.kind is e.FailureKind.INTERNAL and self.life.state in CLOSING

    # ---- people

    @rule()
    def somebody_wants_it(self):
        self.waiters.add(len(self.told) + len(self.waiters))
        self.tell(e.Wanted(self.now))

    @rule()
    def it_is_deployed(self):
        self.tell(e.Prepare())

    @rule(grace_s=st.sampled_from([0.0, 2.0, 30.0]))
    def nobody_wants_it(self, grace_s):
        self.asked_to_start = False
        self.tell(e.Unwanted(self.now, grace_s))

    @rule()
    def it_is_reset(self):
        self.tell(e.Reset())

    @rule(seconds=st.floats(0, 100))
    def time_passes(self, seconds):
        self.now += seconds

    # ---- provisioning

    @precondition(lambda self: self.building)
    @rule(works=st.booleans())
    def provisioning_ends(self, works):
        self.building = False
        if self.cancelled:
            self.tell(e.ProvisionCancelled())
        elif not works:
            self.tell(e.ProvisionFailed(self.now, "no network"))
        else:
            self.tell(e.Built() if self.life.state is State.BUILDING else e.Fetched())

    @precondition(lambda self: self.building and self.cancelled)
    @rule()
    def provisioning_ends_before_it_hears_of_its_cancellation(self):
        self.building = False
        self.tell(e.Fetched())

    # ---- the scheduler

    @precondition(lambda self: self.waiting)
    @rule(fits=st.booleans())
    def the_scheduler_answers(self, fits):
        self.waiting = False
        self.reserved = fits or self.life.state is State.ROUSED  # who sleeps keeps what it holds asleep
        self.tell(e.Granted() if fits else e.NeverFits(self.now, "9 GiB of 8 GiB"))

    # ---- keeper and runner

    @precondition(lambda self: self.spawning)
    @rule(works=st.booleans())
    def the_keeper_answers(self, works):
        self.spawning = False
        self.process = works
        self.tell(e.Spawned() if works else e.SpawnFailed(self.now, "no processes left"))

    @precondition(lambda self: self.life.state in RESTING and not self.reserved)
    @rule()
    def a_process_is_adopted(self):
        self.process = True
        self.tell(e.Adopted())

    @precondition(lambda self: self.process and self.life.state in (State.LOADING, State.WARMING, State.STOPPING))
    @rule(event=st.sampled_from([e.Progressed(warming=False), e.Progressed(warming=True), e.Loaded(), e.LoadFailed("broken")]))
    def the_runner_reports_on_its_load(self, event):
        self.tell(event)

    @precondition(lambda self: self.life.state in (State.READY, State.DROWSY, State.DRAINING))
    @rule()
    def the_runner_answers(self):
        self.tell(e.Served())

    @precondition(lambda self: self.life.state in (State.DROWSY, State.DRAINING))
    @rule(stuck=st.booleans())
    def nobody_waits_for_the_runner_any_more(self, stuck):
        self.tell(e.Emptied(self.now, stuck))

    @rule(grace_s=st.sampled_from([0.0, 30.0]))
    def it_is_to_sleep(self, grace_s):
        self.tell(e.SleepWanted(grace_s))

    @precondition(lambda self: self.life.state in (State.FALLING_ASLEEP, State.STOPPING))
    @rule(well=st.booleans())
    def it_sleeps_or_fails_to(self, well):
        wish = self.life.wish
        self.tell(e.Slept() if well else e.SleepFailed("it raised"))
        assert well or self.life.wish is wish, "who waits for it is forgotten"

    @precondition(lambda self: self.life.state in (State.WAKING, State.STOPPING))
    @rule(well=st.booleans())
    def it_wakes_or_fails_to(self, well):
        waking = self.life.state is State.WAKING
        self.tell(e.Woken() if well else e.SleepFailed("it raised"))
        if waking and not well:
            assert self.life.wish is Wish.RUNNING, "who waits for it is forgotten"

    @precondition(lambda self: self.life.state in (State.LOADING, State.WARMING))
    @rule(event=st.sampled_from([e.Slept(), e.FoundHalfway(waking=False), e.FoundHalfway(waking=True)]))
    def an_adopted_runner_is_asleep_or_on_its_way(self, event):
        self.tell(event)

    @precondition(lambda self: self.process)
    @rule()
    def the_runner_breaks_the_rules(self):
        self.tell(e.Faulted("nonsense"))

    @precondition(lambda self: self.process)
    @rule(grace_s=st.sampled_from([0.0, 30.0]))
    def the_process_hangs(self, grace_s):
        before = self.life
        self.tell(e.Hung(self.now, "it hung", grace_s))
        assert self.life.wish is before.wish, "who waits for it is forgotten"
        if before.state is State.DRAINING:
            assert self.life.ending.kind is before.ending.kind, "an end that was wanted counts as a fault"
        if before.state in (State.READY, State.DROWSY):
            assert self.life.ending.kind is e.FailureKind.HUNG, "it was told for nothing: nobody tells it again"
        if self.life.state is State.DRAINING:
            assert self.timer and grace_s, "nothing would end it"

    @precondition(lambda self: self.life.ending.kind is e.FailureKind.HUNG)
    @rule(stuck=st.booleans(), times_out=st.booleans())
    def what_hangs_is_killed_once_it_can_answer_nobody(self, stuck, times_out):
        if self.life.state is State.DRAINING:
            self.tell(e.TimeUp() if times_out else e.Emptied(self.now, stuck=True))
            assert self.life.stage is Stage.KILLED

    @precondition(lambda self: self.timer)
    @rule()
    def time_is_up(self):
        self.timer = False
        self.tell(e.TimeUp())

    @precondition(lambda self: self.process)
    @rule(blameless=st.booleans())
    def the_process_ends(self, blameless):
        self.process = False
        before = self.life
        self.tell(e.Exited(self.now, "exit code 1", blameless))
        if blameless and before.state is not State.STOPPING:
            assert (self.life.failures, self.life.crashes) == (before.failures, before.crashes), "it paid for another's end"

    # ---- what always holds

    @invariant()
    def the_books_agree_with_the_state(self):
        state = self.life.state
        assert self.process == (state in WITH_PROCESS)
        assert self.reserved == (state in WITH_RESERVATION)
        assert self.open == (state is State.READY)
        assert self.waiting == (state in (State.WAITING, State.ROUSED))
        assert self.spawning == (state in (State.SPAWNING, State.UNWANTED))
        assert self.building == (state in (State.BUILDING, State.FETCHING, State.CANCELLING))

    @invariant()
    def a_process_that_is_to_stop_has_a_timer_until_it_is_killed(self):
        if self.life.state is State.STOPPING:
            assert self.timer == (self.life.stage is not Stage.KILLED)
        if self.life.state in (State.LOADING, State.WARMING, State.DROWSY, State.FALLING_ASLEEP, State.WAKING, State.DRAINING):
            assert self.timer

    @invariant()
    def who_waits_has_something_to_wait_for(self):
        assert not self.waiters or self.life.state not in RESTING

    @invariant()
    def who_has_given_its_memory_back_stands_in_line_for_it(self):
        assert self.life.state is not State.ASLEEP or self.life.wish is not Wish.RUNNING

    @invariant()
    def a_wish_during_the_end_is_remembered(self):
        if self.asked_to_start:
            assert self.life.state not in RESTING


TestLife = Life.TestCase
