"""The life of one model version on one node.

    registered ─┬→ building → fetching → waiting → spawning → loading → warming → ready
    stopped ────┘     │          │  └(only prepared)→ stopped          │            │
       ↑              └─→ cancelling                   unwanted ←──────┤            ↓
       │                      │                           │            │        draining
       │                      │                           ↓            ↓            ↓
       └──────────────────────┴───────────────────────────┴──────── stopping ←──────┘
    any → failed (retry_at, or for good) → building again when somebody wants it after that

    ready → drowsy → falling asleep → asleep → roused → waking → ready      each of them → stopping

`drowsy` finishes what is in flight, `roused` stands in line for the memory that it gave back. A step to sleep or back that fails
is the end of the process, never of the wish: who waits gets the next one.
`waiting` stands in line for memory. `cancelling` and `unwanted` are unwanted while something is in flight that can't be
undone at once: a build, a spawn. What is stopping is never revived: a wish that comes meanwhile is kept and honoured after
the end. Memory is reserved before the spawn and released after the keeper has reaped the process. Every rest (ready, stopped,
failed) is announced to everybody who waits. Outside there are only stopped, pending, ready, asleep, stopping and failed.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import assert_never

from fornada.core.lifecycle.events import (
    Adopted,
    Announce,
    Ask,
    Broke,
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
    Event,
    Exited,
    FailureKind,
    Faulted,
    FetchArtifacts,
    Fetched,
    FoundHalfway,
    Granted,
    Hung,
    Kill,
    Left,
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
from fornada.core.lifecycle.life import Failure, IllegalTransition, ModelLife
from fornada.core.lifecycle.states import CLOSING, COMING_UP, IN_BED, PROVISIONING, RESTING, WITH_PROCESS, Stage, State, Wish
from fornada.core.names import NEVER, Instant
from fornada.core.policy.backoff import after_crashes, after_failures

ASK_LONGEST_S = 5.0
"""From STOP to SIGTERM for a process that has nothing left to do, however long the grace."""
FAILED_EXIT_S = 2.0
"""From a runner's word that its load has failed to SIGTERM, if it doesn't exit by itself."""
GREETING_S = 30.0
"""How long an adopted process may take for its first word: it may be in the middle of a long call, or of a hanging exit."""
STORY_LENGTH = 24
NOTHING_WRONG = Failure()

Next = tuple[ModelLife, tuple[Command, ...]]


def step(life: ModelLife, event: Event) -> Next:
    """The life after `event`, and what to do now, in this order. Raises IllegalTransition."""
    after, commands = _step(life, event)
    line = f"{type(event).__name__} → {after.state.value}"
    return replace(after, story=(*life.story, line)[-STORY_LENGTH:]), commands


def _step(life: ModelLife, event: Event) -> Next:
    match event:
        case Wanted():
            return _wanted(life, event)
        case Prepare():
            return _start(life, Wish.PREPARED) if life.state in (State.REGISTERED, State.STOPPED) else _to(life)
        case Unwanted():
            return _unwanted(life, event)
        case Reset():
            clean = replace(life, failures=0, crashes=0, second_try=True)
            return _to(clean, State.STOPPED) if life.state is State.FAILED else _to(clean)
        case Built() | Fetched() | ProvisionFailed() | ProvisionCancelled():
            return _provisioned(life, event)
        case Granted() | NeverFits():
            return _placed(life, event)
        case Spawned() | SpawnFailed():
            return _spawned(life, event)
        case Adopted():
            _expect(life, event, RESTING)
            patience_s = min(life.terms.load_timeout_s, GREETING_S)
            return _to(replace(life, served=True, patience_s=patience_s), State.LOADING, Claim(), SetTimer(patience_s))
        case Progressed() | Loaded() | LoadFailed():
            return _told(life, event)
        case Served():
            _expect(life, event, {State.READY, State.DROWSY, State.DRAINING, State.STOPPING})
            return _to(replace(life, served=True, crashes=0))
        case Emptied():
            _expect(life, event, {State.DROWSY, State.DRAINING})
            if life.state is State.DROWSY:
                # What works on for callers who have left ends some time; nobody falls asleep at work.
                return _to(life) if event.stuck else _on_its_way(life, State.FALLING_ASLEEP, Sleep())
            if event.stuck:
                return _killed(life) if life.ending.kind is FailureKind.HUNG else _terminate(life)
            return _ask(life, event.now, max(life.patient_until - event.now, 0.0))
        case SleepWanted() | Slept() | Woken() | SleepFailed() | FoundHalfway():
            return _to_sleep_or_back(life, event)
        case Faulted():
            return _faulted(life, event)
        case Hung():
            return _hung(life, event)
        case TimeUp():
            return _time_up(life, event)
        case Exited():
            return _exited(life, event)
        case Broke():
            return _broke(life, event)
        case _:
            assert_never(event)


def _wanted(life: ModelLife, event: Wanted) -> Next:
    match life.state:
        case State.REGISTERED | State.STOPPED:
            return _start(replace(life, second_try=True), Wish.RUNNING)
        case State.FAILED:
            if event.now >= life.failure.retry_at:
                return _start(life, Wish.RUNNING)
            return _to(life, Announce(Outcome.FAILED))
        case State.READY:
            return _to(life, Announce(Outcome.READY))
        case State.ASLEEP:
            return _to(life, State.ROUSED, Reserve())
        case State.WAITING | State.SPAWNING | State.LOADING | State.WARMING | State.ROUSED | State.WAKING:
            return _to(life)
        case State.BUILDING | State.FETCHING | State.CANCELLING | State.UNWANTED | State.DRAINING | State.STOPPING:
            return _to(replace(life, wish=Wish.RUNNING))
        case State.DROWSY | State.FALLING_ASLEEP:
            return _to(replace(life, wish=Wish.RUNNING))
        case _:
            assert_never(life.state)


def _unwanted(life: ModelLife, event: Unwanted) -> Next:
    life = replace(life, wish=Wish.NOTHING, second_try=False)
    until = Instant(event.now + event.grace_s)
    match life.state:
        case State.REGISTERED | State.STOPPED:
            return _to(life, Announce(Outcome.STOPPED))
        case State.FAILED:
            return _to(life, State.STOPPED, Announce(Outcome.STOPPED))
        case State.BUILDING | State.FETCHING:
            return _to(life, State.CANCELLING, CancelProvision())
        case State.WAITING:
            return _to(life, State.STOPPED, Withdraw(), Announce(Outcome.STOPPED))
        case State.SPAWNING:
            return _to(life, State.UNWANTED)
        case State.LOADING | State.WARMING | State.WAKING:
            return _terminate(life)
        case State.READY | State.DROWSY:
            return _to(replace(life, patient_until=until), State.DRAINING, SetTimer(event.grace_s), CloseToWork())
        case State.FALLING_ASLEEP | State.ASLEEP | State.ROUSED:
            asked, commands = _ask(life, event.now, event.grace_s)
            return asked, (*_closing(life, Cut.STOPPED), *commands)
        case State.DRAINING | State.STOPPING if until < life.patient_until and life.stage in (Stage.NONE, Stage.ASKED):
            return _to(replace(life, patient_until=until), SetTimer(event.grace_s))
        case State.DRAINING | State.CANCELLING | State.UNWANTED | State.STOPPING:
            return _to(life)
        case _:
            assert_never(life.state)


def _provisioned(life: ModelLife, event: Built | Fetched | ProvisionFailed | ProvisionCancelled) -> Next:
    if life.state is State.CANCELLING:
        return _ended(life, life.ending)  # whatever it came to: it was unwanted before
    match event:
        case Built():
            _expect(life, event, {State.BUILDING})
            return _to(life, State.FETCHING, FetchArtifacts())
        case Fetched():
            _expect(life, event, {State.FETCHING})
            if life.wish is Wish.RUNNING:
                return _to(replace(life, wish=Wish.NOTHING), State.WAITING, Reserve())
            return _ended(life)
        case ProvisionFailed():
            _expect(life, event, PROVISIONING)
            return _ended(life, Failure(FailureKind.PROVISION, event.reason, event.now))
        case ProvisionCancelled():
            raise IllegalTransition(life, event)
        case _:
            assert_never(event)


def _placed(life: ModelLife, event: Granted | NeverFits) -> Next:
    _expect(life, event, {State.WAITING, State.ROUSED})
    match event:
        case Granted() if life.state is State.ROUSED:
            return _on_its_way(life, State.WAKING, Wake())
        case Granted():
            return _to(life, State.SPAWNING, Spawn())
        case NeverFits() if life.state is State.ROUSED:
            return _ask(replace(life, ending=Failure(FailureKind.NEVER_FITS, event.reason)), event.now, ASK_LONGEST_S)
        case NeverFits():
            return _ended(life, Failure(FailureKind.NEVER_FITS, event.reason, event.now))
        case _:
            assert_never(event)


def _spawned(life: ModelLife, event: Spawned | SpawnFailed) -> Next:
    _expect(life, event, {State.SPAWNING, State.UNWANTED})
    unwanted = life.state is State.UNWANTED
    match event:
        case Spawned():
            if unwanted:
                return _terminate(life)
            return _on_its_way(life, State.LOADING)
        case SpawnFailed():
            failure = life.ending if unwanted else Failure(FailureKind.SPAWN, event.reason, event.now)
            return _ended(life, failure, Release())
        case _:
            assert_never(event)


def _told(life: ModelLife, event: Progressed | Loaded | LoadFailed) -> Next:
    if life.state is State.STOPPING:
        return _to(life)  # sent before it heard that it is to stop
    _expect(life, event, COMING_UP)
    match event:
        case Progressed():
            return _on_its_way(life, State.WARMING if event.warming else State.LOADING)
        case Loaded():
            ready = replace(life, failures=0, second_try=True)
            return _to(ready, State.READY, ClearTimer(), OpenToWork(), Announce(Outcome.READY))
        case LoadFailed():
            failing = replace(life, ending=Failure(event.kind, event.reason), stage=Stage.ASKED)
            return _to(failing, State.STOPPING, SetTimer(FAILED_EXIT_S))
        case _:
            assert_never(event)


def _to_sleep_or_back(life: ModelLife, event: SleepWanted | Slept | Woken | SleepFailed | FoundHalfway) -> Next:
    if life.state is State.STOPPING:
        return _to(life)  # said before it heard that it is to stop
    match event:
        case SleepWanted() if life.state is State.READY:
            return _to(life, State.DROWSY, SetTimer(event.grace_s), CloseToWork())
        case SleepWanted():
            return _to(life)
        case Slept():
            _expect(life, event, COMING_UP | {State.FALLING_ASLEEP})
            told = (ClearTimer(), Announce(Outcome.ASLEEP))
            if life.wish is Wish.RUNNING:
                return _to(replace(life, wish=Wish.NOTHING), State.ROUSED, *told, Reserve())
            return _to(life, State.ASLEEP, *told)
        case Woken():
            _expect(life, event, {State.WAKING})
            return _to(replace(life, served=False), State.READY, ClearTimer(), OpenToWork(), Announce(Outcome.READY))
        case SleepFailed():
            _expect(life, event, {State.FALLING_ASLEEP, State.WAKING})
            return _sleepless(life)
        case FoundHalfway():
            _expect(life, event, COMING_UP)
            return _on_its_way(life, State.WAKING if event.waking else State.FALLING_ASLEEP)
        case _:
            assert_never(event)


def _sleepless(life: ModelLife) -> Next:
    """Half asleep it is of no use. That is nobody's failure: who waits for it gets a process that has just been loaded."""
    wish = Wish.RUNNING if life.state is State.WAKING else life.wish
    return _to(replace(life, wish=wish, stage=Stage.KILLED), State.STOPPING, ClearTimer(), Kill())


