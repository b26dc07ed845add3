"""Zygotes, and the instances that they fork: starting, asking, watching, ending. What a zygote says is a stranger's word.

A zygote runs the packages of an environment, and a fork of it runs them before its walls stand. So both are held for one: what a
zygote may do, each of its instances may do in the worst case, and no instance of another account or environment ever comes from it.
Whatever it doesn't do in time, or does otherwise than asked, costs it its office, and what it was asked for is executed instead.
"""

import contextlib
import dataclasses
import itertools
import os
import signal
from collections.abc import Callable
from typing import Any

from fornada.keeper import children, memory_watch, namespaces
from fornada.keeper.children import Exit
from fornada.keeper.loop import Loop
from fornada.keeper.orders import Spawn, Zygote
from fornada.keeper.records import Life
from fornada.keeper.say import say
from fornada.keeper.walls import Walls
from fornada.keeper.zygote_records import Fork, ForkedChild, ZygoteChild, ZygoteState
from fornada.keeper.zygote_starting import ask_for_instance, ask_for_spare, give_to, start_zygote, suits_a_spare
from fornada_sdk.wire.channel import Message
from fornada_sdk.wire.framing import ProtocolError
from fornada_sdk.wire.messages import Kind, encode

IMPORT_S = 120.0
"""From its start until WARM."""
FORK_S = 10.0
"""From FORK or TAKE until the walls stand and the pidfd is there: a thousand times what it takes."""
GONE_S = 2.0
"""What a zygote has for reaping a child that has ended."""
SPARES_LOST_MOST = 5
"""Spares in a row that ended before anybody could use one, after which there are none until one is wanted again."""
REFILL_S = 0.03
"""After a spare was taken: its successor must not take its time away."""
SPARE_LOOK_S = 1.0
"""After a zygote's first spare was forked: it has come to its rest by then. What it keeps is looked at once, since each look into a
large process takes milliseconds."""
REASON_LONGEST = 512
TOO_MUCH = "it used more memory than it may"
KILLED = Exit(code=None, signal=signal.SIGKILL)
UNKNOWN = Exit(code=None, signal=None)


@dataclasses.dataclass(frozen=True, slots=True)
class Listener:
    """Who is told."""

    started: Callable[[ZygoteChild], None]
    """There is a new child of ours."""
    came_up: Callable[[ForkedChild], None]
    ended: Callable[[ForkedChild], None]
    unforked: Callable[[ForkedChild, str], None]
    """It can't be had from its zygote, for this reason; nobody has heard of it yet."""
    lost: Callable[[ForkedChild, bool, str], None]
    """Its channel is closed: by a fault, and why."""
    changed: Callable[[ZygoteChild], None]


