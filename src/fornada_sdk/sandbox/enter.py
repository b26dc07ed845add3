"""Carries a plan out, in the one order in which every step still may be done and none can be undone afterwards."""

from __future__ import annotations

import os
import select
from collections.abc import Sequence
from typing import Callable, NamedTuple

from fornada_sdk.sandbox import identity, landlock, limits, mounts, network, seccomp, syscalls
from fornada_sdk.sandbox.plan import Attached, Namespace, Plan
from fornada_sdk.sandbox.seccomp import Uid

_FLAGS = {
    Namespace.MOUNTS: syscalls.CLONE_NEWNS,
    Namespace.NETWORK: syscalls.CLONE_NEWNET,
    Namespace.IPC: syscalls.CLONE_NEWIPC,
    Namespace.HOSTNAME: syscalls.CLONE_NEWUTS,
    Namespace.CGROUPS: syscalls.CLONE_NEWCGROUP,
}
_Step = tuple[str, Callable[[], None]]
Done = Callable[[str], None]


class EnterFailed(Exception):
    """A wall that couldn't be built. The message is one line that names the step; the process must not go on."""


class ParentGone(EnterFailed):
    """The parent ended before its child was tied to it."""


class Halfway(NamedTuple):
    """What `begin` leaves open for `complete`: the new root, -1 without one."""

    top: int


def enter(plan: Plan, descriptors: Sequence[int], *, parent: int = -1, done: Done = lambda step: None) -> None:
    """Puts this process behind the plan's walls, for good. Closes `descriptors`.

    For a forked child with one thread, between the fork and its program. The working directory is / afterwards if the plan has a
    root. `parent` is a descriptor that can be read, or whose other end is closed, once the parent has ended: its pidfd, or the
    write end of a pipe that nobody else reads; without it the check is left out. `done` hears of each step that was carried out.
    Raises EnterFailed.
    """
    _check(plan, descriptors)
    _carry_out([("tie to the parent", lambda: _tie(parent))], done)
    if plan.cgroups:
        _carry_out([("join the cgroups", lambda: _join(plan, descriptors))], done)
    halfway = _spaces_and_root(plan, plan.namespaces, descriptors, done)
    _carry_out(_last_steps(plan, descriptors, parent, halfway), done)


def join(plan: Plan, descriptors: Sequence[int]) -> None:
    """The cgroups alone, for a spare that is in its own before it has a model. Raises EnterFailed."""
    _check(plan, descriptors)
    _carry_out([("join the cgroups", lambda: _join(plan, descriptors))], lambda step: None)


def begin(plan: Plan, descriptors: Sequence[int], *, parent: int = -1, done: Done = lambda step: None) -> Halfway:
    """The first half, for a spare that waits: tie, namespaces, loopback, and a root that can still be added to.

    The process keeps its rights, so nothing that a model brings may run before `complete`. Closes `descriptors`. Raises EnterFailed.
    """
    _check(plan, descriptors)
    _carry_out([("tie to the parent", lambda: _tie(parent))], done)
    halfway = _spaces_and_root(plan, plan.namespaces - {Namespace.CGROUPS}, descriptors, done)
    _close(descriptors)
    return halfway


def complete(halfway: Halfway, plan: Plan, descriptors: Sequence[int], *, parent: int = -1, done: Done = lambda step: None) -> None:
    """The rest. Of `plan.root` the entries are added to what `begin` built; `plan.namespaces` must be those of `begin`'s plan, and
    loopback was its affair. Closes `descriptors`. Raises EnterFailed."""
    _check(plan, descriptors)
    steps: list[_Step] = []
    if plan.cgroups:
        steps.append(("join the cgroups", lambda: _join(plan, descriptors)))
    if Namespace.CGROUPS in plan.namespaces:
        steps.append(("make namespaces", lambda: syscalls.unshare(syscalls.CLONE_NEWCGROUP)))
    if plan.root is not None and halfway.top >= 0:
        entries = plan.root.entries
        steps.append(("add to the root", lambda: mounts.add(halfway.top, entries, descriptors)))
    _carry_out([*steps, *_last_steps(plan, descriptors, parent, halfway)], done)


def _check(plan: Plan, descriptors: Sequence[int]) -> None:
    attached = [entry.descriptor for entry in plan.root.entries if isinstance(entry, Attached)] if plan.root is not None else []
    if not all(0 <= index < len(descriptors) for index in (*plan.cgroups, *attached)):
        raise EnterFailed(f"the plan counts other than the {len(descriptors)} descriptors that came with it")


def _carry_out(steps: Sequence[_Step], done: Done) -> None:
    for step, carry_out in steps:
        try:
            carry_out()
        except (OSError, ValueError) as error:
            raise EnterFailed(f"can't {step}: {_why(error)}") from None
        done(step)


def _spaces_and_root(plan: Plan, namespaces: frozenset[Namespace], descriptors: Sequence[int], done: Done) -> Halfway:
    steps: list[_Step] = []
    if namespaces:
        steps.append(("make namespaces", lambda: _unshare(namespaces)))
    if plan.loopback:
        steps.append(("raise loopback", network.raise_loopback))
    top = -1
    if plan.root is not None:
        root = plan.root

        def build() -> None:
            nonlocal top
            top = mounts.build(root, descriptors)

        # At once, and not when a spare gets its model: the kernel takes its time to let the old root go.
        steps += [("build the root", build), ("change the root", lambda: mounts.change_root(top))]
    _carry_out(steps, done)
    return Halfway(top)


def _last_steps(plan: Plan, descriptors: Sequence[int], parent: int, halfway: Halfway) -> list[_Step]:
    steps: list[_Step] = []
    if halfway.top >= 0:
        steps.append(("seal the root", lambda: mounts.seal(halfway.top)))
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
    if not plan.capable:
        steps.append(("give up capabilities", identity.drop_capabilities))
    steps.append(("refuse new privileges", identity.refuse_new_privileges))
    # The changes of identity above took the tie away.
    steps.append(("tie to the parent again", lambda: _tie(parent)))
    steps.append(("close descriptors", lambda: _close(descriptors)))
    if plan.landlock is not None:
        grants = plan.landlock
        steps.append(("restrict files", lambda: landlock.restrict(grants)))
    if plan.seccomp is not None:
        variant = plan.seccomp
        whose = Uid.SHARED if plan.identity is None else Uid.OWN
        steps.append(("filter system calls", lambda: syscalls.seccomp_filter(seccomp.program(variant, uid=whose))))
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


def _unshare(namespaces: frozenset[Namespace]) -> None:
    syscalls.unshare(sum(_FLAGS[namespace] for namespace in namespaces))
    if Namespace.MOUNTS in namespaces:
        mounts.make_private()


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _why(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error)