def _faulted(life: ModelLife, event: Faulted) -> Next:
    _expect(life, event, WITH_PROCESS)
    ending = life.ending
    if life.state in COMING_UP:
        ending = Failure(FailureKind.LOAD, event.reason)
    elif life.state is State.READY or life.state in IN_BED:
        ending = Failure(FailureKind.FAULT, event.reason)
    return _killed(replace(life, ending=ending))


def _hung(life: ModelLife, event: Hung) -> Next:
    """It is worth no SIGTERM, which it wouldn't heed either. Who may still be answered has the grace of a drain."""
    _expect(life, event, WITH_PROCESS)
    if life.state not in (State.READY, State.DROWSY, State.DRAINING):
        return _to(life)  # what works on nothing can't be hung, and what stops is killed anyway
    if life.state is State.DRAINING:  # an end that was wanted stays one, and has its own grace
        return _to(life) if event.grace_s > 0 else _killed(replace(life, ending=replace(life.ending, reason=event.reason)))
    hung = replace(life, ending=Failure(FailureKind.HUNG, event.reason))
    if event.grace_s <= 0:
        return _killed(hung)
    # Nor is it worth a sleep: the memory of it would have to be held for what hangs again.
    until = Instant(event.now + event.grace_s)
    closing = (CloseToWork(),) if life.state is State.READY else ()
    return _to(replace(hung, patient_until=until), State.DRAINING, SetTimer(event.grace_s), *closing)


