"""Replacing the control plane while it serves: one step after the other, each with a bound and a way back.

IDLE ──UPGRADE──> STARTING ──PRESENT──> ASKING ──RELEASED──> TAKING ──SERVING──> IDLE; the old one answers what it has, and ends
                     │                    │                    │
                     └───refuses, dies, takes too long, drain──┴──> IDLE; the new one is killed, the old one RESUMEs

The order comes over DATA_DIR/run/upgrade.sock from a process of our own user. The keeper itself isn't replaced: it stays what the
last start of the node made it.
"""

import contextlib
import dataclasses
import enum
import os
import signal
import socket
import struct
from typing import Protocol

from fornada.keeper import namespaces, supervise
from fornada.keeper.config import Config
from fornada.keeper.loop import Loop, Timer
from fornada.keeper.peer import Peer
from fornada.keeper.records import Child, ControlChild
from fornada.keeper.say import say
from fornada_sdk.wire.channel import Channel, Message
from fornada_sdk.wire.messages import WIRE_VERSION, Kind

SOCKET_NAME = "upgrade.sock"
PRESENT_S = 60.0
"""A new control plane's imports, from a disk that has never read them."""
QUIET_S = 60.0
"""How long the old one looks for a moment at which nothing is half done: builds, loads, ends."""
RELEASE_SPARE_S = 5.0
SERVE_S = 10.0
"""From RELEASED to SERVING: meanwhile callers wait. Usually some tens of milliseconds."""
LEAVE_SPARE_S = 2.0
ORDER_S = 5.0
"""How long a connection to the socket may be silent."""
ASKERS_MOST = 8
GENERATIONS_MOST = 256
ORDER_MOST = 65536
_CREDENTIALS = struct.Struct("3i")


class Step(enum.Enum):
    STARTING = enum.auto()
    ASKING = enum.auto()
    TAKING = enum.auto()


class Node(Protocol):
    """control_planes.Node, as far as this module needs it."""

    @property
    def is_serving(self) -> bool: ...

    def signal(self, child: Child, number: int) -> None: ...
    def welcome(self, control: ControlChild) -> None: ...
    def names(self) -> set[str]: ...
    def disown(self, names: set[str]) -> None: ...
    def retell(self) -> None: ...


class Planes(Protocol):
    """control_planes.ControlPlanes, as far as this module needs it."""

    config: Config
    present: ControlChild | None
    supervision: supervise.Supervision

    @property
    def node(self) -> Node: ...

    def fork(self, config: Config, *, standby: bool) -> ControlChild: ...
    def tell(self, kind: Kind, head: dict[str, object], descriptors: list[int] = ...) -> None: ...
    def vacate(self) -> None: ...
    def missing(self, code: int | None, how: str) -> None: ...


class BadUpgrade(Exception):
    """The order can't be carried out. The message is one line."""


class _Run:
    """One upgrade under way."""

    def __init__(self, asker: "_Asker", release: str, config: Config, new: ControlChild, old: ControlChild) -> None:
        self.asker = asker
        self.release = release
        self.config = config
        self.new = new
        self.old: ControlChild | None = old
        """None once it is dead."""
        self.step = Step.STARTING
        self.timer: Timer | None = None
        self.known: set[str] = set()
        """Names that there were before the new one could order anything."""


