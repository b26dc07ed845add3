"""The life of a model version, told as the docs tell it."""

# Instants are plain numbers here.
# mypy: disable-error-code="arg-type"

import pytest

from fornada.core.lifecycle.events import (
    Adopted,
    Announce,
    Ask,
    BuildEnvironment,
    Built,
    CancelProvision,
    Claim,
    ClearTimer,
    CloseToWork,
    Command,
    Cut,
    CutOff,
    Emptied,
    Exited,
    FailureKind,
    Faulted,
    FetchArtifacts,
    Fetched,
    FoundHalfway,
    Granted,
    Hung,
    Kill,
    Loaded,
    LoadFailed,
    NeverFits,
    OpenToWork,
    Outcome,
    Prepare,
    Progressed,
    ProvisionCancelled,
    ProvisionFailed,
    Release,
    Reserve,
    Reset,
    Served,
    SetTimer,
    Sleep,
    SleepFailed,
    SleepWanted,
    Slept,
    Spawn,
    Spawned,
    SpawnFailed,
    Terminate,
    TimeUp,
    Unwanted,
    Wake,
    Wanted,
    Withdraw,
    Woken,
)
from fornada.core.lifecycle.life import IllegalTransition, ModelLife, Terms
from fornada.core.lifecycle.model import step
from fornada.core.lifecycle.states import State, Wish, outside
from fornada.core.names import NEVER
from fornada.core.policy.backoff import FREE_CRASHES

TERMS = Terms(load_timeout_s=300.0, kill_s=5.0, backoff_s=1.0)


def after(*events, life=None):
    """The life after these events, and what the last one asked for."""
    life = life or ModelLife(TERMS)
    commands: tuple[Command, ...] = ()
    for event in events:
        life, commands = step(life, event)
    return life, list(commands)


UP = (Wanted(0.0), Built(), Fetched(), Granted(), Spawned())
READY = (*UP, Loaded())


def test_the_first_request_brings_a_model_up_step_by_step():
    life, commands = after(Wanted(0.0))
    assert (life.state, commands) == (State.BUILDING, [BuildEnvironment()])
    life, commands = after(Built(), life=life)
    assert (life.state, commands) == (State.FETCHING, [FetchArtifacts()])
    life, commands = after(Fetched(), life=life)
    assert (life.state, commands) == (State.WAITING, [Reserve()])
    life, commands = after(Granted(), life=life)
    assert (life.state, commands) == (State.SPAWNING, [Spawn()])
    life, commands = after(Spawned(), life=life)
    assert (life.state, commands) == (State.LOADING, [SetTimer(300.0)])
    life, commands = after(Progressed(warming=True), life=life)
    assert (life.state, commands) == (State.WARMING, [SetTimer(300.0)])
    assert outside(life.state) == "pending"
    life, commands = after(Loaded(), life=life)
    assert (life.state, commands) == (State.READY, [ClearTimer(), OpenToWork(), Announce(Outcome.READY)])


def test_a_deploy_builds_and_fetches_and_then_rests():
    life, commands = after(Prepare(), Built(), Fetched())
    assert (life.state, commands) == (State.STOPPED, [Announce(Outcome.STOPPED)])


def test_a_request_that_comes_while_a_deploy_builds_loads_the_model_after_it():
    life, commands = after(Prepare(), Wanted(0.0), Built(), Fetched())
    assert (life.state, commands) == (State.WAITING, [Reserve()])


def test_an_idle_model_is_drained_asked_and_released_when_it_is_gone():
    life, commands = after(*READY, Served(), Unwanted(100.0, 30.0))
    assert (life.state, commands) == (State.DRAINING, [SetTimer(30.0), CloseToWork()])
    life, commands = after(Emptied(100.0, stuck=False), life=life)
    assert (life.state, commands) == (State.STOPPING, [SetTimer(5.0), Ask(5.0)])
    life, commands = after(Exited(101.0, "exit code 0"), life=life)
    assert (life.state, commands) == (State.STOPPED, [ClearTimer(), Release(), Announce(Outcome.STOPPED)])


def test_a_model_that_ignores_every_wish_to_stop_is_killed_in_the_end():
    life, commands = after(*READY, Unwanted(0.0, 2.0), TimeUp())
    assert (life.state, commands) == (State.STOPPING, [SetTimer(5.0), CutOff(Cut.STOPPED), Terminate()])
    life, commands = after(TimeUp(), life=life)
    assert (life.state, commands) == (State.STOPPING, [ClearTimer(), Kill()])


