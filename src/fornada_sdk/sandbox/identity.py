"""Who a child is: uid and gid outside, a user namespace of its own, and no capabilities in it."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from fornada_sdk.sandbox import syscalls
from fornada_sdk.sandbox.plan import Identity, Users

CAP_SETPCAP = 8


def become(wanted: Identity) -> None:
    """Gives up root for good, in this user namespace."""
    _drop_bounding()  # not allowed any more once the uid has changed
    os.setgroups([])
    os.setresgid(wanted.gid, wanted.gid, wanted.gid)
    os.setresuid(wanted.uid, wanted.uid, wanted.uid)
    # The change made /proc/self root's; the maps below are written there, and a model reads there.
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)


def enter_users(wanted: Users) -> None:
    """Into a new user namespace, and a mount namespace that belongs to it: the flags of all mounts are locked from here on."""
    uid, gid = os.geteuid(), os.getegid()
    syscalls.unshare(syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNS)
    map_ids("self", uids=[(wanted.uid, uid, 1)], gids=[(wanted.gid, gid, 1)])


def map_ids(process: str, *, uids: Sequence[tuple[int, int, int]], gids: Sequence[tuple[int, int, int]], setgroups: bool = False) -> None:
    """Says who is who in the new user namespace of `process`, as /proc names it: (inside, outside, how many), once and for all.

    An ordinary user may map his own uid and gid alone, and only where the namespace allows no setgroups. Raises OSError.
    """
    if not setgroups:
        _write(f"/proc/{process}/setgroups", "deny")
    _write(f"/proc/{process}/gid_map", _lines(gids))
    _write(f"/proc/{process}/uid_map", _lines(uids))


def drop_capabilities() -> None:
    """None now, and none to be had: not by exec, and not through a file's either."""
    _drop_bounding()
    syscalls.prctl(syscalls.PR_CAP_AMBIENT, syscalls.PR_CAP_AMBIENT_CLEAR_ALL)
    syscalls.clear_capabilities()


def refuse_new_privileges() -> None:
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)


def _drop_bounding() -> None:
    if not syscalls.capabilities() >> CAP_SETPCAP & 1:
        return  # an ordinary process: what bounds it then is that no program may give it any
    for number in range(64):
        try:
            syscalls.prctl(syscalls.PR_CAPBSET_DROP, number)
        except OSError as error:
            if error.errno == errno.EINVAL:  # the last that this kernel knows is behind us
                return
            raise


def _lines(ranges: Sequence[tuple[int, int, int]]) -> str:
    return "".join(f"{inside} {outside} {count}\n" for inside, outside, count in ranges)


def _write(path: str, content: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, content.encode())
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
    finally:
        os.close(descriptor)