class Upgrades:
    """At most one upgrade at a time, and at most one control plane that leaves."""

    def __init__(self, loop: Loop, planes: Planes, *, run_dir: str) -> None:
        self._loop = loop
        self._planes = planes
        self._run: _Run | None = None
        self._leaving: ControlChild | None = None
        self._askers: set[_Asker] = set()
        self._run_dir = run_dir
        self._listener = self._listen()

    # ---- what the control planes are to it

    def attached(self) -> list[ControlChild]:
        """Those that aren't present and still talk with runners."""
        run = self._run
        handing = [run.old] if run is not None and run.step is Step.TAKING and run.old is not None else []
        return [*handing, *([self._leaving] if self._leaving is not None else [])]

    @property
    def leaving(self) -> bool:
        """One that was replaced still answers what it had taken."""
        return self._leaving is not None

    def hears(self, control: ControlChild, message: Message) -> bool:
        """Whether the message was for us, or for nobody. Otherwise it is treated like any other."""
        if control is self._leaving:
            if message.kind == Kind.CONNECTION and message.descriptors:
                self._planes.tell(Kind.CONNECTION, {}, message.descriptors)
            else:
                _close(message)
            return True
        run = self._run
        if run is None:
            return False
        if control is run.new and run.step is not Step.TAKING:
            _close(message)
            if message.kind == Kind.PRESENT and run.step is Step.STARTING:
                self._present(run, message.head)
            return True
        if control is run.new and message.kind == Kind.SERVING:
            self._succeeded(run)
        elif control is run.old and run.step is Step.ASKING and message.kind == Kind.RELEASED:
            _close(message)
            self._released(run, message.head)
            return True
        elif control is run.old and run.step is Step.TAKING:
            _close(message)
            return True
        return False

    def ended(self, control: ControlChild) -> bool:
        """Whether its end, which has come, changes nothing for the present one."""
        if control is self._leaving:
            self._leaving = None
            if control.end.code != 0:
                say(f"the control plane that was replaced {control.end}; what it still had to answer is cut off")
            self._planes.tell(Kind.LEFT, {})
            return True
        run = self._run
        if run is None:
            return False
        if control is run.new:
            self._fail(run, f"the new control plane {control.end} before it served; the node's log says more")
            return True
        if control is not run.old:
            return False
        run.old = None
        match run.step:
            case Step.STARTING:
                self._fail(run, f"the control plane that serves {control.end} meanwhile; try again")
                return False
            case Step.ASKING:
                say(f"the control plane {control.end} while it was being replaced; its successor serves on")
                self._planes.vacate()
                self._take(run)
            case Step.TAKING:
                say(f"the control plane {control.end} while it was being replaced; its successor serves on")
        return True

    def abort(self, why: str) -> None:
        """If an upgrade is under way there is none any more."""
        if self._run is not None:
            self._fail(self._run, why)

    def close(self) -> None:
        """The node ends."""
        for asker in list(self._askers):
            asker.close()
        if self._listener is not None:
            self._loop.unwatch(self._listener.fileno())
            self._listener.close()
            self._listener = None
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self._run_dir, SOCKET_NAME))

    # ---- the steps

    def order(self, asker: "_Asker", message: Message) -> None:
        """The beginning. Raises BadUpgrade."""
        settings = message.descriptors
        try:
            argv, release = _read(message.head)
            old, planes = self._planes.present, self._planes
            if not planes.node.is_serving:
                raise BadUpgrade("the node is stopping")
            if self._run is not None:
                raise BadUpgrade(f"another upgrade, to {self._run.release}, is under way; wait for its end")
            if self._leaving is not None:
                raise BadUpgrade("the control plane that was replaced last still finishes its answers; try again in some seconds")
            if old is None or planes.supervision.state is not supervise.State.SERVING:
                raise BadUpgrade("no control plane serves at the moment; try again")
            if len(settings) != 1:
                raise BadUpgrade("it came without settings")
            config = dataclasses.replace(planes.config, control_argv=argv, settings=settings[0])
            try:
                new = planes.fork(config, standby=True)
            except OSError as error:
                raise BadUpgrade(f"the new control plane can't be started: {error.strerror}") from None
            settings = []
        finally:
            for descriptor in settings:
                os.close(descriptor)
        self._run = run = _Run(asker, release, config, new, old)
        self._bound(run, PRESENT_S, f"the new control plane wasn't ready to begin within {PRESENT_S:g} s")
        asker.step(f"starting the control plane of {release} (pid {new.outer}) beside the one that serves")

    def _present(self, run: _Run, head: dict[str, object]) -> None:
        refused, wire = head.get("refused"), head.get("wire")
        if refused:
            self._fail(run, str(refused))
        elif wire != WIRE_VERSION:
            self._fail(run, _other_wire(run.release, wire))
        elif run.old is not None:
            run.step = Step.ASKING
            self._bound(run, QUIET_S + RELEASE_SPARE_S, "the control plane that serves didn't let go in time")
            run.asker.step("it is there; waiting for a moment at which nothing is half done")
            run.old.peer.send(Kind.HANDOVER, {"patience_s": QUIET_S})

    def _released(self, run: _Run, head: dict[str, object]) -> None:
        if refused := head.get("refused"):
            self._fail(run, str(refused))
            return
        run.asker.step(f"the one that served has let go; requests that it still answers: {head.get('in_flight')}")
        self._take(run)

    def _take(self, run: _Run) -> None:
        planes = self._planes
        run.step = Step.TAKING
        run.known = planes.node.names()
        self._bound(run, SERVE_S, f"the new control plane didn't serve within {SERVE_S:g} s")
        planes.supervision = supervise.succeeded(planes.supervision, self._loop.now())
        planes.present = run.new
        planes.node.welcome(run.new)

    def _succeeded(self, run: _Run) -> None:
        self._over(run)
        planes, old = self._planes, run.old
        os.close(planes.config.settings)
        planes.config = run.config
        self._leaving = old
        if old is None:
            planes.tell(Kind.LEFT, {})
        else:
            old.peer.send(Kind.SUCCEEDED, {})
            bound_s = planes.config.drain_s + planes.config.kill_s + LEAVE_SPARE_S
            self._loop.later(bound_s, lambda: planes.node.signal(old, signal.SIGKILL))
        say(f"the control plane of {run.release} serves now (pid {run.new.outer}); models went on, and this keeper stays as it is")
        run.asker.done("")

    def _fail(self, run: _Run, why: str) -> None:
        """Back to how it was."""
        self._over(run)
        planes, new, old = self._planes, run.new, run.old
        planes.node.signal(new, signal.SIGKILL)
        new.peer.close()
        os.close(run.config.settings)
        if run.step is Step.TAKING:
            planes.node.disown(planes.node.names() - run.known)
            if old is None:
                planes.vacate()
            else:
                planes.present = old
        if old is not None and run.step is not Step.STARTING:
            old.peer.send(Kind.RESUME, {"reason": why})
            planes.node.retell()
        say(f"the upgrade to {run.release} failed: {why}; the control plane before it serves on")
        run.asker.done(why)
        if run.step is Step.TAKING and old is None:
            planes.missing(None, "ended with its successor")

    def _over(self, run: _Run) -> None:
        self._run = None
        if run.timer is not None:
            run.timer.cancel()

    def _bound(self, run: _Run, seconds: float, why: str) -> None:
        if run.timer is not None:
            run.timer.cancel()
        run.timer = self._loop.later(seconds, lambda: self._fail(run, why))

    # ---- who orders

    def _listen(self) -> socket.socket | None:
        """Through the folder's descriptor: the path of a socket has 107 bytes at most, and a data directory's may be longer."""
        try:
            folder = os.open(self._run_dir, os.O_DIRECTORY | os.O_PATH | os.O_CLOEXEC)
        except OSError:
            return None  # a keeper without a data directory, as some tests have it
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(SOCKET_NAME, dir_fd=folder)
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
            before = os.umask(0o177)
            try:
                listener.bind(f"/proc/self/fd/{folder}/{SOCKET_NAME}")
            finally:
                os.umask(before)
            listener.listen(ASKERS_MOST)
        except OSError as error:
            say(f"this node can't be upgraded while it runs: {self._run_dir}/{SOCKET_NAME}: {error.strerror}")
            return None
        finally:
            os.close(folder)
        self._loop.watch(listener.fileno(), self._accept)
        return listener

    def _accept(self) -> None:
        if self._listener is None:
            return
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return
        pid, uid, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        if uid != os.geteuid() or self._is_below(pid) or len(self._askers) >= ASKERS_MOST:
            sock.close()
            return
        self._askers.add(_Asker(self._loop, self, sock, self._askers))

    def _is_below(self, pid: int) -> bool:
        """Whether it is one of the processes that the keeper is there to confine, where they have our uid."""
        if self._planes.config.nested:
            return pid != 0  # 0 is who has no pid in our namespace
        for _ in range(GENERATIONS_MOST):
            if pid == os.getpid():
                return True
            if pid <= 1:
                return False
            pid = namespaces.parent_of(pid)
        return True


