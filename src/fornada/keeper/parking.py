"""Instances whose processes are stopped. Who is to be, and for how long, is ordered: SIGSTOP and SIGCONT are for all of an instance.

running --SIGSTOP--> parked --SIGCONT, a signal but SIGKILL, a control plane attaches, its end--> running, or gone

A group of version 2 is frozen by the kernel. Everywhere else each process gets SIGSTOP: a SIGKILL ends what is stopped, as it ends
what version 2 has frozen, but not what version 1 has, and the processes of a killed keeper must be gone at once.
"""

import contextlib
import os
import signal

from fornada.keeper import namespaces
from fornada.keeper.cgroups.files import CgroupError
from fornada.keeper.cgroups.group import Group
from fornada.keeper.loop import Loop, Timer
from fornada.keeper.records import InstanceChild, Life, Member
from fornada.keeper.say import say
from fornada.keeper.zygote_records import ForkedChild

ROUNDS_MOST = 8
"""How often in a row further processes are looked for: whoever forks more quickly than that isn't idle."""
LATER_S = 0.2
"""A fork of a large process may have begun before its parent was stopped, and come to light only now."""


class Parking:
    """Who is parked."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._parked: dict[str, tuple[InstanceChild, Timer]] = {}

    def carries_out(self, child: InstanceChild, number: int) -> bool:
        """Whether that was all that the signal asks for. One that is to be heard needs a process that runs."""
        if number == signal.SIGSTOP:
            self.park(child)
        elif number != signal.SIGKILL:
            self.unpark(child)
        return number in (signal.SIGSTOP, signal.SIGCONT)

    def park(self, child: InstanceChild) -> None:
        """Stops it, if it runs and has its processes for itself. One that can't be stopped goes on, and that is said."""
        if child.name in self._parked or child.life is not Life.RUNNING or isinstance(child, Member):
            return
        self._parked[child.name] = child, self._loop.later(LATER_S, lambda: self._stop_the_rest(child))
        self._stop(child)

    def unpark(self, child: InstanceChild) -> None:
        """Lets it go on, if it was stopped."""
        if child.name not in self._parked:
            return
        self.forget(child)
        group = _group(child)
        try:
            if group is not None and group.can_freeze:
                group.thaw()
            else:
                _signal(group, _processes(child, group), signal.SIGCONT)
        except (OSError, CgroupError) as error:
            # Who waits for it would wait in vain.
            say(f"{child.name} can't be continued and is ended: {error}")
            with contextlib.suppress(OSError):
                _signal(None, [child.outer], signal.SIGKILL)

    def unpark_all(self) -> None:
        for child, _ in list(self._parked.values()):
            self.unpark(child)

    def forget(self, child: InstanceChild) -> None:
        """It has ended."""
        _, timer = self._parked.pop(child.name, (child, None))
        if timer is not None:
            timer.cancel()

    def _stop(self, child: InstanceChild) -> None:
        group = _group(child)
        try:
            if group is not None and group.can_freeze:
                group.freeze()
            else:
                _stop_each(child, group)
        except (OSError, CgroupError) as error:
            say(f"{child.name} can't be parked and goes on: {error}")
            self.unpark(child)

    def _stop_the_rest(self, child: InstanceChild) -> None:
        if child.name in self._parked and child.life is Life.RUNNING:
            self._stop(child)


def _stop_each(child: InstanceChild, group: Group | None) -> None:
    """Raises OSError, CgroupError."""
    stopped: set[int] = set()
    for _ in range(ROUNDS_MOST):
        found = [pid for pid in _processes(child, group) if pid not in stopped]
        if not found:
            return
        _signal(group, found, signal.SIGSTOP)
        stopped.update(found)
    raise OSError(0, f"there were new processes {ROUNDS_MOST} times in a row")


def _group(child: InstanceChild) -> Group | None:
    enclosure = child.fork.enclosure if isinstance(child, ForkedChild) else child.enclosure
    return enclosure.group if enclosure is not None else None


def _processes(child: InstanceChild, group: Group | None) -> list[int]:
    """As the group's file calls them, or as /proc does."""
    return group.pids() if group is not None else namespaces.family(child.outer)


def _signal(group: Group | None, pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            if group is not None:
                os.kill(pid, number)
            else:
                namespaces.signal_outer(pid, number)
