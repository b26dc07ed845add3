"""Carries a plan out, in the one order in which every step still may be done and none can be undone afterwards."""

from __future__ import annotations

import os
import select
from collections.abc import Sequence
from typing import Callable

from fornada_sdk.sandbox import identity, landlock, limits, mounts, network, seccomp, syscalls
from fornada_sdk.sandbox.plan import Attached, Namespace, Plan

_FLAGS = {
    Namespace.MOUNTS: syscalls.CLONE_NEWNS,
    Namespace.NETWORK: syscalls.CLONE_NEWNET,
    Namespace.IPC: syscalls.CLONE_NEWIPC,
    Namespace.HOSTNAME: syscalls.CLONE_NEWUTS,
    Namespace.CGROUPS: syscalls.CLONE_NEWCGROUP,
}


class EnterFailed(Exception):
    """A wall that couldn't be built. The message is one line that names the step; the process must not go on."""


class ParentGone(EnterFailed):
    """The parent ended before its child was tied to it."""


def enter(plan: Plan, descriptors: Sequence[int], *, parent: int = -1, done: Callable[[str], None] = lambda step: None) -> None:
    """Puts this process behind the plan's walls, for good. Closes `descriptors`.

    For a forked child with one thread, between the fork and its program. The working directory is / afterwards if the plan has a
    root. `parent` is a descriptor that can be read, or whose other end is closed, once the parent has ended: its pidfd, or the
    write end of a pipe that nobody else reads; without it the check is left out. `done` hears of each step that was carried out.
    Raises EnterFailed.
    """
    if max(_counted(plan), default=-1) >= len(descriptors):
        raise EnterFailed(f"the plan counts more than the {len(descriptors)} descriptors that came with it")
    for step, carry_out in _steps(plan, descriptors, parent):
        try:
            carry_out()
        except (OSError, ValueError) as error:
            raise EnterFailed(f"can't {step}: {_why(error)}") from None
        done(step)


def _counted(plan: Plan) -> list[int]:
    attached = [entry.descriptor for entry in plan.root.entries if isinstance(entry, Attached)] if plan.root is not None else []
    return [*plan.cgroups, *attached]


def _steps(plan: Plan, descriptors: Sequence[int], parent: int) -> list[tuple[str, Callable[[], None]]]:
    steps: list[tuple[str, Callable[[], None]]] = [("tie to the parent", lambda: _tie(parent))]
    if plan.cgroups:
        steps.append(("join the cgroups", lambda: _join(plan, descriptors)))
    if plan.namespaces:
        steps.append(("make namespaces", lambda: _unshare(plan)))
    if plan.loopback:
        steps.append(("raise loopback", network.raise_loopback))
    if plan.root is not None:
        steps.append(("build the root", lambda: _root(plan, descriptors)))
    if plan.hostname:
        steps.append(("set the host name", lambda: syscalls.sethostname(plan.hostname)))
    if plan.identity is not None:
        wanted = plan.identity
        steps.append((f"become uid {wanted.uid}", lambda: identity.become(wanted)))
    if plan.users is not None:
        users = plan.users
        steps.append(("make a user namespace", lambda: identity.enter_users(users)))
    # Behind the last user namespace: it counts processes anew, and a limit set before would count everybody's.
    steps.append(("set limits", lambda: limits.apply(plan.limits)))
    steps.append(("give up capabilities", _give_up))
    # The changes of identity above took the tie away.
    steps.append(("tie to the parent again", lambda: _tie(parent)))
    steps.append(("close descriptors", lambda: _close(descriptors)))
    if plan.landlock is not None:
        grants = plan.landlock
        steps.append(("restrict files", lambda: landlock.restrict(grants)))
    if plan.seccomp is not None:
        variant = plan.seccomp
        steps.append(("filter system calls", lambda: syscalls.seccomp_filter(seccomp.program(variant))))
    return steps


def _tie(parent: int) -> None:
    syscalls.die_with_parent()
    if parent < 0:
        return
    # Not by getppid, which is 0 in a pid namespace of one's own.
    poll = select.poll()
    poll.register(parent, select.POLLIN)
    if poll.poll(0):
        raise ParentGone("the parent has ended")


def _join(plan: Plan, descriptors: Sequence[int]) -> None:
    for index in plan.cgroups:
        os.write(descriptors[index], b"0")


def _unshare(plan: Plan) -> None:
    syscalls.unshare(sum(_FLAGS[namespace] for namespace in plan.namespaces))
    if Namespace.MOUNTS in plan.namespaces:
        mounts.make_private()


def _root(plan: Plan, descriptors: Sequence[int]) -> None:
    if plan.root is not None:
        top = mounts.build(plan.root, descriptors)
        mounts.change_root(top)
        os.close(top)


def _give_up() -> None:
    identity.drop_capabilities()
    identity.refuse_new_privileges()


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _why(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error)