class _Asker:
    """A `fornada serve --upgrade` that waits for the outcome. It may go at any time: the upgrade goes on."""

    def __init__(self, loop: Loop, upgrades: Upgrades, sock: socket.socket, all: "set[_Asker]") -> None:
        self._upgrades = upgrades
        self._all = all
        self._asked = False
        channel = Channel(sock, queue_bytes=ORDER_MOST, body_bytes=ORDER_MOST, descriptors=1)
        self._peer = Peer(loop, channel, heard=self._heard, lost=lambda broke, why: self.close())
        loop.later(ORDER_S, lambda: None if self._asked else self.close())

    def step(self, text: str) -> None:
        self._peer.send(Kind.STEP, {"text": text})

    def done(self, failed: str) -> None:
        self._peer.send(Kind.DONE, {"failed": failed})

    def close(self) -> None:
        self._all.discard(self)
        self._peer.close()

    def _heard(self, message: Message) -> None:
        if message.kind != Kind.UPGRADE or self._asked:
            _close(message)
            return
        self._asked = True
        try:
            self._upgrades.order(self, message)
        except BadUpgrade as error:
            self.done(str(error))


def _read(head: dict[str, object]) -> tuple[list[str], str]:
    """(argv, release). Raises BadUpgrade."""
    argv, release, wire = head.get("argv"), head.get("release"), head.get("wire")
    if not isinstance(argv, list) or not argv or not all(isinstance(word, str) and "\0" not in word for word in argv):
        raise BadUpgrade("argv must be a list of words")
    if not isinstance(release, str) or not release.isprintable():
        raise BadUpgrade("release must be a text")
    if wire != WIRE_VERSION:
        raise BadUpgrade(_other_wire(release, wire))
    return argv, release


def _other_wire(release: str, wire: object) -> str:
    return (
        f"the keeper that runs speaks version {WIRE_VERSION} of its wire and {release} version {wire}: "
        "stop the node and start the new release instead"
    )


def _close(message: Message) -> None:
    for descriptor in message.descriptors:
        os.close(descriptor)