def _killed(life: ModelLife) -> Next:
    return _to(replace(life, stage=Stage.KILLED), State.STOPPING, ClearTimer(), *_closing(life, Cut.DIED), Kill())


def _time_up(life: ModelLife, event: TimeUp) -> Next:
    match life.state:
        case State.LOADING | State.WARMING:
            reason = f"no progress for {life.patience_s:g} s while {life.state.value}"
            return _terminate(replace(life, ending=Failure(FailureKind.STALLED, reason)))
        case State.DRAINING if life.ending.kind is FailureKind.HUNG:
            return _killed(life)
        case State.DROWSY | State.DRAINING:
            return _terminate(life)
        case State.FALLING_ASLEEP | State.WAKING:
            return _sleepless(life)
        case State.STOPPING if life.stage is Stage.ASKED:
            return _terminate(life)
        case State.STOPPING if life.stage is Stage.TERMINATED:
            return _to(replace(life, stage=Stage.KILLED), ClearTimer(), Kill())
        case _:
            raise IllegalTransition(life, event)


def _exited(life: ModelLife, event: Exited) -> Next:
    _expect(life, event, WITH_PROCESS)
    if life.state is State.STOPPING:
        reason = life.ending.reason or event.reason
        return _ended(life, replace(life.ending, reason=reason, at=event.now), ClearTimer(), Release())
    if life.state is State.DRAINING:
        return _ended(life, replace(life.ending, at=event.now), ClearTimer(), *_closing(life, Cut.DIED), Release())
    if event.blameless:
        over, told = _ended(life, NOTHING_WRONG, ClearTimer(), *_closing(life, Cut.DIED), Release())
        if life.state not in COMING_UP:
            return over, told
        begun, more = _start(over, Wish.RUNNING)  # its own load hadn't begun
        return begun, (*told, *more)
    kind = FailureKind.CRASH
    if life.state in COMING_UP:
        kind = FailureKind.MEMORY if event.over_memory else FailureKind.LOAD
    return _ended(life, Failure(kind, event.reason, event.now), ClearTimer(), *_closing(life, Cut.DIED), Release())


