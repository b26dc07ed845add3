"""The process between the keeper and a zygote: it makes what a zygote must not be able to undo, and ends with it.

    keeper (the node's users)
      +-- guard, process 1 of a pid namespace: builds the zygote's root with the keeper's rights, then makes a user namespace
            +-- zygote, process 1 of a second pid namespace, root in the new user namespace alone

A zygote forks children that are process 1 of namespaces of their own, which takes rights over the pid namespace that it is in. So
that one must belong to the zygote's user namespace, and a namespace is made only for one's children: hence the guard. The zygote's
view of files was made outside of its user namespace, and for whom that is so the kernel locks it: nothing can be made writable
again, nothing can be taken away to see what lies below.
"""

import dataclasses
import errno
import os
import select
from collections.abc import Sequence
from typing import NoReturn

from fornada.keeper.separation import place, renew_signals
from fornada.keeper.uid_blocks import Ids
from fornada_sdk.sandbox import enter, identity, limits, mounts, seccomp, syscalls
from fornada_sdk.sandbox.plan import Plan

CANT_EXIT = 127
REPORT_LONGEST = 1000
KEPT_CAPABILITIES = frozenset({6, 7, 8, 12, 21, 31})
"""CAP_SETGID, CAP_SETUID, CAP_SETPCAP, CAP_NET_ADMIN, CAP_SYS_ADMIN: what a child's way behind its walls takes. CAP_SETFCAP: without
it nobody may map root's uid into a further user namespace."""
_PROC_FLAGS = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC


@dataclasses.dataclass(frozen=True, slots=True)
class Guarded:
    """A zygote to start."""

    argv: tuple[str, ...]
    env: dict[str, str]
    descriptors: tuple[int, ...]
    """What its descriptors 0, 1, 2 ... are; it has no others."""
    plan: Plan
    """cgroups, namespaces, root, host name and limits. The rest is decided here."""
    planned: tuple[int, ...]
    """The descriptors that the plan counts."""
    ids: Ids
    keeper: int
    """Our pidfd: it can be read once we have ended."""


def become(guarded: Guarded, *, report: int) -> NoReturn:
    """In a child from `forking.fork_first`. `report` is as for any child: closed when the zygote's program executes, else a line why
    it can't. Ends as the zygote does: with its exit code, or 128 and the number of the signal that ended it."""
    try:
        report, keeper, *planned = place(guarded.descriptors, (report, guarded.keeper, *guarded.planned))
        try:
            zygote = _start(guarded, planned, report, keeper)
        except (enter.EnterFailed, OSError, ValueError) as error:
            _tell(report, "guard", error)
            os._exit(CANT_EXIT)
        syscalls.close_from(0)
        identity.drop_capabilities()
        _end_as(zygote)
    finally:
        os._exit(CANT_EXIT)


def _start(guarded: Guarded, planned: Sequence[int], report: int, keeper: int) -> int:
    """The zygote's pid."""
    os.setsid()
    renew_signals()
    plan = guarded.plan
    for index in plan.cgroups:
        os.write(planned[index], b"0")
    halfway = enter.begin(dataclasses.replace(plan, cgroups=()), planned, parent=keeper)
    syscalls.unshare(syscalls.CLONE_NEWCGROUP)
    mounts.seal(halfway.top)
    if plan.hostname:
        syscalls.sethostname(plan.hostname)
    _enter_users(guarded.ids)
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)  # our memory is a copy of the keeper's, and the zygote has our uid
    _tie(keeper)
    syscalls.unshare(syscalls.CLONE_NEWNS | syscalls.CLONE_NEWPID)
    pid = os.fork()
    if pid == 0:
        _become_zygote(guarded, report)
    return pid


def _enter_users(ids: Ids) -> None:
    """Whoever writes the maps must have rights outside, and be somebody else than who enters."""
    told, tell = os.pipe2(os.O_CLOEXEC)
    helper = os.fork()
    if helper == 0:
        code = 1
        try:
            os.close(tell)
            if os.read(told, 1):
                # Where there is one alone it may be an ordinary user's, who may map it if nobody can change groups by it.
                uids, gids = ((0, first, ids.count) for first in (ids.first_uid, ids.first_gid))
                identity.map_ids("1", uids=[uids], gids=[gids], setgroups=ids.count > 1)
                code = 0
        except OSError as error:
            code = error.errno or 1
        finally:
            os._exit(code)
    syscalls.unshare(syscalls.CLONE_NEWUSER)
    os.write(tell, b"\0")
    os.close(tell)
    os.close(told)
    code = os.waitstatus_to_exitcode(os.waitpid(helper, 0)[1])
    if code:
        raise OSError(abs(code), f"its uids can't be mapped: {os.strerror(code) if code > 0 else 'killed'}")
    if ids.count > 1:
        os.setgroups([])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)


def _become_zygote(guarded: Guarded, report: int) -> NoReturn:
    try:
        syscalls.die_with_parent()
        syscalls.mount("fornada", "/proc", "proc", _PROC_FLAGS)
        limits.apply(guarded.plan.limits)
        _bound_capabilities()
        identity.refuse_new_privileges()
        os.umask(0o022)
        syscalls.seccomp_filter(seccomp.program(seccomp.Variant.ZYGOTE))
        os.execve(guarded.argv[0], guarded.argv, guarded.env)
    except (OSError, ValueError) as error:
        _tell(report, "start", error)
    finally:
        os._exit(CANT_EXIT)


def _bound_capabilities() -> None:
    """Root in a user namespace gets at its exec what the bounding set leaves."""
    for number in range(64):
        if number not in KEPT_CAPABILITIES:
            try:
                syscalls.prctl(syscalls.PR_CAPBSET_DROP, number)
            except OSError as error:
                if error.errno == errno.EINVAL:  # the last that this kernel knows is behind us
                    return
                raise


def _tie(keeper: int) -> None:
    """The change of uid took the tie away."""
    syscalls.die_with_parent()
    poll = select.poll()
    poll.register(keeper, select.POLLIN)
    if poll.poll(0):
        os._exit(CANT_EXIT)


def _end_as(pid: int) -> NoReturn:
    while True:
        found, status = os.wait()
        if found == pid:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


def _tell(report: int, doing: str, error: Exception) -> None:
    why = str(error)
    if isinstance(error, OSError) and error.strerror:
        why = f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    os.write(report, f"can't {doing} a zygote: {why}".encode(errors="replace")[:REPORT_LONGEST])
