"""Bounds what an instance leaves on disk: somebody looks often, and who holds more than its [resources] scratch is ended.

For where scratch is on disk: without mounts of its own, or because the operator wants it there ([node] scratch_in_memory).
Nothing that every machine has bounds the sum of a folder's files, so it comes too late for what is quicker than the rhythm. While
the file system's free room stays as it is nobody writes, and looks are rare; a look costs by the number of files, which is bounded
too, and its rest is the longer the more it cost.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fornada.core.names import Instant
from fornada.node.disk_use import FILES_MOST, Held, held, held_without_name
from fornada.node.hosts import HOME
from fornada.node.instance import Instance

TURN_S = 0.25
CALM_S = 10.0
"""How long until somebody is looked at again who isn't known to write."""
WRITTEN_BYTES = 1024**2
"""Of the file system's free room, by which it is seen that somebody writes."""
REST = 4
"""How many times as long as its look took a folder is left alone."""
LOOK_S = 0.1
"""What the looks of a turn may take together, as they took before; one is always had."""
MARGIN, MARGIN_LEAST = 0.125, 4 * 1024**2
"""Beyond the bound: folders, and the ends of files, take room as well, and a file that is replaced is there twice for a moment."""
FOR_A_NAME = 4096
"""What a file without content is taken for: where disks set room aside for those, it doesn't show in the free bytes."""
OWN_MOUNTS = frozenset({"full", "namespaces"})
"""Levels at which a scratch folder can be one in memory, which the kernel bounds."""
NAMELESS = ""
"""Stands for the look for open files that have no name any more, which is one for all."""
_MIB = 1024**2


@dataclass(frozen=True, slots=True)
class Watched:
    """A folder below the scratch folder."""

    place: str
    """Relative to it. Its first part is the instance's, or the shared process', own."""
    bytes: int
    """What was declared for it."""
    tell: Callable[[str], None]
    """Is called once, with the reason, for who has to be ended."""


@dataclass(frozen=True, slots=True)
class Looked:
    """The last look at a folder."""

    at: Instant
    took_s: float
    stale: bool = False
    """Somebody has written since."""


NEVER_LOOKED = Looked(Instant(float("-inf")), 0.0, stale=True)

# ---- the choice


def due(looks: Mapping[str, Looked], *, now: Instant) -> list[str]:
    """Where to look now: as many as fit into LOOK_S by what they took last, who has waited longest first."""
    chosen: list[str] = []
    left_s = LOOK_S
    for place, last in sorted(looks.items(), key=lambda item: item[1].at):
        rest_s = max(0.0 if last.stale else CALM_S, last.took_s * REST)
        if now >= last.at + rest_s and (not chosen or last.took_s <= left_s):
            chosen.append(place)
            left_s -= last.took_s
    return chosen


def too_much(found: Held, *, nameless: int, declared: int) -> str:
    """Why it has to be ended; empty: it may go on. `nameless`: bytes of open files that have no name any more."""
    total = found.bytes + nameless
    if total > declared + max(MARGIN_LEAST, declared * MARGIN):
        more = f" ({nameless // _MIB} MiB of it in open files without a name)" if nameless else ""
        return f"its scratch holds {total // _MIB} MiB{more}, and [resources] scratch in model.toml allows {declared // _MIB} MiB"
    if found.files > FILES_MOST:
        return f"its scratch holds more than {FILES_MOST} files"
    return f"its scratch can't be looked over: {found.hidden}" if found.hidden else ""


# ---- the watch