def _broke(life: ModelLife, event: Broke) -> Next:
    """It fails, and everybody is told, as soon as what is left of it has ended."""
    failure = Failure(FailureKind.INTERNAL, event.reason, event.now)
    broken = replace(life, ending=failure, wish=Wish.NOTHING)
    cut = (ClearTimer(), CloseToWork(), CutOff(Cut.DIED))
    match event.left:
        case Left.PROCESS:
            return _to(replace(broken, stage=Stage.KILLED), State.STOPPING, *cut, Withdraw(), Kill())
        case Left.WORK if life.state in PROVISIONING or life.state is State.CANCELLING:
            return _to(broken, State.CANCELLING, ClearTimer(), CancelProvision())
        case Left.WORK if life.state in (State.SPAWNING, State.UNWANTED):
            return _to(broken, State.UNWANTED, ClearTimer())
        case Left.WORK | Left.NOTHING:
            return _ended(life, failure, *cut, Withdraw(), Release())
        case _:
            assert_never(event.left)


def _start(life: ModelLife, wish: Wish) -> Next:
    return _to(replace(life, wish=wish), State.BUILDING, BuildEnvironment())


def _on_its_way(life: ModelLife, state: State, *commands: Command) -> Next:
    """On a way on which it may say nothing for load_timeout_s."""
    patience_s = life.terms.load_timeout_s
    return _to(replace(life, patience_s=patience_s), state, SetTimer(patience_s), *commands)


