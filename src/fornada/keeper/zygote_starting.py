"""Starts zygotes, and asks them for processes, each with its descriptors and its half of the walls."""

import contextlib
import dataclasses
import os
from collections.abc import Callable
from typing import Any

from fornada.keeper import children, guard
from fornada.keeper.loop import Loop
from fornada.keeper.orders import Network, Spawn, Zygote
from fornada.keeper.peer import Peer
from fornada.keeper.separation import Program
from fornada.keeper.starting import RUNNER_QUEUE, Lost, converse, new_null, outbound
from fornada.keeper.walls import Enclosure, Walls
from fornada.keeper.zygote_records import Fork, ForkedChild, ZygoteChild
from fornada_sdk.sandbox import plan_json
from fornada_sdk.wire import channel
from fornada_sdk.wire.channel import Channel, Message
from fornada_sdk.wire.messages import Kind

WORDS_BYTES = 65536
"""One message of a zygote's."""
DESCRIPTORS_MOST = 240
"""That a plan may count: an order to a zygote carries them and four more in one message."""

ForkLost = Callable[[Fork, bool, str], None]


def start_zygote(loop: Loop, walls: Walls, order: Zygote, *, heard: Callable[[Message], None], lost: Lost) -> ZygoteChild:
    """With /dev/null and, as descriptor 3, its channel. Raises OSError."""
    command = order.command
    with contextlib.ExitStack() as always, contextlib.ExitStack() as on_failure:
        block = walls.block()
        if block is not None:
            on_failure.callback(walls.free_block, block)
        ours, theirs = channel.pair()
        always.callback(theirs.close)
        peer = Peer(loop, Channel(ours, queue_bytes=RUNNER_QUEUE, body_bytes=WORDS_BYTES, descriptors=2), heard=heard, lost=lost)
        on_failure.callback(peer.close)
        sandbox = dataclasses.replace(command.sandbox, own_uid=False, network=Network.NONE)
        enclosure = walls.around_zygote(f"zygote {order.zygote}", dataclasses.replace(command, sandbox=sandbox))
        on_failure.callback(enclosure.release)
        null = new_null(always)
        descriptors = (null, null, null, theirs.fileno())
        behind = enclosure.behind
        if block is None or behind is None:
            started = children.start(Program(command.argv, command.env, command.cwd, descriptors, limits=command.limits))
        else:
            guarded = guard.Guarded(command.argv, command.env, descriptors, behind.plan, behind.descriptors, block.ids, behind.keeper)
            started = children.fork(lambda report: guard.become(guarded, report=report), first=True)
        on_failure.pop_all()
    enclosure.forked(started.outer)
    child = ZygoteChild(order, started, peer, block)
    child.enclosure = enclosure
    return child


def ask_for_instance(loop: Loop, walls: Walls, zygote: ZygoteChild, order: Spawn, *, lost: ForkLost) -> ForkedChild:
    """A process for this instance, from its fork on. Raises OSError."""
    with contextlib.ExitStack() as on_failure:
        near, far = outbound(on_failure) if order.outbound else ([], -1)
        enclosure = walls.around(order.instance, order.command, block=zygote.block)
        on_failure.callback(enclosure.release)
        command = order.command
        head = {"env": command.env, "cwd": command.cwd, "limits": dataclasses.asdict(command.limits), "spare": False}
        fork = _ask(loop, zygote, order.instance, head, enclosure, lost=lost)
        on_failure.pop_all()
    child = ForkedChild(order, zygote, fork, far)
    child.near = near  # it is told what to run once its pid is known
    fork.instance = child
    return child


def ask_for_spare(loop: Loop, walls: Walls, zygote: ZygoteChild, name: str, *, lost: ForkLost) -> Fork:
    """A process that does what isn't any model's, and waits. Raises OSError."""
    enclosure = walls.around_spare(name, zygote.order.command)
    try:
        return _ask(loop, zygote, name, {"spare": True}, enclosure, lost=lost)
    except BaseException:
        enclosure.release()
        raise


def suits_a_spare(zygote: ZygoteChild, order: Spawn) -> bool:
    """What the first half of a spare's walls has decided is as this order wants it."""
    has, wants = zygote.order.command.sandbox, order.command.sandbox
    same = (has.python, has.temporary_bytes) == (wants.python, wants.temporary_bytes)
    return zygote.block is not None and same and wants.network is Network.NONE and set(has.files) <= set(wants.files)


def give_to(walls: Walls, zygote: ZygoteChild, spare: Fork, order: Spawn) -> ForkedChild:
    """The spare becomes this instance. Raises OSError; it is good for nothing then."""
    assert zygote.block is not None
    with contextlib.ExitStack() as on_failure:
        near, far = outbound(on_failure) if order.outbound else ([], -1)
        walls.complete(spare.enclosure, order.instance, order.command, beside=zygote.order.command.sandbox, block=zygote.block)
        head = {"name": order.instance, "env": order.command.env, "cwd": order.command.cwd}
        planned = _planned(spare.enclosure, head)
        on_failure.pop_all()
    spare.enclosure.forked(spare.outer)
    child = ForkedChild(order, zygote, spare, far)
    child.start, child.outer = "spare", spare.outer
    spare.instance = child
    # With its assignment: each wait for another message is one more turn that the spare has to get from a busy machine.
    assigned = {**head, "assign": order.assigned(spare.outer), "near": len(near)}
    spare.peer.send(Kind.TAKE, assigned, [*planned, *near])
    return child


def _ask(loop: Loop, zygote: ZygoteChild, name: str, head: dict[str, Any], enclosure: Enclosure, *, lost: ForkLost) -> Fork:
    with contextlib.ExitStack() as on_failure:
        talk = converse(loop, lost=lambda broke, why: lost(fork, broke, why))
        on_failure.callback(talk.close)
        report, told = os.pipe2(os.O_CLOEXEC)
        on_failure.callback(os.close, report)
        on_failure.callback(os.close, told)
        os.set_blocking(report, False)
        head = {**head, "name": name, "apart": zygote.block is not None}
        planned = _planned(enclosure, head)
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)  # its own, as new_null says
        on_failure.pop_all()
    fork = Fork(name, talk.peer, talk.output, report, enclosure)
    far, written = talk.given_away()
    zygote.peer.send(Kind.FORK, head, [null, written, far, told, *planned])
    return fork


def _planned(enclosure: Enclosure, head: dict[str, Any]) -> list[int]:
    """Puts the plan into the head; copies of the descriptors that it counts, the caller's. Raises OSError."""
    behind = enclosure.behind
    if behind is None:
        return []
    head["plan"] = plan_json.dump(behind.plan)
    if len(behind.descriptors) > DESCRIPTORS_MOST:
        raise OSError(0, f"it sees {len(behind.descriptors)} files, of which one message carries {DESCRIPTORS_MOST}")
    copies: list[int] = []
    try:
        copies.extend(map(os.dup, behind.descriptors))
    except OSError:
        for copy in copies:
            os.close(copy)
        raise
    return copies