def test_a_process_that_only_works_for_callers_who_have_left_is_terminated_at_once():
    commands = after(*READY, Unwanted(0.0, 30.0), Emptied(0.0, stuck=True))[1]
    assert commands[-1] == Terminate()


def test_an_impatient_unload_shortens_a_drain_that_goes_on_already():
    life, commands = after(*READY, Unwanted(0.0, 30.0), Unwanted(1.0, 2.0))
    assert (life.state, commands) == (State.DRAINING, [SetTimer(2.0)])
    assert after(Unwanted(1.0, 60.0), life=life)[1] == []


def test_an_impatient_unload_shortens_the_asking_too_but_nothing_that_comes_after_it():
    asked = (*READY, Unwanted(0.0, 30.0), Emptied(0.0, stuck=False))
    assert after(*asked, Unwanted(1.0, 2.0))[1] == [SetTimer(2.0)]
    assert after(*asked, Unwanted(1.0, 20.0))[1] == []
    assert after(*asked, TimeUp(), Unwanted(1.0, 0.0))[1] == []


def test_what_is_stopping_is_never_revived_but_the_wish_is_honoured_after_the_end():
    life, commands = after(*READY, Unwanted(0.0, 30.0), Wanted(1.0))
    assert (life.state, commands) == (State.DRAINING, [])
    life, commands = after(Emptied(1.0, stuck=False), Exited(2.0, "exit code 0"), life=life)
    assert life.state is State.BUILDING
    assert commands == [ClearTimer(), Release(), Announce(Outcome.STOPPED), BuildEnvironment()]


@pytest.mark.parametrize("asked_again", ["after its end", "before its end"])
def test_a_load_that_runs_out_of_memory_has_a_second_try_whenever_it_was_wished_for(asked_again):
    """Who was sent away for another one's room and is asked for on the way out begins anew like anybody else."""
    gone, again = [Unwanted(1.0, 30.0), Emptied(1.0, stuck=False)], Wanted(2.0)
    ended = Exited(3.0, "exit code 0")
    told = [ended, again] if asked_again == "after its end" else [again, ended]
    life, _ = after(*READY, Served(), *gone, *told)
    assert life.state is State.BUILDING
    short = LoadFailed("no room", FailureKind.MEMORY), Exited(5.0, "exit code 1")
    life, _ = after(Built(), Fetched(), Granted(), Spawned(), *short, life=life)
    assert life.state is State.BUILDING, "the second try"
    life, _ = after(Built(), Fetched(), Granted(), Spawned(), *short, life=life)
    assert life.state is State.FAILED, "and no third"


def test_a_model_can_be_unwanted_while_its_spawn_is_in_flight():
    life, commands = after(Wanted(0.0), Built(), Fetched(), Granted(), Unwanted(0.0, 0.0))
    assert (life.state, commands) == (State.UNWANTED, [])
    life, commands = after(Spawned(), life=life)
    assert (life.state, commands) == (State.STOPPING, [SetTimer(5.0), Terminate()])
    life, commands = after(Wanted(0.0), Exited(1.0, "signal 15"), life=life)
    assert life.state is State.BUILDING
    assert Release() in commands


def test_an_unwanted_spawn_that_fails_is_no_failure():
    life, commands = after(Wanted(0.0), Built(), Fetched(), Granted(), Unwanted(0.0, 0.0), SpawnFailed(0.0, "no memory"))
    assert (life.state, life.failures, commands) == (State.STOPPED, 0, [Release(), Announce(Outcome.STOPPED)])


def test_an_unwanted_build_is_cancelled_and_its_result_does_not_matter():
    life, commands = after(Wanted(0.0), Unwanted(0.0, 0.0))
    assert (life.state, commands) == (State.CANCELLING, [CancelProvision()])
    for result in (ProvisionCancelled(), Built(), Fetched(), ProvisionFailed(0.0, "no network")):
        assert after(result, life=life)[0].state is State.STOPPED


def test_who_waits_in_line_for_memory_steps_out_of_it():
    life, commands = after(Wanted(0.0), Built(), Fetched(), Unwanted(0.0, 0.0))
    assert (life.state, commands) == (State.STOPPED, [Withdraw(), Announce(Outcome.STOPPED)])


