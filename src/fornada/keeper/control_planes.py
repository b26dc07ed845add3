"""The control planes, from the first to the last: starts the next one when the present one dies, and knows those that leave.

start ──> present ──died──> the next one, or the node gives up      (supervise decides)
             └──replaced (see upgrade)──> leaving ──> ended
"""

import os
import signal
from collections.abc import Sequence
from typing import Protocol

from fornada.keeper import supervise
from fornada.keeper.children import Exit
from fornada.keeper.config import Config
from fornada.keeper.loop import Loop, Timer
from fornada.keeper.records import Child, ControlChild
from fornada.keeper.say import say
from fornada.keeper.starting import start_control
from fornada.keeper.upgrade import Upgrades
from fornada_sdk.wire.channel import Message
from fornada_sdk.wire.messages import Kind


class Node(Protocol):
    """The keeper, as far as this module needs it."""

    @property
    def is_serving(self) -> bool:
        """It neither drains nor ends."""

    def register(self, child: Child) -> None:
        """It has been started."""

    def signal(self, child: Child, number: int) -> None: ...

    def heard(self, message: Message) -> None:
        """An order of the present control plane."""

    def welcome(self, control: ControlChild) -> None:
        """It is to hear of all that is kept, and is the present one from here on."""

    def names(self) -> set[str]:
        """Of all instances and builds."""

    def disown(self, names: set[str]) -> None:
        """Nobody who lives has ordered these: they are to end."""

    def unannounce(self) -> None:
        """No control plane knows of anything."""

    def retell(self) -> None:
        """The present one may have missed what is told of a state, not of an event."""

    def drained(self, end: Exit) -> None:
        """The present control plane has ended while the node drains."""

    def give_up(self, reason: str) -> None:
        """Without a control plane there is no node."""


class ControlPlanes:
    """Owns their channels. One of them is present: its orders count, and what happens is told to it."""

    def __init__(self, loop: Loop, config: Config, node: Node) -> None:
        self.config = config
        """Of the next one."""
        self.node = node
        self.present: ControlChild | None = None
        self.supervision = supervise.Supervision(grace_s=config.grace_s)
        self._loop = loop
        self._patience: Timer | None = None
        self.upgrades = Upgrades(loop, self, run_dir=config.walls.run_dir)

    @property
    def epoch(self) -> int:
        return self.supervision.epoch

    def start(self) -> None:
        """The first one, or the next after a death."""
        if not self.node.is_serving:
            return
        self.supervision = supervise.started(self.supervision, self._loop.now())
        try:
            control = self.fork(self.config)
        except OSError as error:
            self.missing(None, f"couldn't be started: {error.strerror}")
            return
        self.present = control
        patience_s = supervise.patience_s(self.supervision, self._loop.now())
        if patience_s is not None:
            self._patience = self._loop.later(patience_s, self._overdue)
        self.node.welcome(control)

    def fork(self, config: Config, *, standby: bool = False) -> ControlChild:
        """One more process, which isn't present yet. Raises OSError."""
        control = start_control(
            self._loop,
            config,
            heard=lambda message: self._heard(control, message),
            lost=lambda broke, why: self.lost(control, broke, why),
            standby=standby,
        )
        self.node.register(control)
        return control

    def tell(self, kind: Kind, head: dict[str, object], descriptors: Sequence[int] = ()) -> None:
        """To the present one; without one the record waits for the next."""
        if self.present is None:
            for descriptor in descriptors:
                os.close(descriptor)
        else:
            self.present.peer.send(kind, head, descriptors)

    def tell_all(self, kind: Kind, head: dict[str, object]) -> None:
        """An end, also to those whose callers may wait for what has ended."""
        self.tell(kind, head)
        for control in self.upgrades.attached():
            control.peer.send(kind, head)

    def lost(self, control: ControlChild, broke_rules: bool, why: str) -> None:
        """Its channel is closed: without it, it can do nothing. It may be on its way to its end; else it is helped."""
        if broke_rules:
            say(f"the control plane (pid {control.outer}) broke the rules of the wire and is ended: {why}")
            self.node.signal(control, signal.SIGKILL)
        else:
            self._loop.later(self.config.kill_s, lambda: self.node.signal(control, signal.SIGKILL))

    def ended(self, control: ControlChild) -> None:
        """It has been reaped."""
        control.peer.close()
        if self.upgrades.ended(control) or control is not self.present:
            return
        self.vacate()
        if self.node.is_serving:
            self.missing(control.end.code, str(control.end))
        else:
            self.node.drained(control.end)

    def vacate(self) -> None:
        """The present one is gone."""
        self.present = None
        self.node.unannounce()

    def missing(self, code: int | None, how: str) -> None:
        """There is none; `how` completes "the control plane ..."."""
        if self._patience is not None:
            self._patience.cancel()
        self.supervision, choice = supervise.died(self.supervision, self._loop.now(), code, how)
        match choice:
            case supervise.Start(delay_s):
                say(f"the control plane {how}; the next one starts{f' in {delay_s:g} s' if delay_s else ''}, models go on")
                self._loop.later(delay_s, self.start)
            case supervise.GiveUp(reason):
                self.node.give_up(reason)

    def _overdue(self) -> None:
        choice = supervise.overdue(self.supervision, self._loop.now())
        if choice is not None and self.node.is_serving:
            self.node.give_up(choice.reason)

    def _heard(self, control: ControlChild, message: Message) -> None:
        if self.upgrades.hears(control, message):
            return
        for descriptor in message.descriptors:
            os.close(descriptor)
        if control is not self.present:
            return
        match message.kind:
            case Kind.SERVING:
                self.supervision = supervise.served(self.supervision)
            case Kind.PRESENT:
                pass  # of interest where another one serves meanwhile
            case _:
                self.node.heard(message)
