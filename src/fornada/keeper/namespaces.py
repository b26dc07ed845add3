"""The pid namespace that everything below main lives in, and what its processes are called outside.

In the namespace the keeper is process 1: when it ends, the kernel ends all the others. /proc stays the one of the outside, so
"/proc/self" and the Pid line of a pidfd give the numbers that the operator's `kill` understands.

An ordinary user may make one only inside a user namespace of his own, in which he has every right over what is made in it and none
over anything else. Files keep their owners there, and everybody his name.
"""

import contextlib
import errno
import os
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


def other_children(known: set[int]) -> list[tuple[int, int]]:
    """(pid, session outside) of this process's children but those `known` by their pid outside; zombies too.

    Empty where the kernel has no list of children.
    """
    others = [outer for outer in _children_outside() if outer not in known]
    depth = _depth() if others else 0
    found = []
    for outer in others:
        with contextlib.suppress(OSError, ValueError, IndexError):
            with open(f"/proc/{outer}/stat", encoding="ascii", errors="replace") as file:
                session = int(file.read().rpartition(")")[2].split()[3])
            found.append((_pids(f"/proc/{outer}/status")[depth], session))
    return found


def _children_outside() -> list[int]:
    """The kernel's list may miss a child that appears while it is read; whoever sweeps reads it until it stays empty."""
    try:
        with open(f"/proc/self/task/{own_outer_pid()}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
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