class Zygotes:
    """All of a node's. The keeper tells it what becomes of its own children among them, the guards."""

    def __init__(self, loop: Loop, walls: Walls, listener: Listener, *, kill_s: float, fork_s: float = FORK_S) -> None:
        self._loop = loop
        self._walls = walls
        self._tell = listener
        self._kill_s = kill_s
        self._fork_s = fork_s
        self._all: list[ZygoteChild] = []
        """That haven't been reaped."""
        self._by_key: dict[str, ZygoteChild] = {}
        """The newest of each key, if it hasn't been reaped."""
        self._numbers = itertools.count(1)

    # ---- what is ordered

    def want(self, order: Zygote) -> None:
        """That one, with as many spares. One of that key that has become unfit is succeeded. Raises OSError."""
        present = self._by_key.get(order.zygote)
        if present is not None and present.state in (ZygoteState.IMPORTING, ZygoteState.READY):
            present.retiring = False
            present.spares_wanted = order.spares
            present.spares_lost = 0
            self._refill(present)
            return
        zygote = start_zygote(
            self._loop,
            self._walls,
            order,
            heard=lambda message: self._heard(zygote, message),
            lost=lambda broke, why: self._lost(zygote, broke, why),
        )
        self._all.append(zygote)
        self._by_key[zygote.name] = zygote
        zygote.patience = self._loop.later(IMPORT_S, lambda: self._unfit(zygote, f"its imports have taken more than {IMPORT_S:g} s"))
        self._tell.started(zygote)
        self._tell.changed(zygote)

    def retire(self, key: str) -> None:
        """It ends with its last instance."""
        zygote = self._by_key.get(key)
        if zygote is not None:
            self._retire(zygote)

    def all(self) -> list[ZygoteChild]:
        """The newest of each key."""
        return list(self._by_key.values())

    def fork(self, order: Spawn) -> ForkedChild | None:
        """The instance, on its way. None where it is to be executed: its zygote isn't there, or can't fork now."""
        zygote = self._by_key.get(order.zygote)
        if zygote is None or zygote.state is not ZygoteState.READY:
            return None
        spare = next((fork for fork in zygote.spares if fork.pidfd >= 0), None) if suits_a_spare(zygote, order) else None
        try:
            if spare is not None:
                child = give_to(self._walls, zygote, spare, order)
                self._loop.later(REFILL_S, lambda: self._refill(zygote))
            else:
                child = ask_for_instance(self._loop, self._walls, zygote, order, lost=self._fork_lost)
                self._asked(zygote, child.fork)
        except OSError as error:
            if spare is not None:
                self._end_spare(spare)
            say(f"the zygote {zygote.name} doesn't fork {order.instance}, which is executed instead: {error.strerror or error}")
            return None
        fork = child.fork
        # It may have been lost while it was asked.
        within_s = self._fork_s if zygote.state is ZygoteState.READY else 0.0
        fork.patience = self._loop.later(within_s, lambda: self._overdue(zygote, fork))
        return child

    def signal(self, child: ForkedChild, number: int) -> None:
        """To the process alone: where it is process 1 of its namespace, SIGKILL takes all others along."""
        if child.life is not Life.ENDED:
            self._signal(child.fork, number)

    def signal_all(self, number: int) -> None:
        for zygote in self._all:
            for fork in zygote.forks.values():
                self._signal(fork, number)

    # ---- what a zygote says

    def _heard(self, zygote: ZygoteChild, message: Message) -> None:
        head, descriptors = message.head, message.descriptors
        fork = zygote.forks.get(str(head.get("name", "")))
        try:
            _refuse_what_cant_be_sent_on(head)
            match message.kind:
                case Kind.WARM if zygote.state is ZygoteState.IMPORTING and not zygote.facts:
                    self._warm(zygote, head)
                case Kind.UNFIT if zygote.state is ZygoteState.IMPORTING:
                    self._unfit(zygote, _text(head, "reason"))
                case Kind.FORKED if fork is not None and fork.pidfd < 0:
                    self._forked(zygote, fork, head, descriptors)
                case Kind.GONE if fork is not None and fork.pidfd >= 0:
                    self._gone(zygote, fork, _exit(head))
                case _:
                    raise ProtocolError(f"a message of kind {message.kind} that nobody has asked for")
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _warm(self, zygote: ZygoteChild, head: dict[str, Any]) -> None:
        if zygote.patience is not None:
            zygote.patience.cancel()
        failed = head.get("failed")
        zygote.facts = {
            "import_s": _number(head, "import_s"),
            "threads": int(_number(head, "threads")),
            "failed": {str(name)[:200]: str(why)[:REASON_LONGEST] for name, why in failed.items()} if isinstance(failed, dict) else {},
        }
        zygote.state = ZygoteState.READY
        self._tell.changed(zygote)
        self._refill(zygote)

    def _forked(self, zygote: ZygoteChild, fork: Fork, head: dict[str, Any], descriptors: list[int]) -> None:
        if "reason" in head:
            del zygote.forks[fork.name]
            self._failed(zygote, fork, _text(head, "reason"))
            self._let_go(zygote, fork)
            return
        if len(descriptors) != 1:
            raise ProtocolError(f"a fork with {len(descriptors)} descriptors")
        outer = _outer(descriptors[0])
        if outer and not _is_forked_by(zygote, outer):
            raise ProtocolError(f"a fork that isn't its child (pid {outer})")
        fork.pidfd, fork.outer = os.dup(descriptors[0]), outer
        fork.enclosure.forked(outer)
        fork.enclosure.end = lambda: self._signal(fork, signal.SIGKILL)
        self._loop.watch(fork.pidfd, lambda: self._dead(zygote, fork))
        if fork.instance is not None:
            fork.instance.assign()
        elif "spare_bytes" not in zygote.facts:
            self._loop.later(SPARE_LOOK_S, lambda: self._look_at(zygote, fork))
        if fork.due:
            self._signal(fork, fork.due)
        self._see_whether_it_is_up(fork)

    def _look_at(self, zygote: ZygoteChild, spare: Fork) -> None:
        resting = spare in zygote.spares and spare.pidfd >= 0
        if resting and "spare_bytes" not in zygote.facts and (held := memory_watch.own_bytes(spare.outer)):
            zygote.facts["spare_bytes"] = held
            self._tell.changed(zygote)

    # ---- what becomes of a fork

    def _asked(self, zygote: ZygoteChild, fork: Fork) -> None:
        zygote.forks[fork.name] = fork
        self._loop.watch(fork.report, lambda: self._reported(zygote, fork))

    def _reported(self, zygote: ZygoteChild, fork: Fork) -> None:
        text = children.read_report(fork.report)
        if text is None:
            return
        self._loop.unwatch(fork.report)
        os.close(fork.report)
        fork.report = -1
        if text:
            self._failed(zygote, fork, text)
        else:
            self._see_whether_it_is_up(fork)

    def _see_whether_it_is_up(self, fork: Fork) -> None:
        child = fork.instance
        if child is None or not fork.outer or fork.report >= 0 or child.life is not Life.STARTING:
            return
        if fork.patience is not None:
            fork.patience.cancel()
        child.life = Life.RUNNING
        child.zygote.spares_lost = 0
        self._tell.came_up(child)

    def _overdue(self, zygote: ZygoteChild, fork: Fork) -> None:
        if fork.instance is not None and fork.instance.life is Life.STARTING:
            asked = fork.pidfd < 0
            self._failed(zygote, fork, f"it wasn't there {self._fork_s:g} s after it had been asked for")
            if asked:
                self._unfit(zygote, f"it hadn't forked {self._fork_s:g} s after it had been asked to")

    def _failed(self, zygote: ZygoteChild, fork: Fork, why: str) -> None:
        """Before it was up. The process, if there is one, is ended, and reaped like any other."""
        child, fork.instance = fork.instance, None
        self._signal(fork, signal.SIGKILL)
        if child is None:
            say(f"a spare of the zygote {zygote.name} failed: {why}")
            return
        fork.closing = True
        fork.output = -1
        child.life = Life.ENDED
        child.release()
        self._tell.unforked(child, why)

    def _dead(self, zygote: ZygoteChild, fork: Fork) -> None:
        """Its zygote is to say how it ended."""
        self._loop.unwatch(fork.pidfd)
        self._loop.later(GONE_S, lambda: self._unreaped(zygote, fork))

    def _unreaped(self, zygote: ZygoteChild, fork: Fork) -> None:
        if zygote.forks.get(fork.name) is fork:
            self._gone(zygote, fork, UNKNOWN)
            self._unfit(zygote, f"it hadn't reaped a child {GONE_S:g} s after its end")

    def _gone(self, zygote: ZygoteChild, fork: Fork, end: Exit) -> None:
        del zygote.forks[fork.name]
        self._loop.unwatch(fork.pidfd)
        if fork.instance is not None and fork.instance.life is Life.STARTING:
            # Its report may be read to the end already: of what was dead before we heard of it.
            said = children.read_report(fork.report) if fork.report >= 0 else ""
            self._failed(zygote, fork, said or f"it {end}")
        self._let_go(zygote, fork)
        child = fork.instance
        if child is not None:
            child.life = Life.ENDED
            child.end = dataclasses.replace(end, over_memory=fork.enclosure.over_memory)
            self._tell.ended(child)
        elif not fork.closing and zygote.state is ZygoteState.READY:
            self._spare_lost(zygote)
        self._see_whether_it_may_go(zygote)

    def _let_go(self, zygote: ZygoteChild, fork: Fork) -> None:
        if fork.report >= 0:
            self._loop.unwatch(fork.report)
        fork.release()

    def _fork_lost(self, fork: Fork, broke_rules: bool, why: str) -> None:
        """A spare has nothing to say, and an instance whose channel has gone is the keeper's affair."""
        if fork.instance is not None:
            self._tell.lost(fork.instance, broke_rules, why)
        else:
            self._signal(fork, signal.SIGKILL)

    def _spare_lost(self, zygote: ZygoteChild) -> None:
        zygote.spares_lost += 1
        self._loop.later(REFILL_S, lambda: self._refill(zygote))
        if zygote.spares_lost == SPARES_LOST_MOST:
            say(f"the zygote {zygote.name} has lost {SPARES_LOST_MOST} spares in a row and gets no more for now")

    def _end_spare(self, fork: Fork) -> None:
        fork.closing = True
        self._signal(fork, signal.SIGKILL)

    def _signal(self, fork: Fork, number: int) -> None:
        if fork.pidfd < 0:
            fork.due = number
            return
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(fork.pidfd, number)

    # ---- what becomes of a zygote

    def refused(self, zygote: ZygoteChild, why: str) -> None:
        """Its program can't be executed."""
        self._unfit(zygote, why)

    def reaped(self, zygote: ZygoteChild) -> None:
        """With walls, all that it had forked has ended before it."""
        self._all.remove(zygote)
        if self._by_key.get(zygote.name) is zygote:
            del self._by_key[zygote.name]
        if zygote.patience is not None:
            zygote.patience.cancel()
        zygote.state = ZygoteState.ENDED
        zygote.reason = zygote.reason or (TOO_MUCH if zygote.end.over_memory and zygote.end.code != 0 else f"it {zygote.end}")
        zygote.peer.close()
        for fork in list(zygote.forks.values()):
            self._signal(fork, signal.SIGKILL)
            if fork.pidfd >= 0:
                self._gone(zygote, fork, KILLED)
            else:
                del zygote.forks[fork.name]
                if not fork.closing:
                    self._failed(zygote, fork, "its zygote has ended")
                self._let_go(zygote, fork)
        if zygote.block is not None:
            self._walls.free_block(zygote.block)
        self._tell.changed(zygote)

    def _lost(self, zygote: ZygoteChild, broke_rules: bool, why: str) -> None:
        if broke_rules:
            self._unfit(zygote, f"it broke the rules of the wire: {why}")
            self._kill(zygote)
        elif zygote.state is not ZygoteState.ENDED:
            zygote.state = ZygoteState.UNFIT
            self._loop.later(self._kill_s, lambda: self._kill(zygote))

    def _unfit(self, zygote: ZygoteChild, why: str) -> None:
        """What it has forked goes on; what it was asked for and hasn't forked is executed."""
        if zygote.state in (ZygoteState.UNFIT, ZygoteState.ENDED):
            return
        if zygote.patience is not None:
            zygote.patience.cancel()
        zygote.state, zygote.reason = ZygoteState.UNFIT, why[:REASON_LONGEST]
        say(f"the zygote {zygote.name} (pid {zygote.outer}) is no good any more, its models are executed: {zygote.reason}")
        self._tell.changed(zygote)
        for fork in list(zygote.forks.values()):
            if fork.pidfd < 0 and fork.instance is not None:
                self._failed(zygote, fork, "its zygote is no good any more")
        self._retire(zygote)

    def _retire(self, zygote: ZygoteChild) -> None:
        zygote.retiring = True
        zygote.spares_wanted = 0
        for spare in zygote.spares:
            self._end_spare(spare)
        self._see_whether_it_may_go(zygote)

    def _see_whether_it_may_go(self, zygote: ZygoteChild) -> None:
        # A fork that never came about is nothing to wait for.
        if zygote.retiring and zygote.state is not ZygoteState.ENDED and not any(f.pidfd >= 0 or f.instance for f in zygote.forks.values()):
            zygote.peer.close()
            self._loop.later(self._kill_s, lambda: self._kill(zygote))

    def _kill(self, zygote: ZygoteChild) -> None:
        if zygote.life is not Life.ENDED:
            children.signal_group(zygote.pid, signal.SIGKILL)

    def _refill(self, zygote: ZygoteChild) -> None:
        """As many spares as are wanted, no more. One at a time: the next when this one is there would be as late as it is now."""
        for spare in zygote.spares[zygote.spares_wanted :]:
            self._end_spare(spare)
        if zygote.state is not ZygoteState.READY or zygote.retiring or not zygote.apart:
            return
        while len(zygote.spares) < zygote.spares_wanted and zygote.spares_lost < SPARES_LOST_MOST:
            try:
                fork = ask_for_spare(self._loop, self._walls, zygote, f"spare {next(self._numbers)}", lost=self._fork_lost)
            except OSError as error:
                say(f"the zygote {zygote.name} gets no spare: {error.strerror or error}")
                return
            self._asked(zygote, fork)