def test_a_load_is_stopped_when_nobody_wants_it_any_more():
    life, commands = after(*UP, Unwanted(0.0, 30.0))
    assert (life.state, commands) == (State.STOPPING, [SetTimer(5.0), Terminate()])
    assert after(Progressed(warming=True), Loaded(), life=life)[0].state is State.STOPPING


def test_loads_that_fail_are_tried_again_after_1_2_4_seconds_and_so_on_up_to_a_minute():
    life, _ = after()
    now, waits = 0.0, []
    for _ in range(9):
        life, _ = after(Wanted(now), Built(), Fetched(), Granted(), Spawned(), LoadFailed("no such file"), life=life)
        life, commands = after(Exited(now, "exit code 1"), life=life)
        assert (life.state, commands) == (State.FAILED, [ClearTimer(), Release(), Announce(Outcome.FAILED)])
        assert life.failure.reason == "no such file"
        waits.append(life.failure.retry_at - now)
        assert after(Wanted(now + waits[-1] - 0.01), life=life)[1] == [Announce(Outcome.FAILED)]
        now = life.failure.retry_at
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_load_that_succeeds_ends_the_counting():
    failed = (*UP, LoadFailed("once"), Exited(0.0, "exit code 1"))
    life, _ = after(*failed, Wanted(1.0), Built(), Fetched(), Granted(), Spawned(), Loaded())
    assert life.failures == 0


def test_a_reset_lets_a_failed_model_try_at_once():
    life, _ = after(Wanted(0.0), Built(), Fetched(), NeverFits(0.0, "needs 9 GiB of 8 GiB"))
    assert (life.state, life.failure.kind, life.failure.retry_at) == (State.FAILED, FailureKind.NEVER_FITS, NEVER)
    life, _ = after(Reset(), life=life)
    assert (life.state, life.failures) == (State.STOPPED, 0)


def test_a_failed_model_can_be_unloaded_and_remembers_how_often_it_failed():
    life, _ = after(*UP, LoadFailed("broken"), Exited(0.0, "exit code 1"), Unwanted(0.0, 0.0))
    assert (life.state, life.failures, life.failure.reason) == (State.STOPPED, 1, "broken")


def test_a_load_without_progress_is_ended():
    life, commands = after(*UP, TimeUp())
    assert commands == [SetTimer(5.0), Terminate()]
    life, _ = after(Exited(300.0, "signal 15"), life=life)
    assert (life.state, life.failure.kind) == (State.FAILED, FailureKind.STALLED)
    assert life.failure.reason == "no progress for 300 s while loading"


def test_a_process_that_dies_while_it_loads_is_a_failed_load():
    life, _ = after(*UP, Exited(7.0, "signal 11"))
    assert (life.state, life.failure.kind, life.failure.retry_at) == (State.FAILED, FailureKind.LOAD, 8.0)


def test_a_crash_under_a_request_costs_no_waiting():
    life, commands = after(*READY, Served(), Exited(5.0, "exit code 9"))
    assert life.state is State.STOPPED
    assert commands == [ClearTimer(), CloseToWork(), CutOff(Cut.DIED), Release(), Announce(Outcome.CRASHED)]
    assert after(Wanted(5.0), life=life)[0].state is State.BUILDING


def test_the_end_of_a_shared_process_is_no_failure_of_who_did_nothing_there():
    life, commands = after(*READY, Served(), Exited(5.0, "signal 11", blameless=True))
    assert (life.state, life.crashes, life.failure.kind) == (State.STOPPED, 0, FailureKind.NONE)
    assert commands == [ClearTimer(), CloseToWork(), CutOff(Cut.DIED), Release(), Announce(Outcome.STOPPED)]
    life, commands = after(*UP, Exited(5.0, "signal 11", blameless=True))
    assert (life.state, life.wish, life.failures) == (State.BUILDING, Wish.RUNNING, 0), "its load begins anew"
    assert commands == [ClearTimer(), Release(), Announce(Outcome.STOPPED), BuildEnvironment()]


def test_a_model_that_crashes_over_and_over_without_an_answer_waits_in_the_end():
    life, _ = after()
    for number in range(FREE_CRASHES + 2):
        assert life.state is not State.FAILED
        life, _ = after(Wanted(number), Built(), Fetched(), Granted(), Spawned(), Loaded(), Exited(number, "signal 11"), life=life)
        if life.state is State.FAILED:
            break
    assert (number, life.failure.retry_at - number) == (FREE_CRASHES, 1.0)


