"""The filter of system calls: which variant allows what, as a program for the kernel.

The program is made here and not by libseccomp, which a machine may not have. A call that is refused gets EPERM, as it would from an
old or careful kernel, and libraries go on without it. Calls through another table (32 bit, x32) end the process: nobody makes one
by mistake.
"""

from __future__ import annotations

import enum
import errno
import functools
import os
import stat
from collections.abc import Iterable

from fornada_sdk.sandbox import allowed, bpf, syscalls
from fornada_sdk.sandbox.architecture import ALL, Architecture, own
from fornada_sdk.sandbox.bpf import Branch, Compare, Decision, Load, Mask, Return

ALLOW = Return(0x7FFF0000)
KILL = Return(0x80000000)
_ERRNO = 0x00050000
REFUSE = Return(_ERRNO | errno.EPERM)
UNKNOWN = Return(_ERRNO | errno.ENOSYS)
NO_FAMILY = Return(_ERRNO | errno.EAFNOSUPPORT)
NO_PROTOCOL = Return(_ERRNO | errno.EPROTONOSUPPORT)

OFFSET_NUMBER = 0
OFFSET_ARCHITECTURE = 4
OFFSET_ARGUMENTS = 16  # six of 64 bits
X32_FROM = 0x40000000

AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
SOCK_STREAM, SOCK_DGRAM = 1, 2
SOCK_TYPES = 0xF  # SOCK_CLOEXEC and SOCK_NONBLOCK stand in the same word
IPPROTO_TCP, IPPROTO_UDP = 6, 17
NETLINK_ROUTE = 0
NAMESPACES = 0x7E020000
"""Every CLONE_NEW* that clone knows."""
PR_SET_SECCOMP = 22
PR_SET_MM = 35
SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC = 1, 1
TIOCSTI, TIOCLINUX, TIOCSETD = 0x5412, 0x541C, 0x5423
FIOSETOWN, SIOCSPGRP = 0x8901, 0x8902
F_SETOWN, F_SETSIG, F_SETOWN_EX = 8, 10, 15
F_SETLEASE, F_NOTIFY = 1024, 1026
PERSONALITY_ASKED = 0xFFFFFFFF


class Variant(enum.Enum):
    """How much is allowed."""

    USUAL = "usual"
    """With namespaces of its own. Sockets: AF_UNIX."""
    NETWORK = "network"
    """The same, and TCP: for a network namespace in which only a forwarder listens."""
    WATCHED = "watched"
    """USUAL where no cgroup counts memory: without System V segments, which are no process's once it has let go of them."""
    WATCHED_NETWORK = "watched-network"
    """NETWORK, the same way."""
    HOST = "host"
    """USUAL, and what a client of the host's network needs: TCP, UDP for names, and asking which addresses there are."""
    STRICT = "strict"
    """Without namespaces: nothing that reaches a process of the same uid. No sockets but pairs, no shared objects, no signals but
    to itself."""
    SCOPED = "scoped"
    """The same where Landlock keeps signals inside (from its version 6 on): a model may end the processes that it started."""
    ZYGOTE = "zygote"
    """What its children may, and what takes them behind their walls: namespaces, mounts, filters. What is read-only stays so."""


class Uid(enum.Enum):
    """Whose uid a process without namespaces has. Says nothing to the other variants."""

    OWN = "own"
    SHARED = "shared"
    """The node's, so that all its files are the model's too. Landlock knows no right to change a file's mode, times or attributes,
    so nobody may change any: neither the keys that lie there, nor its own."""


_WATCHED = frozenset([Variant.WATCHED, Variant.WATCHED_NETWORK])
_WITHOUT_NAMESPACES = frozenset([Variant.STRICT, Variant.SCOPED])


def program(variant: Variant, *, architecture: Architecture | None = None, pid: int = 0, uid: Uid = Uid.SHARED) -> bytes:
    """The filter's instructions. Only STRICT looks at `pid`, the process that it may signal (0: this one).

    Raises OSError on a processor whose system calls aren't known.
    """
    chosen = architecture or own()
    # What a variant doesn't look at isn't in the key: a zygote makes each program once, for children of whichever uid.
    whose = uid if variant in _WITHOUT_NAMESPACES else Uid.SHARED
    return _program(variant, chosen.name, (pid or os.getpid()) if variant is Variant.STRICT else 0, whose)


