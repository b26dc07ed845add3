"""What the keeper knows of each child, and what it holds for it.

STARTING --its program executes--> RUNNING --reaped--> ENDED --FORGET--> (gone)
    |                                                    ^
    +-------------- killed, or it can't be executed -----+
"""

import contextlib
import enum
import os

from fornada.keeper.children import Exit, Started
from fornada.keeper.orders import Build, Command, Spawn
from fornada.keeper.peer import Peer
from fornada.keeper.walls import Enclosure
from fornada_sdk.wire import channel
from fornada_sdk.wire.messages import Kind


class Life(enum.Enum):
    STARTING = enum.auto()
    RUNNING = enum.auto()
    ENDED = enum.auto()


class Child:
    """What all children have."""

    key = ""
    """How messages call its name."""

    def __init__(self, name: str, started: Started) -> None:
        self.name = name
        self.pid = started.pid
        self.outer = started.outer
        self.report = started.report
        """Descriptor, open while STARTING."""
        self.enclosure: Enclosure | None = None
        """Until it is reaped."""
        self.life = Life.STARTING
        self.end = Exit(code=None, signal=None)
        """Means something once ENDED."""
        self.announced = False
        """The present control plane knows of it."""
        self.forgotten = False
        """Its record goes when it ends."""

    def release(self) -> None:
        """Gives back what the keeper holds for it beside the report."""


class ControlChild(Child):
    """A control plane."""

    key = "control"

    def __init__(self, started: Started, peer: Peer) -> None:
        super().__init__("control plane", started)
        self.peer = peer


class BuildChild(Child):
    """A build: uv, npm, a convert script."""

    key = "build"

    def __init__(self, order: Build, started: Started) -> None:
        super().__init__(order.build, started)
        self.command: Command = order.command
        self.log = order.log

    def is_same(self, order: Build) -> bool:
        return (self.command, self.log) == (order.command, order.log)


class InstanceChild(Child):
    """A runner: its conversation with us, and the read end of its output, kept for every control plane to come."""

    key = "instance"

    def __init__(self, order: Spawn, started: Started, peer: Peer, output: int, outbound: int = -1) -> None:
        """`outbound` is the far end of its outbound channel, -1 where it has none."""
        super().__init__(order.instance, started)
        self.memo = order.memo
        self.start = "exec"
        """How its process came about: exec, fork, or spare."""
        self.peer = peer
        self.output = output
        self.outbound = outbound

    def attach(self, epoch: int) -> list[int]:
        """A new link for the control plane of that epoch, the output, and the outbound channel if there is one: [link, output,
        outbound], the caller's. Raises OSError.

        For a runner that has ended, the link's other side is closed already.
        """
        with contextlib.ExitStack() as on_failure:
            kept = []
            for descriptor in (self.output, self.outbound):
                if descriptor >= 0:
                    kept.append(os.dup(descriptor))
                    on_failure.callback(os.close, kept[-1])
            ours, theirs = channel.pair()
            on_failure.pop_all()
        if self.life is Life.ENDED:
            theirs.close()
        else:
            self.peer.send(Kind.ATTACH, {"epoch": epoch}, [theirs.detach()])
        return [ours.detach(), *kept]

    def release(self) -> None:
        self.peer.close()
        for descriptor in (self.output, self.outbound):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self.output = self.outbound = -1


class HostChild(Child):
    """A runner that several instances share. Only the keeper knows of it: outside there are its members."""

    key = "host"

    def __init__(self, name: str, started: Started, peer: Peer) -> None:
        super().__init__(name, started)
        self.peer = peer
        """Over which members are given to it."""
        self.members: dict[str, Member] = {}
        """Those that haven't ended."""


class Member(InstanceChild):
    """An instance in a process that it shares: its pids are its host's, and it is never reaped itself."""

    def __init__(self, order: Spawn, host: HostChild, peer: Peer, output: int) -> None:
        super().__init__(order, Started(host.pid, host.outer, -1), peer, output)
        self.life = host.life
        self.host = host
        self.dismissed = False
        """It was told to go without being waited for."""

    def release(self) -> None:
        super().release()
        self.host.members.pop(self.name, None)
