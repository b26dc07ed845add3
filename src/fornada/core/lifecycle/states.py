"""The states of a life, what they have in common, and the words that people see for them. The diagram is core.lifecycle.model's."""

import enum


class State(enum.Enum):
    REGISTERED = "registered"
    BUILDING = "building"
    FETCHING = "fetching"
    CANCELLING = "cancelling"
    WAITING = "waiting"
    SPAWNING = "spawning"
    UNWANTED = "unwanted"
    LOADING = "loading"
    WARMING = "warming"
    READY = "ready"
    DROWSY = "drowsy"
    FALLING_ASLEEP = "falling asleep"
    ASLEEP = "asleep"
    ROUSED = "roused"
    WAKING = "waking"
    DRAINING = "draining"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


_OUTSIDE = {
    State.REGISTERED: "stopped",
    State.STOPPED: "stopped",
    State.READY: "ready",
    State.DROWSY: "stopping",
    State.FALLING_ASLEEP: "stopping",
    State.ASLEEP: "asleep",
    State.CANCELLING: "stopping",
    State.UNWANTED: "stopping",
    State.DRAINING: "stopping",
    State.STOPPING: "stopping",
    State.FAILED: "failed",
}
RESTING = frozenset({State.REGISTERED, State.STOPPED, State.FAILED})
"""Nothing runs and nothing is under way."""
CLOSING = frozenset({State.CANCELLING, State.UNWANTED, State.DRAINING, State.STOPPING})
"""On the way to an end that nobody can take back."""
PROVISIONING = frozenset({State.BUILDING, State.FETCHING})
COMING_UP = frozenset({State.LOADING, State.WARMING})
GOING_TO_SLEEP = frozenset({State.DROWSY, State.FALLING_ASLEEP})
"""Closed to work; what comes meanwhile waits, and wakes it afterwards."""
IN_BED = GOING_TO_SLEEP | {State.ASLEEP, State.ROUSED, State.WAKING}
"""Anywhere between ready and ready again by way of sleep."""
WITH_PROCESS = IN_BED | {State.LOADING, State.WARMING, State.READY, State.DRAINING, State.STOPPING}
WITH_RESERVATION = WITH_PROCESS | {State.SPAWNING, State.UNWANTED}


def outside(state: State) -> str:
    """The state as people see it."""
    return _OUTSIDE.get(state, "pending")


class Wish(enum.Enum):
    """What the life is to come to, once what is under way has ended."""

    NOTHING = "nothing"
    PREPARED = "prepared"
    RUNNING = "running"


class Stage(enum.Enum):
    """How hard a process was asked to stop."""

    NONE = "none"
    ASKED = "asked"
    TERMINATED = "terminated"
    KILLED = "killed"
