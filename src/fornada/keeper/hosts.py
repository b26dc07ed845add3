"""Processes that several instances share, by name; every such instance, a member, is one like any other for the rest of the keeper.

no host of that name --SPAWN--> open --its channel is lost, or its last member has gone--> closed --reaped--> (gone)
                                 ^ |
                                 +-+ SPAWN: one more member

A member ends when its host takes leave of it on the member's own channel, or with the host. A host without members is let go: its
channel is closed, which ends it. The next SPAWN of that name begins another.
"""

import contextlib
import signal
from collections.abc import Callable

from fornada.keeper.children import Exit, signal_group
from fornada.keeper.loop import Loop
from fornada.keeper.orders import Spawn
from fornada.keeper.records import HostChild, Life, Member
from fornada.keeper.say import say
from fornada.keeper.starting import Conversation, Lost, converse
from fornada_sdk.wire.messages import Kind

STOP_SHARE = 0.8
"""Of kill_s: what a member that is to end has for what it works on. The rest is for the end itself."""

Start = Callable[[Spawn, Conversation, Lost], HostChild]


class Hosts:
    """The open ones. The keeper tells it what becomes of the processes; it tells of each member's end, once."""

    def __init__(
        self,
        loop: Loop,
        *,
        kill_s: float,
        start: Start,
        started: Callable[[HostChild], None],
        ended: Callable[[Member], None],
        signal_host: Callable[[int, int], None] = signal_group,
    ) -> None:
        """`start` makes the process (starting.start_host). `started` is told of every new one, `ended` of every member that has ended;
        `signal_host` takes a pid and a number."""
        self._loop = loop
        self._kill_s = kill_s
        self._started = started
        self._ended = ended
        self._start = start
        self._signal_host = signal_host
        self._open: dict[str, HostChild] = {}

    def join(self, order: Spawn) -> Member:
        """A member of the host that the order names, which is started where there is none. Raises OSError."""
        with contextlib.ExitStack() as on_failure:
            talk = converse(self._loop, lost=lambda broke, why: self._member_lost(member, broke, why), left=lambda: self._left(member))
            on_failure.callback(talk.close)
            host = self._open.get(order.host)
            if host is None:
                host = self._begin(order, talk)
            on_failure.pop_all()
        member = Member(order, host, talk.peer, talk.output)
        host.members[member.name] = member
        # A host that has just died loses its channel here: its end is told like that of any other.
        host.peer.send(Kind.JOIN, order.assigned(host.outer), talk.given_away())
        return member

    def _begin(self, order: Spawn, talk: Conversation) -> HostChild:
        host = self._start(order, talk, lambda broke, why: self._host_lost(host, broke, why))
        self._open[host.name] = host
        self._started(host)
        return host

    # ---- what is ordered

    def signal(self, member: Member, number: int) -> None:
        """SIGTERM asks this member alone to end. Any other signal is for the process: a call in C code can't be ended otherwise."""
        if member.life is Life.ENDED:
            return
        if number == signal.SIGTERM:
            member.peer.send(Kind.STOP, {"grace_s": round(self._kill_s * STOP_SHARE, 3)})
        else:
            self._kill(member.host, number)

    def dismiss(self, member: Member) -> None:
        """Nobody asks for its end any more: it is to go without taking its host along, if the host still hears."""
        member.dismissed = True
        member.peer.leave()
        self._loop.later(self._kill_s, lambda: self._overdue(member))

    # ---- what becomes of them

    def executes(self, host: HostChild, *, well: bool) -> list[Member]:
        """The host executes its program, or can't: the members that have waited for that."""
        waiting = list(host.members.values())
        for member in waiting:
            member.life = Life.RUNNING
        if not well:
            self._close(host)
        return waiting

    def reaped(self, host: HostChild) -> None:
        """The process has ended, and with it all its members."""
        self._close(host)
        # What it took of memory and time was nobody's alone.
        end = Exit(code=host.end.code, signal=host.end.signal, over_memory=host.end.over_memory, with_host=True)
        for member in list(host.members.values()):
            self._end(member, end)

    def _left(self, member: Member) -> None:
        self._end(member, Exit(code=0, signal=None))

    def _end(self, member: Member, end: Exit) -> None:
        if member.life is Life.ENDED:
            return
        member.life = Life.ENDED
        member.end = end
        member.peer.close()
        host = member.host
        host.members.pop(member.name, None)
        self._ended(member)
        if not host.members and host.life is not Life.ENDED:
            self._close(host)
            self._loop.later(self._kill_s, lambda: self._kill(host, signal.SIGKILL))

    def _member_lost(self, member: Member, broke_rules: bool, why: str) -> None:
        if member.dismissed:
            self._left(member)
        elif broke_rules:
            say(f"the host {member.host.name} (pid {member.outer}) broke the rules of the wire for {member.name} and is ended: {why}")
            self._kill(member.host, signal.SIGKILL)
        else:
            # Mostly the host is dying, and its end will be told as the member's. Else no control plane can be given to the member.
            self._loop.later(self._kill_s, lambda: self._overdue(member))

    def _host_lost(self, host: HostChild, broke_rules: bool, why: str) -> None:
        self._close(host)
        if broke_rules:
            say(f"the host {host.name} (pid {host.outer}) broke the rules of the wire and is ended: {why}")
            self._kill(host, signal.SIGKILL)
        else:
            self._loop.later(self._kill_s, lambda: self._kill(host, signal.SIGKILL))

    def _overdue(self, member: Member) -> None:
        if member.life is not Life.ENDED:
            self._kill(member.host, signal.SIGKILL)

    def _close(self, host: HostChild) -> None:
        if self._open.get(host.name) is host:
            del self._open[host.name]
        host.peer.close()

    def _kill(self, host: HostChild, number: int) -> None:
        if host.life is not Life.ENDED:
            self._signal_host(host.pid, number)
