"""What the keeper knows of a zygote, of what it has forked, and of the instances among that.

zygote    IMPORTING --WARM--> READY
              |                 |
              +--UNFIT, too late, broke the rules--> UNFIT --its last fork has ended--> ENDED <-- reaped, from anywhere
fork      asked for --FORKED--> there --GONE, or its zygote's end--> gone
instance  STARTING --its fork is there, and has reported that its walls stand--> RUNNING --its fork has gone--> ENDED
              +------ its fork fails ------> executed instead
"""

import contextlib
import enum
import os

from fornada.keeper.children import Started
from fornada.keeper.loop import Timer
from fornada.keeper.orders import Spawn, Zygote
from fornada.keeper.peer import Peer
from fornada.keeper.records import Child, InstanceChild
from fornada.keeper.uid_blocks import Block
from fornada.keeper.walls import Enclosure
from fornada_sdk.wire.messages import Kind


class ZygoteState(enum.Enum):
    """As the control plane is told it."""

    IMPORTING = "importing"
    READY = "ready"
    UNFIT = "unfit"
    """It forks nothing (any more)."""
    ENDED = "ended"


class Fork:
    """A process that a zygote was asked for, with the keeper's ends of what it has. Without an instance it is a spare."""

    def __init__(self, name: str, peer: Peer, output: int, report: int, enclosure: Enclosure) -> None:
        self.name = name
        self.peer = peer
        self.output = output
        """Belongs to the instance once there is one."""
        self.report = report
        """Non-blocking read end, -1 once it was read to its end: its walls stand then."""
        self.enclosure = enclosure
        self.pidfd = -1
        """-1 before FORKED."""
        self.outer = 0
        self.instance: ForkedChild | None = None
        self.due = 0
        """A signal that it gets as soon as it is there."""
        self.closing = False
        """It is to end: no spare any more, and its end is no surprise."""
        self.patience: Timer | None = None

    def release(self) -> None:
        """It has gone, or never was. The output stays for who has it."""
        if self.patience is not None:
            self.patience.cancel()
        self.peer.close()
        for descriptor in (self.pidfd, self.report):
            if descriptor >= 0:
                os.close(descriptor)
        self.pidfd = self.report = -1
        if self.instance is None:
            with contextlib.suppress(OSError):
                os.close(self.output)
            self.output = -1
        self.enclosure.release()


class ZygoteChild(Child):
    """A zygote. Our own child is its guard, or itself where there are no walls."""

    key = "zygote"

    def __init__(self, order: Zygote, started: Started, peer: Peer, block: Block | None) -> None:
        super().__init__(order.zygote, started)
        self.order = order
        self.peer = peer
        self.block = block
        """None: there are no walls, and so no uids."""
        self.state = ZygoteState.IMPORTING
        self.reason = ""
        """Why it is unfit, or how it ended."""
        self.facts: dict[str, object] = {}
        """WARM's."""
        self.forks: dict[str, Fork] = {}
        """That haven't gone, by name, the oldest first."""
        self.spares_wanted = order.spares
        self.spares_lost = 0
        """In a row, unused."""
        self.retiring = False
        self.patience: Timer | None = None

    @property
    def apart(self) -> bool:
        """It and its children have walls."""
        return self.block is not None

    @property
    def instances(self) -> list["ForkedChild"]:
        return [fork.instance for fork in self.forks.values() if fork.instance is not None]

    def head(self) -> dict[str, object]:
        """ZYGOTES' fields."""
        return {"zygote": self.name, "state": self.state.value, "pid": self.outer, "reason": self.reason, **self.facts}

    @property
    def spares(self) -> list[Fork]:
        return [fork for fork in self.forks.values() if fork.instance is None and not fork.closing]


class ForkedChild(InstanceChild):
    """An instance in a fork: no child of ours. Its zygote reaps it, and signals go by its pidfd."""

    def __init__(self, order: Spawn, zygote: ZygoteChild, fork: Fork, outbound: int) -> None:
        super().__init__(order, Started(-1, 0, -1), fork.peer, fork.output, outbound)
        self.order = order
        self.zygote = zygote
        self.fork = fork
        self.start = "fork"
        self.near: list[int] = []
        """What it is to be given with ASSIGN."""

    def assign(self) -> None:
        """Its pid is known."""
        self.outer = self.fork.outer
        near, self.near = self.near, []
        self.peer.send(Kind.ASSIGN, self.order.assigned(self.outer), near)

    def release(self) -> None:
        super().release()
        for descriptor in self.near:
            os.close(descriptor)
        self.near = []