def _refuse_what_cant_be_sent_on(head: dict[str, Any]) -> None:
    """Half of a surrogate pair would fail only where the control plane is told. Raises ProtocolError."""
    try:
        encode(head)
    except ValueError as error:
        raise ProtocolError(f"a text that has no bytes: {error}") from None


def _outer(pidfd: int) -> int:
    """The pid outside of what a zygote says is the pidfd of its child, 0 if that has ended already. Raises ProtocolError."""
    with contextlib.suppress(OSError, ValueError):
        with open(f"/proc/self/fdinfo/{pidfd}", encoding="ascii") as file:
            for line in file:
                if line.startswith("Pid:") and (found := int(line.split()[1])):
                    return max(0, found)
    raise ProtocolError("a fork whose descriptor is no pidfd of a process of ours")


def _is_forked_by(zygote: ZygoteChild, outer: int) -> bool:
    """Any socket of ours tells its owner a pidfd of the keeper: what is signalled, stopped and measured as an instance must be one."""
    parent = namespaces.parent_of(outer)
    return (namespaces.parent_of(parent) if zygote.apart else parent) == zygote.outer  # with walls, its guard is


def _exit(head: dict[str, Any]) -> Exit:
    """Raises ProtocolError."""
    code, number = head.get("status"), head.get("signal")
    if not (_whole(code, 255) and number is None) and not (_whole(number, 64) and code is None):
        raise ProtocolError("an end without status or signal")
    return Exit(code=code, signal=number, max_rss_bytes=int(_number(head, "max_rss_bytes", most=1 << 50)), cpu_s=_number(head, "cpu_s"))


def _whole(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _number(head: dict[str, Any], key: str, *, most: float = 1e9) -> float:
    value = head.get(key)
    return float(value) if isinstance(value, int | float) and 0 <= value <= most else 0.0


def _text(head: dict[str, Any], key: str) -> str:
    return " ".join(str(head.get(key) or "it doesn't say why").split())[:REASON_LONGEST]