@functools.lru_cache(maxsize=16)
def _program(variant: Variant, architecture: str, pid: int, uid: Uid) -> bytes:
    (chosen,) = [known for known in ALL if known.name == architecture]
    return bpf.packed(bpf.instructions(decision(variant, chosen, pid=pid, uid=uid)))


def decision(variant: Variant, architecture: Architecture, *, pid: int, uid: Uid) -> Decision:
    """The same as a tree."""
    by_number = {
        architecture.numbers[name]: what for name, what in verdicts(variant, pid=pid, uid=uid).items() if name in architecture.numbers
    }
    newest = max(architecture.numbers.values())
    ranges: list[tuple[int, Decision]] = []
    for number in range(newest + 1):
        what = by_number.get(number, REFUSE)
        if not ranges or ranges[-1][1] != what:
            ranges.append((number, what))
    ranges.append((newest + 1, UNKNOWN))  # what this kernel may know and we don't: libraries then try the older call
    ranges.append((X32_FROM, KILL))
    numbers = Load(OFFSET_NUMBER, bpf.search(ranges))
    return Load(OFFSET_ARCHITECTURE, Branch(Compare.EQUAL, architecture.audit, numbers, KILL))


def verdicts(variant: Variant, *, pid: int, uid: Uid) -> dict[str, Decision]:
    """What happens to each call that isn't refused whatever its arguments are."""
    names = allowed.EVERYWHERE if variant in _WITHOUT_NAMESPACES else allowed.EVERYWHERE | allowed.IN_AN_IPC_NAMESPACE
    what: dict[str, Decision] = dict.fromkeys(names, ALLOW)
    what["clone3"] = UNKNOWN  # its flags lie in memory, where no filter can look; libraries fall back to clone
    what["clone"] = Load(_argument(0), Branch(Compare.ANY_BIT, NAMESPACES, REFUSE, ALLOW))
    what["personality"] = _only(0, (0, PERSONALITY_ASKED))
    what["mknod"] = _no_device(1)
    what["mknodat"] = _no_device(2)
    what["prctl"] = _none_of(0, (PR_SET_SECCOMP, PR_SET_MM))
    # Typing into a terminal that the operator sits at; line disciplines are kernel code that nobody needs here.
    what["ioctl"] = _none_of(1, (TIOCSTI, TIOCLINUX, TIOCSETD))
    # Whoever owns a file may take a lease on it, through a read-only mount too: where the node has one uid, that is each model, and everybody
    # else who opens the weights waits for most of a minute.
    what["fcntl"] = _none_of(1, (F_SETLEASE, F_NOTIFY))
    what["socket"] = _socket(variant)
    if variant is Variant.ZYGOTE:
        what.update(_building_walls())
    if variant in _WATCHED:
        what["shmget"] = REFUSE
    what["socketpair"] = _only(0, (AF_UNIX,), NO_FAMILY)
    if variant in _WITHOUT_NAMESPACES:
        what.update(_own_process_alone())
        what["inotify_add_watch"] = REFUSE  # Landlock lets everybody watch: the names of all files that come and go
        if uid is Uid.SHARED:
            what.update(dict.fromkeys(allowed.CHANGING_ATTRIBUTES, REFUSE))
    if variant is Variant.STRICT:
        what.update(_signals_to(pid))
        what.update(_cutting_nothing_off())
    return what


def _own_process_alone() -> dict[str, Decision]:
    """A process of the same uid could be slowed down or starved by these. 0 is the caller; a thread's own number can't be told from
    a stranger's, so libraries that bind their threads one by one are refused and go on without."""
    zero = {name: _only(0, (0,)) for name in ("prlimit64", "sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler")}
    # setpriority(PRIO_PROCESS = 0, 0) and ioprio_set(IOPRIO_WHO_PROCESS = 1, 0)
    return {**zero, "setpriority": _only(0, (0,), then=_only(1, (0,))), "ioprio_set": _only(0, (1,), then=_only(1, (0,)))}