def test_a_runner_that_breaks_the_rules_is_killed_and_its_callers_are_told():
    life, commands = after(*READY, Faulted("an answer before its request"))
    assert commands == [ClearTimer(), CloseToWork(), CutOff(Cut.DIED), Kill()]
    life, _ = after(Exited(1.0, "signal 9"), life=life)
    assert (life.state, life.failure.reason) == (State.STOPPED, "an answer before its request")


HANGS = Hung(90.0, "it hung", 0.0)
HANGS_BESIDE_OTHERS = Hung(90.0, "it hung", 30.0)


def test_a_process_that_hangs_with_nobody_else_inside_is_killed_at_once_and_the_next_request_starts_another():
    life, commands = after(*READY, Served(), HANGS)
    assert (life.state, commands) == (State.STOPPING, [ClearTimer(), CloseToWork(), CutOff(Cut.DIED), Kill()])
    life, commands = after(Wanted(90.0), Exited(91.0, "signal 9"), life=life)
    assert (life.state, life.failure.kind, life.failure.reason) == (State.BUILDING, FailureKind.HUNG, "it hung")
    assert commands == [ClearTimer(), Release(), Announce(Outcome.CRASHED), BuildEnvironment()]


def test_who_waits_for_what_may_still_answer_has_the_grace_of_a_drain_beside_what_hangs():
    life, commands = after(*READY, Served(), HANGS_BESIDE_OTHERS)
    assert (life.state, commands) == (State.DRAINING, [SetTimer(30.0), CloseToWork()])
    for over in (Emptied(100.0, stuck=True), TimeUp()):
        killed, commands = after(over, life=life)
        assert (killed.state, commands) == (State.STOPPING, [ClearTimer(), CutOff(Cut.DIED), Kill()])
        assert after(Exited(101.0, "signal 9"), life=killed)[1][-1] == Announce(Outcome.CRASHED)


def test_what_hangs_beside_others_on_its_way_to_sleep_never_gets_there():
    life, commands = after(*READY, SleepWanted(10.0), HANGS_BESIDE_OTHERS)
    assert (life.state, commands) == (State.DRAINING, [SetTimer(30.0)])
    assert after(TimeUp(), life=life)[1] == [ClearTimer(), CutOff(Cut.DIED), Kill()]


def test_what_hangs_on_its_way_to_sleep_or_out_is_killed_without_more_ado():
    for leaving in (SleepWanted(30.0), Unwanted(80.0, 30.0)):
        assert after(*READY, leaving, HANGS)[1] == [ClearTimer(), CutOff(Cut.DIED), Kill()]


def test_a_model_that_hangs_over_every_first_request_waits_in_the_end_as_one_that_crashes():
    life, _ = after()
    for number in range(FREE_CRASHES + 1):
        assert life.state is not State.FAILED
        told = Wanted(number), Built(), Fetched(), Granted(), Spawned(), Loaded(), HANGS, Exited(number, "signal 9")
        life, _ = after(*told, life=life)
    assert (life.state, life.failure.kind) == (State.FAILED, FailureKind.HUNG)


FALLING = (*READY, Served(), SleepWanted(30.0), Emptied(100.0, stuck=False))
ASLEEP = (*FALLING, Slept())


def test_an_idle_model_falls_asleep_once_its_work_has_ended_and_wakes_for_the_next_request():
    life, commands = after(*READY, Served(), SleepWanted(30.0))
    assert (life.state, commands) == (State.DROWSY, [SetTimer(30.0), CloseToWork()])
    assert outside(life.state) == "stopping"
    assert after(Emptied(1.0, stuck=True), life=life)[0].state is State.DROWSY, "somebody who has left is still worked for"
    life, commands = after(Emptied(2.0, stuck=False), life=life)
    assert (life.state, commands) == (State.FALLING_ASLEEP, [SetTimer(300.0), Sleep()])
    life, commands = after(Slept(), life=life)
    assert (life.state, commands) == (State.ASLEEP, [ClearTimer(), Announce(Outcome.ASLEEP)])
    assert outside(life.state) == "asleep"
    life, commands = after(Wanted(50.0), life=life)
    assert (life.state, commands) == (State.ROUSED, [Reserve()])
    assert outside(life.state) == "pending"
    life, commands = after(Granted(), life=life)
    assert (life.state, commands) == (State.WAKING, [SetTimer(300.0), Wake()])
    life, commands = after(Woken(), life=life)
    assert (life.state, commands) == (State.READY, [ClearTimer(), OpenToWork(), Announce(Outcome.READY)])
    assert not life.served, "it serves before it may go again"