class ScratchWatch:
    """Looks at what `watched` names, in a thread."""

    def __init__(
        self,
        folder: Path,
        *,
        watched: Callable[[], Iterable[Watched]],
        now: Callable[[], Instant],
        isolation: str = "",
        in_memory: bool = False,
    ) -> None:
        """`isolation` is the node's level, `in_memory` its setting: where both mean that scratch is memory, only what an earlier control
        plane may have left on disk is looked at, and open files aren't looked for."""
        self._folder = folder
        self._also = [] if in_memory and isolation in OWN_MOUNTS else [NAMELESS]
        self._watched = watched
        self._now = now
        self._looks: dict[str, Looked] = {}
        self._told: set[str] = set()
        self._nameless: dict[str, int] = {}
        """Entry of the folder -> bytes of open files without a name that lay in it."""
        self._free = _free_bytes(folder)
        """As it was when somebody was last seen to write, or more."""

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await self.turn()
            await asyncio.sleep(TURN_S)

    async def turn(self) -> None:
        """Looks at who is due, and tells those who hold too much."""
        watched = {one.place: one for one in self._watched()}
        self._told.intersection_update(watched)
        self._note_writing([*(place for place in watched if place not in self._told), *self._also])
        places = due(self._looks, now=self._now()) if watched else []
        if not places:
            return
        found, took_s = await asyncio.to_thread(_look, self._folder, places, self._nameless)
        now = self._now()
        self._looks |= {place: Looked(now, seconds) for place, seconds in took_s.items()}
        if NAMELESS in took_s:
            # What a folder holds beside is found in another turn: nobody is judged by half of it.
            unjudged = (place for place in watched if place not in found and place in self._looks)
            more = [place for place in unjudged if self._nameless.get(_entry(place), 0)]
            self._looks |= {place: Looked(self._looks[place].at, self._looks[place].took_s, stale=True) for place in more}
        for place, there in found.items():
            reason = too_much(there, nameless=self._nameless.get(_entry(place), 0), declared=watched[place].bytes)
            if reason:
                self._told.add(place)
                watched[place].tell(reason)

    def _note_writing(self, places: list[str]) -> None:
        free = _free_bytes(self._folder)
        written = free < self._free - WRITTEN_BYTES
        self._free = free if written else max(free, self._free)
        looks = {place: self._looks.get(place, NEVER_LOOKED) for place in places}
        self._looks = {place: Looked(last.at, last.took_s, last.stale or written) for place, last in looks.items()}


def folders(instances: Iterable[Instance]) -> list[Watched]:
    """What they may write to. The home of a shared process belongs to all in it: its bound is the sum of theirs, and so is its end."""
    own = [(runner, instance) for instance in instances if (runner := instance.runner) is not None]
    homes: dict[str, list[Instance]] = {}
    for runner, instance in own:
        if runner.host:
            homes.setdefault(f"{runner.host}/{HOME}", []).append(instance)
    return [Watched(runner.id, _declared(instance), instance.exceeds) for runner, instance in own if not runner.host] + [
        Watched(home, sum(map(_declared, members)), partial(_all_exceed, members)) for home, members in homes.items()
    ]


def _all_exceed(instances: list[Instance], reason: str) -> None:
    for instance in instances:
        instance.exceeds(f"the process that it shares was ended: {reason}")


def _declared(instance: Instance) -> int:
    return instance.version.spec.resources.scratch


def _look(folder: Path, places: list[str], nameless: dict[str, int]) -> tuple[dict[str, Held], dict[str, float]]:
    """What the places hold, and how many seconds each look took. Brings `nameless` up to date, where it matters."""
    found: dict[str, Held] = {}
    took_s: dict[str, float] = {}
    if NAMELESS in places or any(nameless.get(_entry(place)) for place in places):
        began = time.monotonic()
        known = held_without_name(folder)
        nameless.clear()
        nameless.update(known)
        took_s[NAMELESS] = time.monotonic() - began
    for place in places:
        if place != NAMELESS:
            began = time.monotonic()
            found[place] = held(folder / place)
            took_s[place] = time.monotonic() - began
    return found, took_s


def _entry(place: str) -> str:
    return place.partition("/")[0]


def _free_bytes(folder: Path) -> int:
    try:
        status = os.statvfs(folder)
    except OSError:
        return 0
    return status.f_bfree * status.f_frsize + status.f_ffree * FOR_A_NAME
