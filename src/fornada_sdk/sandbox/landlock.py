"""Landlock: a list of files that a process may use, enforced by the kernel wherever they are reached from.

The second wall where there is a file system of its own, the only one where there is none.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Sequence

from fornada_sdk.sandbox import syscalls
from fornada_sdk.sandbox.plan import Access, Grant, Landlock

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
MAKE_CHAR, MAKE_BLOCK = 1 << 6, 1 << 11
REFER, TRUNCATE, IOCTL_DEV, RESOLVE_UNIX = 1 << 13, 1 << 14, 1 << 15, 1 << 16
FIRST_RIGHTS = (1 << 13) - 1
RIGHTS_SINCE = ((2, REFER), (3, TRUNCATE), (5, IOCTL_DEV), (9, RESOLVE_UNIX))
ON_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV | RESOLVE_UNIX
"""The rights that a rule for something else than a folder may name."""
BIND_TCP, CONNECT_TCP = 1, 2
SCOPE_ABSTRACT_SOCKETS, SCOPE_SIGNALS = 1, 2
TCP_SINCE = 4
SCOPES_SINCE = 6


def version() -> int:
    """The kernel's version of the interface, 0 if it has none or keeps it switched off."""
    try:
        return syscalls.landlock_version()
    except OSError:
        return 0


def handled(known: int) -> int:
    """All rights to files that version `known` can refuse."""
    return FIRST_RIGHTS | sum(right for since, right in RIGHTS_SINCE if known >= since)


def rights(access: Access) -> int:
    """What a grant allows. Device nodes can be made nowhere."""
    if access is Access.READ:
        return EXECUTE | READ_FILE | READ_DIR
    if access is Access.USE:
        return READ_FILE | READ_DIR | WRITE_FILE | TRUNCATE | IOCTL_DEV
    return (handled(1 << 30) | IOCTL_DEV) & ~(MAKE_CHAR | MAKE_BLOCK)


def restrict(wanted: Landlock) -> None:
    """For this process and all that it starts, for good; needs no_new_privs. Raises OSError, with the path where it is one's fault."""
    known = syscalls.landlock_version()
    can_refuse = handled(known)
    tcp = BIND_TCP | CONNECT_TCP if wanted.refuse_tcp and known >= TCP_SINCE else 0
    scopes = SCOPE_ABSTRACT_SOCKETS | SCOPE_SIGNALS if known >= SCOPES_SINCE else 0
    # An older kernel takes a shorter structure, and a longer one whose rest is zero.
    ruleset = syscalls.landlock_create_ruleset(struct.pack("=QQQ", can_refuse, tcp, scopes))
    try:
        _grant(ruleset, wanted.grants, can_refuse)
        syscalls.landlock_restrict_self(ruleset)
    finally:
        os.close(ruleset)


def _grant(ruleset: int, grants: Sequence[Grant], can_refuse: int) -> None:
    for grant in grants:
        descriptor = os.open(grant.path, os.O_PATH | os.O_CLOEXEC)
        try:
            allowed = rights(grant.access) & can_refuse
            if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
                allowed &= ON_FILES
            syscalls.landlock_add_path(ruleset, allowed, descriptor)
        finally:
            os.close(descriptor)
