"""The pid namespace that everything below main lives in, and what its processes are called outside.

In the namespace the keeper is process 1: when it ends, the kernel ends all the others. /proc stays the one of the outside, so
"/proc/self" and the Pid line of a pidfd give the numbers that the operator's `kill` understands.

An ordinary user may make one only inside a user namespace of his own, in which he has every right over what is made in it and none
over anything else. Files keep their owners there, and everybody his name.
"""

import contextlib
import errno
import os
import signal
from collections.abc import Iterator

from fornada_sdk.sandbox import syscalls


@contextlib.contextmanager
def children_in_new_pid_namespace(*, with_users: bool = False) -> Iterator[bool]:
    """The first child forked inside is process 1 of a new pid namespace. Yields False where the machine doesn't allow that.

    `with_users`: inside a user namespace, for a caller without rights, who stays in it. Programs that he executes inside get all
    rights over it. On leaving, later children are forked into the caller's own pid namespace again, but for him; he can start
    neither threads nor processes any more.
    """
    with contextlib.ExitStack() as stack:
        try:
            own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, own)
            if with_users:
                stack.enter_context(_own_users())
            else:
                syscalls.unshare(syscalls.CLONE_NEWPID)
                stack.callback(syscalls.setns, own, syscalls.CLONE_NEWPID)
        except OSError:
            yield False
            return
        yield True


@contextlib.contextmanager
def _own_users() -> Iterator[None]:
    """In new user and pid namespaces; inside, rights outlive exec. Raises OSError."""
    uid, gid = os.geteuid(), os.getegid()
    syscalls.unshare(syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWPID)
    for name, content in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(content)
    syscalls.raise_ambient()
    try:
        yield
    finally:
        syscalls.prctl(syscalls.PR_CAP_AMBIENT, syscalls.PR_CAP_AMBIENT_CLEAR_ALL)


def become_subreaper() -> None:
    """Without such a namespace: descendants whose parent dies become children of this process."""
    syscalls.become_subreaper()


def own_outer_pid() -> int:
    """This process's pid outside."""
    try:
        return int(os.readlink("/proc/self"))
    except (OSError, ValueError):
        return os.getpid()


def outer_pid(pid: int) -> int:
    """The pid outside of `pid`, a child of this process that it hasn't reaped. Raises OSError."""
    if own_outer_pid() == os.getpid():
        return pid
    descriptor = os.pidfd_open(pid)
    try:
        with open(f"/proc/self/fdinfo/{descriptor}", encoding="ascii") as file:
            for line in file:
                if line.startswith("Pid:"):
                    return int(line.split()[1])
    finally:
        os.close(descriptor)
    raise ProcessLookupError(errno.ESRCH, "it has no pid outside")


def parent_of(pid: int) -> int:
    """Both as /proc has them, outside; 0 for a process that is gone, or that has no parent there."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def other_children(known: set[int]) -> list[tuple[int, int]]:
    """(pid, session outside) of this process's children but those `known` by their pid outside; zombies too.

    Empty where the kernel has no list of children.
    """
    others = [outer for outer in _children_outside() if outer not in known]
    depth = _depth() if others else 0
    found = []
    for outer in others:
        with contextlib.suppress(OSError, ValueError, IndexError):
            session = _session(outer)
            found.append((_pids(f"/proc/{outer}/status")[depth], session))
    return found


def family(outer: int) -> list[int]:
    """A child of ours by its pid outside, with all below it and those of its session that have become ours. Pids outside.

    Only the child itself where the kernel has no list of children. What appears or leaves meanwhile may be missing.
    """
    found = {outer: None}
    for orphan in _children_outside():
        with contextlib.suppress(OSError, ValueError, IndexError):
            if _session(orphan) == outer:
                found[orphan] = None
    todo = list(found)
    while todo:
        pid = todo.pop()
        with contextlib.suppress(OSError, ValueError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                below = [child for child in _listed(f"/proc/{pid}/task/{thread}/children") if child not in found]
                found.update(dict.fromkeys(below))
                todo += below
    return list(found)


def signal_outer(outer: int, number: int) -> None:
    """A signal to a process by its pid outside. Raises OSError."""
    # The process' directory stands for it as a pidfd does: no other one can take its number in between.
    folder = os.open(f"/proc/{outer}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        signal.pidfd_send_signal(folder, number)
    finally:
        os.close(folder)


def _session(outer: int) -> int:
    with open(f"/proc/{outer}/stat", encoding="ascii", errors="replace") as file:
        return int(file.read().rpartition(")")[2].split()[3])


def _listed(path: str) -> list[int]:
    with open(path, encoding="ascii") as file:
        return [int(word) for word in file.read().split()]


def _children_outside() -> list[int]:
    """The kernel's list may miss a child that appears while it is read; whoever sweeps reads it until it stays empty."""
    try:
        return _listed(f"/proc/self/task/{own_outer_pid()}/children")
    except (OSError, ValueError):
        return []


def _depth() -> int:
    """How many pid namespaces lie between /proc's and this process's own."""
    try:
        return len(_pids("/proc/self/status")) - 1
    except OSError:
        return 0


def _pids(status: str) -> list[int]:
    """The NSpid line: the process's number in each pid namespace, outermost first."""
    with open(status, encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("NSpid:"):
                return [int(word) for word in line.split()[1:]]
    return [0]
