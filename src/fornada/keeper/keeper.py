"""The keeper itself: carries out what a control plane orders, and keeps what must outlive it. It decides nothing.

SERVING --signal--> DRAINING --control plane gone, or too late--> ENDING --all reaped--> (exit)
   |                   |                                            ^
   +-------------------+--- no control plane, second signal --------+      main dead: everything is killed at once
"""

import dataclasses
import enum
import os
import signal
from collections.abc import Callable

from fornada.keeper import children, namespaces, orders
from fornada.keeper.config import Config
from fornada.keeper.control_planes import ControlPlanes
from fornada.keeper.hosts import Hosts
from fornada.keeper.loop import Loop
from fornada.keeper.orders import BadOrder
from fornada.keeper.parking import Parking
from fornada.keeper.peer import Peer
from fornada.keeper.records import BuildChild, Child, ControlChild, HostChild, InstanceChild, Life, Member
from fornada.keeper.say import say
from fornada.keeper.starting import Conversation, Lost, start_build, start_host, start_runner
from fornada.keeper.walls import Walls
from fornada.keeper.zygote_records import ForkedChild, ZygoteChild
from fornada.keeper.zygotes import Listener, Zygotes
from fornada_sdk.wire.channel import Message
from fornada_sdk.wire.messages import Kind

DRAIN_SPARE_S = 2.0
"""Beyond drain_s + kill_s: a control plane that used both to the full has yet to hear of the last end and to close its files."""
REAP_S = 2.0
"""After SIGKILL: longer than the kernel needs, and no reason to wait on for what hangs in it."""


class Phase(enum.Enum):
    SERVING = enum.auto()
    DRAINING = enum.auto()
    ENDING = enum.auto()


