"""Starts the kinds of children, each with its descriptors and behind its walls."""

import contextlib
import dataclasses
import fcntl
import os
import socket
from collections.abc import Callable

from fornada.keeper import children
from fornada.keeper.config import Config
from fornada.keeper.loop import Loop
from fornada.keeper.orders import Build, Command, Spawn
from fornada.keeper.peer import Peer
from fornada.keeper.records import BuildChild, ControlChild, HostChild, InstanceChild
from fornada.keeper.separation import Program
from fornada.keeper.walls import Enclosure, Walls
from fornada_sdk.wire import channel
from fornada_sdk.wire.channel import Channel, Message

ORDER_MOST = 64 * 1024 * 1024
"""Bytes of one order, and so of an assignment."""
RUNNER_QUEUE = ORDER_MOST + 1024 * 1024
CONTROL_QUEUE = 64 * 1024 * 1024
OUTPUT_BYTES = 1024 * 1024
"""A runner that floods its output waits when this is full; the gap between two control planes must fit."""

CONTROL_SOCKET = 3
CONTROL_SETTINGS = 4
"""Descriptors of a control plane, as `start_control` lays them out."""
STANDBY = "FORNADA_STANDBY"
"""Set for one that is started beside another: it may yet be given up, and nothing would have happened."""

Lost = Callable[[bool, str], None]


class Conversation:
    """An instance's channel and output pipe, with the far ends that its process is to get."""

    def __init__(self, peer: Peer, far: socket.socket, output: int, written: int) -> None:
        self.peer = peer
        self.far = far
        self.output = output
        """Read end, non-blocking."""
        self.written = written
        """Write end."""

    def given_away(self) -> list[int]:
        """The far ends, the caller's from here on: [channel, output]."""
        return [self.far.detach(), self.written]

    def close_far(self) -> None:
        """The process has them."""
        self.far.close()
        os.close(self.written)

    def close(self) -> None:
        """There is no process."""
        self.close_far()
        self.peer.close()
        os.close(self.output)


def converse(loop: Loop, *, lost: Lost, left: Callable[[], None] | None = None) -> Conversation:
    """Raises OSError."""
    with contextlib.ExitStack() as on_failure:
        ours, theirs = channel.pair()
        on_failure.callback(theirs.close)
        on_failure.callback(ours.close)
        output, written = os.pipe2(os.O_CLOEXEC)
        on_failure.callback(os.close, output)
        on_failure.callback(os.close, written)
        os.set_blocking(output, False)
        with contextlib.suppress(OSError):  # an ordinary user's share of pipe memory may be used up: it's a smaller pipe then
            fcntl.fcntl(output, fcntl.F_SETPIPE_SZ, OUTPUT_BYTES)
        peer = Peer(loop, Channel(ours, queue_bytes=RUNNER_QUEUE, body_bytes=0), heard=None, lost=lost, left=left)
        on_failure.pop_all()
        return Conversation(peer, theirs, output, written)


def start_runner(loop: Loop, walls: Walls, order: Spawn, *, lost: Lost) -> tuple[InstanceChild, list[int]]:
    """A runner with /dev/null, its output pipe and, as descriptor 3, its channel to the keeper; and what it is to be given with ASSIGN:
    the near end of its outbound channel, if it is to have one. Raises OSError."""
    with contextlib.ExitStack() as always, contextlib.ExitStack() as on_failure:
        near, far = outbound(on_failure) if order.outbound else ([], -1)
        talk = converse(loop, lost=lost)
        on_failure.callback(talk.close)
        null = new_null(always)
        program = _runner(order.command, (null, talk.written, talk.written, talk.far.fileno()))
        started, enclosure = _start(walls, order.instance, program, order.command)
        on_failure.pop_all()
    talk.close_far()
    child = InstanceChild(order, started, talk.peer, talk.output, far)
    child.enclosure = enclosure
    return child, near


def outbound(on_failure: contextlib.ExitStack) -> tuple[list[int], int]:
    """([near end], far end), with buffers as the kernel gives them: what waits there, a model has written. Raises OSError."""
    ends = [end.detach() for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)]
    for end in ends:
        on_failure.callback(os.close, end)
    return ends[:1], ends[1]


def start_host(loop: Loop, walls: Walls, order: Spawn, talk: Conversation, *, lost: Lost) -> HostChild:
    """A process that instances will share, with a channel of its own. What it says before it has heard of any goes to the output of
    the first, whose conversation is `talk`. Raises OSError."""
    with contextlib.ExitStack() as always, contextlib.ExitStack() as on_failure:
        ours, theirs = channel.pair()
        always.callback(theirs.close)
        peer = Peer(loop, Channel(ours, queue_bytes=RUNNER_QUEUE, body_bytes=0), heard=None, lost=lost)
        on_failure.callback(peer.close)
        null = new_null(always)
        program = _runner(order.command, (null, talk.written, talk.written, theirs.fileno()))
        started, enclosure = _start(walls, f"host {order.host}", program, order.command)
        on_failure.pop_all()
        child = HostChild(order.host, started, peer)
        child.enclosure = enclosure
        return child


def start_build(walls: Walls, order: Build) -> BuildChild:
    """A build whose output goes to its log. Raises OSError."""
    command = order.command
    with contextlib.ExitStack() as always:
        null = new_null(always)
        program = Program(command.argv, command.env, command.cwd, (null, null, null), log=order.log, limits=command.limits)
        started, enclosure = _start(walls, f"build {order.build}", program, command)
    child = BuildChild(order, started)
    child.enclosure = enclosure
    return child


def new_null(always: contextlib.ExitStack) -> int:
    """/dev/null, opened for one child alone: flags, locks and owners of an open file are seen by everybody who has it from the same open.
    Raises OSError."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    always.callback(os.close, null)
    return null


def _runner(command: Command, descriptors: tuple[int, ...]) -> Program:
    return Program(command.argv, command.env, command.cwd, descriptors, limits=command.limits)


def _start(walls: Walls, name: str, program: Program, command: Command) -> tuple[children.Started, Enclosure]:
    enclosure = walls.around(name, command)
    try:
        started = children.start(dataclasses.replace(program, behind=enclosure.behind))
    except BaseException:
        enclosure.release()
        raise
    enclosure.forked(started.outer)
    return started, enclosure


def start_control(loop: Loop, config: Config, *, heard: Callable[[Message], None], lost: Lost, standby: bool = False) -> ControlChild:
    """A control plane with our stdout and stderr, its channel, the settings and the data directory's lock. A `standby` is told that
    another one serves. Raises OSError."""
    with contextlib.ExitStack() as always, contextlib.ExitStack() as on_failure:
        ours, theirs = channel.pair()
        always.callback(theirs.close)
        on_failure.callback(ours.close)
        peer = Peer(loop, Channel(ours, queue_bytes=CONTROL_QUEUE, body_bytes=ORDER_MOST, descriptors=1), heard=heard, lost=lost)
        on_failure.callback(peer.close)
        descriptors = (new_null(always), 1, 2, theirs.fileno(), config.settings, config.lock)
        if standby:
            os.putenv(STANDBY, "1")
            always.callback(os.unsetenv, STANDBY)
        started = children.start(Program(tuple(config.control_argv), None, "", descriptors, umask=0o077))
        on_failure.pop_all()
        return ControlChild(started, peer)
