"""Every event in every state: what comes of it, or that it is refused. A row that is missing fails."""

# Instants are plain numbers here.
# mypy: disable-error-code="arg-type"

import typing

import pytest

from fornada.core.lifecycle import events as e
from fornada.core.lifecycle.life import IllegalTransition, ModelLife, Terms
from fornada.core.lifecycle.model import step
from fornada.core.lifecycle.states import Stage, State

TERMS = Terms(load_timeout_s=300.0, kill_s=5.0, backoff_s=1.0)
EVENTS = {
    "Wanted": e.Wanted(100.0),
    "Prepare": e.Prepare(),
    "Unwanted": e.Unwanted(100.0, 30.0),
    "Reset": e.Reset(),
    "Built": e.Built(),
    "Fetched": e.Fetched(),
    "ProvisionFailed": e.ProvisionFailed(100.0, "no network"),
    "ProvisionCancelled": e.ProvisionCancelled(),
    "Granted": e.Granted(),
    "NeverFits": e.NeverFits(100.0, "too large"),
    "Spawned": e.Spawned(),
    "SpawnFailed": e.SpawnFailed(100.0, "no processes left"),
    "Adopted": e.Adopted(),
    "Progressed": e.Progressed(warming=True),
    "Loaded": e.Loaded(),
    "LoadFailed": e.LoadFailed("no such file"),
    "Served": e.Served(),
    "Emptied": e.Emptied(100.0, stuck=False),
    "SleepWanted": e.SleepWanted(30.0),
    "Slept": e.Slept(),
    "Woken": e.Woken(),
    "SleepFailed": e.SleepFailed("it raised"),
    "FoundHalfway": e.FoundHalfway(waking=True),
    "Faulted": e.Faulted("nonsense"),
    "Hung": e.Hung(100.0, "it hung", 0.0),
    "TimeUp": e.TimeUp(),
    "Exited": e.Exited(100.0, "exit code 1"),
    "Broke": e.Broke(100.0, "KeyError", e.Left.NOTHING),
}
S = {state.name: state for state in State}
ORDER = (
    "REGISTERED BUILDING FETCHING CANCELLING WAITING SPAWNING UNWANTED LOADING WARMING READY DROWSY FALLING_ASLEEP ASLEEP ROUSED WAKING "
    "DRAINING STOPPING STOPPED FAILED"
)
# One column a state, in ORDER; "." stays, "-" is refused, else the first letters of the next state.
TABLE = """
Wanted             BUI . . . . . . . . . . . ROU . . . . BUI BUI
Prepare            BUI . . . . . . . . . . . . . . . . BUI .
Unwanted           . CAN CAN . STOPPED UNW . STOPPI STOPPI DRA DRA STOPPI STOPPI STOPPI STOPPI . . . STOPPED
Reset              . . . . . . . . . . . . . . . . . . STOPPED
Built              - FET - STOPPED - - - - - - - - - - - - - - -
Fetched            - - STOPPED STOPPED - - - - - - - - - - - - - - -
ProvisionFailed    - FAILED FAILED STOPPED - - - - - - - - - - - - - - -
ProvisionCancelled - - - STOPPED - - - - - - - - - - - - - - -
Granted            - - - - SPA - - - - - - - - WAK - - - - -
NeverFits          - - - - FAILED - - - - - - - - STOPPI - - - - -
Spawned            - - - - - LOA STOPPI - - - - - - - - - - - -
SpawnFailed        - - - - - FAILED STOPPED - - - - - - - - - - - -
Adopted            LOA - - - - - - - - - - - - - - - - LOA LOA
Progressed         - - - - - - - WAR . - - - - - - - . - -
Loaded             - - - - - - - REA REA - - - - - - - . - -
LoadFailed         - - - - - - - STOPPI STOPPI - - - - - - - . - -
Served             - - - - - - - - - . . - - - - . . - -
Emptied            - - - - - - - - - - FALL - - - - STOPPI - - -
SleepWanted        . . . . . . . . . DRO . . . . . . . . .
Slept              - - - - - - - ASL ASL - - ASL - - - - . - -
Woken              - - - - - - - - - - - - - - REA - . - -
SleepFailed        - - - - - - - - - - - STOPPI - - STOPPI - . - -
FoundHalfway       - - - - - - - WAK WAK - - - - - - - . - -
Faulted            - - - - - - - STOPPI STOPPI STOPPI STOPPI STOPPI STOPPI STOPPI STOPPI STOPPI . - -
Hung               - - - - - - - . . STOPPI STOPPI . . . . STOPPI . - -
TimeUp             - - - - - - - STOPPI STOPPI - STOPPI STOPPI - - STOPPI STOPPI . - -
Exited             - - - - - - - FAILED FAILED STOPPED STOPPED STOPPED STOPPED STOPPED STOPPED STOPPED STOPPED - -
Broke              FAILED FAILED FAILED FAILED FAILED FAILED FAILED FAILED FAILED FAILED FAILED FAILED FAILED FAILED FAILED FAILED FAILED FAILED .
"""
ROWS = [line.split() for line in TABLE.strip().splitlines()]


def cells():
    for name, *columns in ROWS:
        for state, cell in zip(ORDER.split(), columns, strict=True):
            yield pytest.param(name, S[state], cell, id=f"{name}-{state.lower()}")


def test_the_table_has_every_event_and_every_state():
    assert {row[0] for row in ROWS} == {event.__name__ for event in typing.get_args(e.Event)} == EVENTS.keys()
    assert ORDER.split() == [state.name for state in State]


@pytest.mark.parametrize(("name", "state", "cell"), list(cells()))
def test_every_event_in_every_state_is_handled_or_refused(name, state, cell):
    life = ModelLife(TERMS, state=state, stage=Stage.ASKED if state is State.STOPPING else Stage.NONE)
    if cell == "-":
        with pytest.raises(IllegalTransition, match=f"{name} while {state.value}"):
            step(life, EVENTS[name])
        return
    following, _ = step(life, EVENTS[name])
    expected = state if cell == "." else next(other for other in State if other.name.startswith(cell))
    assert following.state is expected