class Keeper:
    """One node's processes, from the first control plane to the last child."""

    def __init__(self, loop: Loop, config: Config, walls: Walls, main: Callable[["Keeper"], Peer]) -> None:
        self._loop = loop
        self._config = config
        self._walls = walls
        self._listeners = list(config.listeners)
        self._planes = ControlPlanes(loop, config, self)
        self._tell = self._planes.tell
        self._children: dict[int, Child] = {}
        """By pid, everything that isn't reaped."""
        self._named: dict[str, InstanceChild | BuildChild] = {}
        """Instances and builds, ended ones too until they are forgotten."""
        self._hosts = Hosts(
            loop,
            kill_s=config.kill_s,
            start=self._host,
            started=self.register,
            ended=self._instance_ended,
        )
        listener = Listener(
            started=self.register,
            came_up=lambda child: self._came_up(child, ""),
            ended=self._instance_ended,
            unforked=self._unforked,
            lost=self._runner_lost,
            changed=lambda zygote: self._tell(Kind.ZYGOTES, zygote.head()),
        )
        self._zygotes = Zygotes(loop, walls, listener, kill_s=config.kill_s)
        self._parking = Parking(loop)
        self._phase = Phase.SERVING
        self._code = 0
        self._main = main(self)
        loop.on_signal(signal.SIGCHLD, self._reap)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.on_signal(number, lambda: self.drain("signal to the keeper"))

    def run(self) -> int:
        """The exit code: 0 after a drain, 1 if the node ended otherwise."""
        self._planes.start()
        self._main.send(Kind.WELCOME, {"keeper_pid": namespaces.own_outer_pid()})
        self._loop.run()
        return self._code

    # ---- for the control planes (control_planes.Node)

    def welcome(self, control: ControlChild) -> None:
        builds = [child for child in self._named.values() if isinstance(child, BuildChild) and not child.forgotten]
        instances = [child for child in self._named.values() if isinstance(child, InstanceChild) and not child.forgotten]
        kept: list[InstanceChild | BuildChild] = [*instances, *builds]
        head = {
            "epoch": self._planes.epoch,
            "keeper_pid": namespaces.own_outer_pid(),
            "main_pid": self._config.main_pid,
            "control_pid": control.outer,
            "isolation": self._walls.level.value,
            "listeners": len(self._listeners),
            "instances": len(instances),
            "ended": sum(child.life is Life.ENDED for child in kept),
            "builds": [{"build": build.name, "pid": build.outer} for build in builds],
            "predecessor": bool(self._planes.upgrades.attached()),
        }
        try:
            listeners = [os.dup(listener) for listener in self._listeners]
        except OSError as error:
            self._planes.lost(control, True, f"the keeper can't give it its sockets: {error.strerror}")
            return
        control.peer.send(Kind.WELCOME, head, listeners)
        for instance in instances:
            self._announce(instance)
        for child in kept:
            child.announced = True
            if child.life is Life.ENDED:
                self._tell(Kind.EXITED, {child.key: child.name, **child.end.head()})
                if child.forgotten:  # it couldn't be given on
                    self._drop(child)
        self.retell()

    @property
    def is_serving(self) -> bool:
        return self._phase is Phase.SERVING

    def names(self) -> set[str]:
        return set(self._named)

    def disown(self, names: set[str]) -> None:
        for name in names:
            self._forget(name)

    def unannounce(self) -> None:
        for child in self._named.values():
            child.announced = False

    def retell(self) -> None:
        for zygote in self._zygotes.all():
            self._tell(Kind.ZYGOTES, zygote.head())

    def drained(self, end: children.Exit) -> None:
        if self._phase is Phase.DRAINING:
            if end.code != 0:
                say(f"the control plane {end} during the drain; what was running is cut off")
            self._end(0 if end.code == 0 else 1)

    def give_up(self, reason: str) -> None:
        if reason:
            say(reason)
        self._end(1)

    # ---- its orders

    def heard(self, message: Message) -> None:
        try:
            match message.kind:
                case Kind.SPAWN:
                    self._spawn(orders.read_spawn(message.head))
                case Kind.BUILD:
                    self._build(orders.read_build(message.head))
                case Kind.SIGNAL:
                    signalled = orders.read_signal(message.head)
                    if (child := self._named.get(signalled.name)) is not None:
                        self.signal(child, signalled.number)
                case Kind.FORGET:
                    self._forget(orders.read_forget(message.head).name)
                case Kind.ZYGOTE:
                    self._want_zygote(orders.read_zygote(message.head))
                case Kind.RETIRE:
                    self._zygotes.retire(orders.read_retire(message.head).zygote)
                case _:
                    say(f"the control plane sent a message of kind {message.kind}, which means nothing to the keeper; it is ignored")
        except BadOrder as error:
            self._refuse_unread(message, str(error))

    def _refuse_unread(self, message: Message, reason: str) -> None:
        """An order that can't be read is refused by its name where that much can be."""
        key = {Kind.SPAWN: "instance", Kind.BUILD: "build"}.get(Kind(message.kind), "")
        try:
            name = orders.name_of(message.head, key)
        except BadOrder:
            say(f"an order of kind {message.kind} from the control plane is ignored: {reason}")
            return
        self._tell(Kind.REFUSED, {key: name, "reason": reason})

    def _spawn(self, order: orders.Spawn) -> None:
        refused = self._refusal(order.instance)
        if not refused:
            try:
                self._named[order.instance] = self._instance(order)
            except OSError as error:
                refused = _cant_start(error)
        if refused:
            self._tell(Kind.REFUSED, {"instance": order.instance, "reason": refused})
        elif (child := self._named[order.instance]).life is Life.RUNNING and isinstance(child, InstanceChild):
            self._announce(child)  # its host executes already

    def _instance(self, order: orders.Spawn) -> InstanceChild:
        if order.host:
            return self._hosts.join(order)
        return (self._zygotes.fork(order) if order.zygote else None) or self._runner(order)

    def _unforked(self, child: ForkedChild, why: str) -> None:
        """What its zygote can't give is executed; to who ordered it, it is the same instance."""
        if self._named.get(child.name) is not child:
            return
        del self._named[child.name]
        if not child.forgotten:
            say(f"{child.name} couldn't be forked and is executed: {why}")
            self._spawn(dataclasses.replace(child.order, zygote=""))

    def _want_zygote(self, order: orders.Zygote) -> None:
        try:
            if self._phase is Phase.SERVING:
                self._zygotes.want(order)
        except OSError as error:
            self._tell(Kind.ZYGOTES, {"zygote": order.zygote, "state": "unfit", "pid": 0, "reason": _cant_start(error)})

    def _runner(self, order: orders.Spawn) -> InstanceChild:
        runner, near = start_runner(self._loop, self._walls, order, lost=lambda broke, why: self._runner_lost(runner, broke, why))
        self.register(runner)
        runner.peer.send(Kind.ASSIGN, order.assigned(runner.outer), near)
        return runner

    def _host(self, order: orders.Spawn, talk: Conversation, lost: Lost) -> HostChild:
        return start_host(self._loop, self._walls, order, talk, lost=lost)

    def _build(self, order: orders.Build) -> None:
        present = self._named.get(order.build)
        if isinstance(present, BuildChild) and present.is_same(order) and not present.forgotten:
            self._announce(present)  # a predecessor's order: the caller waits for the same end
            if present.life is Life.ENDED:
                self._tell(Kind.EXITED, {"build": present.name, **present.end.head()})
            return
        refused = self._refusal(order.build)
        if not refused:
            try:
                build = start_build(self._walls, order)
            except OSError as error:
                refused = _cant_start(error)
            else:
                self.register(build)
                self._named[build.name] = build
        if refused:
            self._tell(Kind.REFUSED, {"build": order.build, "reason": refused})

    def _refusal(self, name: str) -> str:
        if name in self._named:
            return f"'{name}' is there already, or its end hasn't been noted yet"
        return "" if self._phase is not Phase.ENDING else "the node is ending"

    def _announce(self, child: InstanceChild | BuildChild) -> None:
        """SPAWNED or BUILT, with what belongs to it."""
        if self._planes.present is None:
            return
        child.announced = True
        if isinstance(child, BuildChild):
            self._tell(Kind.BUILT, {"build": child.name, "pid": child.outer})
            return
        self._parking.unpark(child)  # it is to say HELLO
        try:
            descriptors = child.attach(self._planes.epoch)
        except OSError as error:
            child.forgotten = True
            self._end_unasked(child)
            self._tell(Kind.REFUSED, {"instance": child.name, "reason": _cant_start(error)})
            return
        facts = {"pid": child.outer, "memo": child.memo, "outbound": child.outbound >= 0, "start": child.start}
        head = {"instance": child.name, **facts}
        self._tell(Kind.SPAWNED, head, descriptors)

    def _forget(self, name: str) -> None:
        child = self._named.get(name)
        if child is None:
            return
        child.forgotten = True
        if child.life is Life.ENDED:
            self._drop(child)
        else:
            self._end_unasked(child)

    def _end_unasked(self, child: InstanceChild | BuildChild) -> None:
        """Nobody would ever ask for its end."""
        if isinstance(child, Member):
            self._hosts.dismiss(child)
        else:
            self.signal(child, signal.SIGKILL)

    # ---- children

    def register(self, child: Child) -> None:
        self._children[child.pid] = child
        if child.enclosure is not None:
            child.enclosure.end = lambda: self.signal(child, signal.SIGKILL)
        self._loop.watch(child.report, lambda: self._reported(child))

    def _reported(self, child: Child) -> None:
        """It executes its program, or tells why it can't."""
        text = children.read_report(child.report)
        if text is not None:
            self._executes(child, text)

    def _executes(self, child: Child, text: str) -> None:
        self._loop.unwatch(child.report)
        os.close(child.report)
        child.life = Life.RUNNING
        if isinstance(child, HostChild):
            for member in self._hosts.executes(child, well=not text):
                self._came_up(member, text)
        elif isinstance(child, InstanceChild | BuildChild):
            self._came_up(child, text)
        elif isinstance(child, ZygoteChild) and text:
            self._zygotes.refused(child, text)
        elif text:
            say(f"the control plane {text}")

    def _came_up(self, child: InstanceChild | BuildChild, text: str) -> None:
        if not text and not child.announced:
            self._announce(child)
        elif text and not child.announced:
            self._drop(child)  # the name is free at once; its end, which follows, is no news
            self._tell(Kind.REFUSED, {child.key: child.name, "reason": text})

    def _reap(self) -> None:
        swept = False
        while (pid := children.next_dead()) is not None:
            child = self._children.pop(pid, None)
            if child is not None:
                if child.life is Life.STARTING:
                    self._executes(child, children.read_report(child.report) or "")
            end = children.reap(pid)
            if child is not None:
                child.life = Life.ENDED
                child.end = end
                if child.enclosure is not None:
                    child.enclosure.release()
                    child.end = dataclasses.replace(end, over_memory=child.enclosure.over_memory)
                self._ended(child)
            swept = True
        if swept:
            self._sweep()
        if self._phase is Phase.ENDING and not self._children and not self._sweep():
            self._loop.stop()

    def _ended(self, child: Child) -> None:
        match child:
            case ControlChild():
                self._planes.ended(child)
            case HostChild():
                self._hosts.reaped(child)
            case ZygoteChild():
                self._zygotes.reaped(child)
            case InstanceChild() | BuildChild():
                self._instance_ended(child)

    def _instance_ended(self, child: InstanceChild | BuildChild) -> None:
        if isinstance(child, InstanceChild):
            child.peer.close()
            self._parking.forget(child)
        if child.announced:
            self._planes.tell_all(Kind.EXITED, {child.key: child.name, **child.end.head()})
        if child.forgotten:
            self._drop(child)
        if isinstance(child, ForkedChild):
            self._sweep()  # no SIGCHLD of ours tells of its end

    def _drop(self, child: InstanceChild | BuildChild) -> None:
        if self._named.get(child.name) is child:
            del self._named[child.name]
        child.release()

    def _sweep(self) -> bool:
        """A process that left its instance's session and lost its parent belongs to nobody: it must hold nothing any longer."""
        known = {child.pid: child.outer for child in self._children.values()}
        forked = {child.outer for child in self._named.values() if isinstance(child, ForkedChild) and child.life is not Life.ENDED}
        return children.end_strays(known, set() if self._phase is Phase.ENDING else set(known.values()) | forked)

    def _runner_lost(self, child: InstanceChild, broke_rules: bool, why: str) -> None:
        """No control plane can be given to it any more. It may be on its way to its end; else it is helped."""
        if broke_rules:
            say(f"the runner {child.name} (pid {child.outer}) broke the rules of the wire and is ended: {why}")
            self.signal(child, signal.SIGKILL)
        else:
            self._loop.later(self._config.kill_s, lambda: self.signal(child, signal.SIGKILL))

    def signal(self, child: Child, number: int) -> None:
        if isinstance(child, InstanceChild) and self._parking.carries_out(child, number):
            return
        match child:
            case Member():
                self._hosts.signal(child, number)
            case ForkedChild():
                self._zygotes.signal(child, number)
            case ZygoteChild() if number != signal.SIGKILL:
                self._zygotes.retire(child.name)
            case _ if self._children.get(child.pid) is child:
                children.signal_group(child.pid, number)

    # ---- the end

    def drain(self, reason: str) -> None:
        """Lets the control plane finish, then ends the rest. Asking again changes nothing."""
        if self._phase is not Phase.SERVING:
            return
        self._planes.upgrades.abort("the node is stopping")
        self._phase = Phase.DRAINING
        if self._planes.present is None:
            self._end(0)
            return
        self._tell(Kind.DRAIN, {"reason": reason, "deadline_s": self._config.drain_s})
        self._loop.later(self._config.drain_s + self._config.kill_s + DRAIN_SPARE_S, self._drain_overdue)

    def _drain_overdue(self) -> None:
        if self._phase is Phase.DRAINING:
            say(
                f"the control plane hasn't ended {DRAIN_SPARE_S:g} s after drain_s + kill_s = "
                f"{self._config.drain_s + self._config.kill_s:g} s and is ended now"
            )
            self._end(1)

    def _end(self, code: int) -> None:
        """SIGTERM to all, SIGKILL after kill_s."""
        if self._phase is Phase.ENDING:
            return
        self._phase = Phase.ENDING
        self._code = code
        for listener in self._listeners:
            os.close(listener)
        self._listeners.clear()
        self._planes.upgrades.close()
        self._parking.unpark_all()
        for child in self._children.values():
            self.signal(child, signal.SIGTERM)
        self._zygotes.signal_all(signal.SIGTERM)
        self._loop.later(self._config.kill_s, self.kill)
        self._loop.later(0, self._reap)

    def kill(self) -> None:
        """SIGKILL to all, now. The exit code is 1 unless a drain had been completed."""
        if self._phase is not Phase.ENDING:
            self._end(1)
        for child in self._children.values():
            self.signal(child, signal.SIGKILL)
        self._zygotes.signal_all(signal.SIGKILL)
        self._loop.later(REAP_S, self._loop.stop)
        self._reap()


def _cant_start(error: OSError) -> str:
    why = error.strerror or error
    return f"the keeper can't start it: {why}: {error.filename}" if error.filename else f"the keeper can't start it: {why}"