def _signals_to(pid: int) -> dict[str, Decision]:
    """Signals to `pid` alone. A file's owner counts: F_SETOWN and F_SETSIG make the kernel send any signal to any process of the uid."""
    own = _only(0, (pid,))
    return {
        **dict.fromkeys(("kill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"), own),
        **dict.fromkeys(("tkill", "pidfd_send_signal"), REFUSE),
        "fcntl": _none_of(1, (F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETLEASE, F_NOTIFY)),
        "ioctl": _none_of(1, (TIOCSTI, TIOCLINUX, TIOCSETD, FIOSETOWN, SIOCSPGRP)),
    }


def _cutting_nothing_off() -> dict[str, Decision]:
    """Before its version 3, Landlock lets truncate through, and whoever may read a file may empty it while opening it."""
    return {
        "truncate": REFUSE,
        "open": _no_emptying(1),
        "openat": _no_emptying(2),
        "openat2": UNKNOWN,  # its flags lie in memory
    }


def _no_emptying(flags: int) -> Decision:
    return Load(_argument(flags), Mask(os.O_TRUNC | os.O_ACCMODE, Branch(Compare.EQUAL, os.O_TRUNC | os.O_RDONLY, REFUSE, ALLOW)))


def _building_walls() -> dict[str, Decision]:
    """In a user namespace where the flags of mounts aren't locked, root could make a mount writable again that it was given read-only.
    So mount_setattr isn't here, and mount changes the flags of a mount to one set alone."""
    names = ("unshare", "setns", "umount2", "pivot_root", "move_mount", "sethostname")
    landlock = ("landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self")
    read_only = Branch(Compare.EQUAL, syscalls.MS_MADE_READ_ONLY, ALLOW, REFUSE)
    return {
        **dict.fromkeys((*names, *landlock), ALLOW),
        "mount": Load(_argument(3), Branch(Compare.ANY_BIT, syscalls.MS_REMOUNT, read_only, ALLOW)),
        # No listener: whoever had it would answer the calls of others.
        "seccomp": _only(0, (SECCOMP_SET_MODE_FILTER,), then=_only(1, (SECCOMP_FILTER_FLAG_TSYNC,))),
    }


def _socket(variant: Variant) -> Decision:
    if variant in _WITHOUT_NAMESPACES:
        return NO_FAMILY
    if variant in (Variant.USUAL, Variant.WATCHED):
        return _only(0, (AF_UNIX,), NO_FAMILY)
    if variant is Variant.ZYGOTE:  # its network namespace has no interface; in a child's, one is raised by a datagram socket
        return _only(0, (AF_UNIX, AF_INET, AF_INET6), NO_FAMILY)
    # SOCK_STREAM alone isn't enough: SCTP and MPTCP are streams too.
    tcp = _only(2, (0, IPPROTO_TCP), NO_PROTOCOL)
    udp = _only(2, (0, IPPROTO_UDP), NO_PROTOCOL) if variant is Variant.HOST else REFUSE
    kind = Branch(Compare.EQUAL, SOCK_STREAM, tcp, Branch(Compare.EQUAL, SOCK_DGRAM, udp, REFUSE))
    others: Decision = NO_FAMILY
    if variant is Variant.HOST:
        others = Branch(Compare.EQUAL, AF_NETLINK, _only(2, (NETLINK_ROUTE,), NO_PROTOCOL), NO_FAMILY)
    internet = _any_of((AF_INET, AF_INET6), Load(_argument(1), Mask(SOCK_TYPES, kind)), others)
    return Load(_argument(0), Branch(Compare.EQUAL, AF_UNIX, ALLOW, internet))


def _no_device(mode: int) -> Decision:
    kinds = (0, stat.S_IFREG, stat.S_IFIFO, stat.S_IFSOCK)
    return Load(_argument(mode), Mask(0o170000, _any_of(kinds, ALLOW, REFUSE)))


def _only(argument: int, values: Iterable[int], otherwise: Decision = REFUSE, *, then: Decision = ALLOW) -> Decision:
    return Load(_argument(argument), _any_of(values, then, otherwise))


def _none_of(argument: int, values: Iterable[int]) -> Decision:
    return Load(_argument(argument), _any_of(values, REFUSE, ALLOW))


def _any_of(values: Iterable[int], yes: Decision, no: Decision) -> Decision:
    for value in values:
        no = Branch(Compare.EQUAL, value, yes, no)
    return no


def _argument(index: int) -> int:
    """Where its lower half lies. The upper one isn't looked at: all of these are ints to the kernel, which cuts them off as we do."""
    return OFFSET_ARGUMENTS + 8 * index