def _ask(life: ModelLife, now: Instant, grace_s: float) -> Next:
    seconds = min(grace_s, ASK_LONGEST_S)
    asked = replace(life, stage=Stage.ASKED, patient_until=Instant(now + seconds))
    return _to(asked, State.STOPPING, SetTimer(seconds), Ask(seconds))


def _terminate(life: ModelLife) -> Next:
    going = replace(life, stage=Stage.TERMINATED)
    return _to(going, State.STOPPING, SetTimer(life.terms.kill_s), *_closing(life, Cut.STOPPED), Terminate())


def _closing(life: ModelLife, cause: Cut) -> tuple[Command, ...]:
    """What callers are owed when the process won't answer them any more."""
    match life.state:
        case State.READY:
            return CloseToWork(), CutOff(cause)
        case State.DROWSY | State.DRAINING:
            return (CutOff(cause),)
        case State.ROUSED:
            return (Withdraw(),)
        case _:
            return ()


def _ended(life: ModelLife, failure: Failure = NOTHING_WRONG, *commands: Command) -> Next:
    """Nothing is in flight any more: rest, tell everybody, and begin again if that was wished meanwhile."""
    over = replace(life, stage=Stage.NONE, ending=NOTHING_WRONG, wish=Wish.NOTHING, served=False)
    match failure.kind:
        case FailureKind.NONE:
            over, outcome = replace(over, state=State.STOPPED), Outcome.STOPPED
        case FailureKind.CRASH | FailureKind.FAULT | FailureKind.HUNG:
            crashes = 1 if life.served else life.crashes + 1
            wait_s = after_crashes(crashes, first_s=life.terms.backoff_s)
            failure = replace(failure, retry_at=Instant(failure.at + wait_s))
            state = State.FAILED if wait_s else State.STOPPED
            over, outcome = replace(over, state=state, crashes=crashes, failure=failure), Outcome.CRASHED
        case FailureKind.MEMORY if life.second_try:
            begun, more = _start(replace(over, state=State.STOPPED, failure=failure, second_try=False), Wish.RUNNING)
            return begun, (*commands, *more)
        case _:
            failures = life.failures + 1
            wait_s = after_failures(failures, first_s=life.terms.backoff_s)
            retry_at = NEVER if failure.kind is FailureKind.NEVER_FITS else Instant(failure.at + wait_s)
            failure = replace(failure, retry_at=retry_at)
            over, outcome = replace(over, state=State.FAILED, failures=failures, failure=failure), Outcome.FAILED
    told = (*commands, Announce(outcome))
    if over.state is State.STOPPED and life.state in CLOSING and life.wish is Wish.RUNNING:
        begun, more = _start(replace(over, second_try=True), Wish.RUNNING)
        return begun, (*told, *more)
    return over, told


def _to(life: ModelLife, *rest: State | Command) -> Next:
    """`life`, in the state named first if one is named, with the commands that follow."""
    if rest and isinstance(rest[0], State):
        return replace(life, state=rest[0]), _commands(rest[1:])
    return life, _commands(rest)


def _commands(rest: Iterable[State | Command]) -> tuple[Command, ...]:
    return tuple(command for command in rest if not isinstance(command, State))


def _expect(life: ModelLife, event: Event, states: Iterable[State]) -> None:
    if life.state not in states:
        raise IllegalTransition(life, event)