def test_a_request_that_comes_while_it_falls_asleep_wakes_it_when_it_has():
    life, commands = after(*FALLING, Wanted(101.0))
    assert (life.state, commands) == (State.FALLING_ASLEEP, [])
    life, commands = after(Slept(), life=life)
    assert (life.state, commands) == (State.ROUSED, [ClearTimer(), Announce(Outcome.ASLEEP), Reserve()])


def test_a_sleep_that_fails_or_hangs_ends_the_process_and_is_nobodys_failure():
    for trouble in (SleepFailed("it raised"), TimeUp()):
        life, commands = after(*FALLING, trouble)
        assert (life.state, commands) == (State.STOPPING, [ClearTimer(), Kill()])
        life, commands = after(Exited(101.0, "signal 9"), life=life)
        assert (life.state, life.failures, life.crashes) == (State.STOPPED, 0, 0)


def test_who_waits_for_a_wake_that_fails_gets_the_next_process():
    life, _ = after(*ASLEEP, Wanted(100.0), Granted(), SleepFailed("it raised"))
    life, commands = after(Exited(101.0, "signal 9"), life=life)
    assert (life.state, commands) == (State.BUILDING, [ClearTimer(), Release(), Announce(Outcome.STOPPED), BuildEnvironment()])


def test_a_model_can_be_unloaded_anywhere_on_its_way_to_sleep_and_back():
    assert after(*READY, SleepWanted(30.0), Unwanted(1.0, 2.0))[1] == [SetTimer(2.0), CloseToWork()]
    assert after(*FALLING, Unwanted(1.0, 30.0))[1] == [SetTimer(5.0), Ask(5.0)]
    assert after(*ASLEEP, Unwanted(1.0, 30.0))[1] == [SetTimer(5.0), Ask(5.0)]
    assert after(*ASLEEP, Wanted(1.0), Unwanted(1.0, 30.0))[1] == [Withdraw(), SetTimer(5.0), Ask(5.0)]
    assert after(*ASLEEP, Wanted(1.0), Granted(), Unwanted(1.0, 30.0))[1] == [SetTimer(5.0), Terminate()]


def test_a_sleeper_that_dies_leaves_the_line():
    life, commands = after(*ASLEEP, Wanted(1.0), Exited(2.0, "signal 9"))
    assert (life.state, commands) == (State.STOPPED, [ClearTimer(), Withdraw(), Release(), Announce(Outcome.CRASHED)])


def test_a_successor_finds_processes_on_their_way_to_sleep_and_back():
    assert after(Adopted(), Slept())[0].state is State.ASLEEP
    assert after(Adopted(), FoundHalfway(waking=False), Slept())[0].state is State.ASLEEP
    assert after(Adopted(), FoundHalfway(waking=True), Woken())[0].state is State.READY


def test_a_successor_adopts_a_process_and_learns_its_state_from_it():
    life, commands = after(Adopted())
    assert (life.state, commands) == (State.LOADING, [Claim(), SetTimer(30.0)])
    assert after(Loaded(), life=life)[0].state is State.READY
    assert after(Progressed(warming=False), life=life)[1] == [SetTimer(300.0)]


def test_an_adopted_process_that_says_nothing_is_ended():
    life, commands = after(Adopted(), TimeUp())
    assert commands[-1] == Terminate()
    assert after(Exited(30.0, "signal 15"), life=life)[0].failure.reason == "no progress for 30 s while loading"


def test_a_runner_that_has_failed_and_does_not_exit_is_helped():
    commands = after(*UP, LoadFailed("broken"))[1]
    assert commands == [SetTimer(2.0)]
    assert after(*UP, LoadFailed("broken"), TimeUp())[1][-1] == Terminate()


def test_what_can_not_happen_tells_the_story_so_far():
    life, _ = after(*READY)
    with pytest.raises(IllegalTransition, match=r"Spawned while ready .*Wanted → building; .*Loaded → ready"):
        step(life, Spawned())
