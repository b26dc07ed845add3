"""System calls that the standard library doesn't have, by number: a libc may be older than its kernel.

Each raises OSError whose text begins with the call's name. Paths are text, `folder` is a descriptor that a relative path starts at.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
from collections.abc import Mapping
from typing import Union

from fornada_sdk.sandbox import architecture

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

AT_FDCWD = -100
AT_SYMLINK_NOFOLLOW = 0x100
AT_EMPTY_PATH = 0x1000
AT_RECURSIVE = 0x8000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND = 0x20, 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MS_SLAVE = 0x80000
MS_MADE_READ_ONLY = MS_RDONLY | MS_NOSUID | MS_NODEV | MS_REMOUNT | MS_BIND
"""The flags of one mount, the rest of its file system as it is. The filter of a zygote allows this change of flags alone."""
MNT_DETACH = 2

OPEN_TREE_CLONE = 1
OPEN_TREE_CLOEXEC = os.O_CLOEXEC
MOVE_MOUNT_F_EMPTY_PATH = 0x4
FSOPEN_CLOEXEC, FSMOUNT_CLOEXEC = 1, 1
FSCONFIG_SET_STRING, FSCONFIG_CMD_CREATE = 1, 6
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV, MOUNT_ATTR_NOEXEC = 1, 2, 4, 8

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_NAME = 15
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_RAISE = 2
PR_CAP_AMBIENT_CLEAR_ALL = 4

SECCOMP_SET_MODE_FILTER = 1
SECCOMP_FILTER_FLAG_TSYNC = 1
LANDLOCK_CREATE_RULESET_VERSION = 1
LANDLOCK_RULE_PATH_BENEATH = 1

_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long

_Argument = Union[int, bytes, None]


def _call(name: str, *arguments: _Argument) -> int:
    number = architecture.own().numbers[name]
    given = [ctypes.c_long(value) if isinstance(value, int) else ctypes.c_char_p(value) for value in arguments]
    result = int(_libc.syscall(ctypes.c_long(number), *given))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result


# ---- processes and namespaces ----------------------------------------------------------------------------------------------------


def unshare(flags: int) -> None:
    _call("unshare", flags)


def setns(descriptor: int, flags: int) -> None:
    """Into the namespace that `descriptor` is, or into those of the process whose pidfd it is."""
    _call("setns", descriptor, flags)


def prctl(option: int, argument: int = 0, second: int = 0) -> int:
    return _call("prctl", option, argument, second, 0, 0)


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """The kernel sends this process `number` when the thread that forked it ends. It outlives exec, not a change of uid."""
    prctl(PR_SET_PDEATHSIG, number)


def become_subreaper() -> None:
    """Descendants whose parent dies become children of this process."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def set_name(name: str) -> None:
    """What `ps` and `top` show for this thread: 15 bytes at most."""
    _call("prctl", PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def sethostname(name: str) -> None:
    raw = name.encode()
    _call("sethostname", raw, len(raw))


def close_from(first: int) -> None:
    """Closes every descriptor from `first` on."""
    try:
        _call("close_range", first, 0xFFFFFFFF, 0)
    except OSError:  # before Linux 5.9, or a filter around us
        os.closerange(first, os.sysconf("SC_OPEN_MAX"))


# ---- mounts ----------------------------------------------------------------------------------------------------------------------


def mount(source: str | None, target: str, kind: str | None, flags: int, options: str = "") -> None:
    _call("mount", _text(source), target.encode(), _text(kind), flags, options.encode() or None)


def umount2(target: str, flags: int) -> None:
    _call("umount2", target.encode(), flags)


def pivot_root(new: str, old: str) -> None:
    _call("pivot_root", new.encode(), old.encode())


def open_tree(folder: int, path: str, flags: int) -> int:
    """A descriptor of the mount below the path; with OPEN_TREE_CLONE of a copy that is mounted nowhere."""
    return _call("open_tree", folder, os.fsencode(path), flags)


def move_mount(descriptor: int, folder: int, path: str) -> None:
    """Puts a detached mount onto `path`, whose last part isn't followed if it is a link."""
    _call("move_mount", descriptor, b"", folder, os.fsencode(path), MOVE_MOUNT_F_EMPTY_PATH)


def new_mount(kind: str, options: Mapping[str, str], flags: int) -> int:
    """A descriptor (O_PATH) of a new file system that is mounted nowhere, to be attached once; `flags` are MOUNT_ATTR_*."""
    context = _call("fsopen", kind.encode(), FSOPEN_CLOEXEC)
    try:
        for key, value in options.items():
            _call("fsconfig", context, FSCONFIG_SET_STRING, key.encode(), value.encode(), 0)
        _call("fsconfig", context, FSCONFIG_CMD_CREATE, None, None, 0)
        return _call("fsmount", context, FSMOUNT_CLOEXEC, flags)
    finally:
        os.close(context)


def mount_setattr(descriptor: int, *, set_flags: int, at_flags: int = AT_EMPTY_PATH) -> None:
    attributes = struct.pack("=QQQQ", set_flags, 0, 0, 0)
    _call("mount_setattr", descriptor, b"", at_flags, attributes, len(attributes))


# ---- rights ----------------------------------------------------------------------------------------------------------------------


def capabilities() -> int:
    """The effective ones of this thread, as a bit mask."""
    data = ctypes.create_string_buffer(24)
    _call("capget", struct.pack("=Ii", _CAPABILITY_VERSION_3, 0), ctypes.addressof(data))
    low, _, _, high, _, _ = struct.unpack("=6I", data.raw)
    return int(low | high << 32)


def clear_capabilities() -> None:
    """Effective, permitted and inheritable; what was ambient goes with them."""
    _call("capset", struct.pack("=Ii", _CAPABILITY_VERSION_3, 0), struct.pack("=6I", 0, 0, 0, 0, 0, 0))


def raise_ambient() -> None:
    """Programs that this thread executes get all the capabilities that it may have itself."""
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    data = ctypes.create_string_buffer(24)
    _call("capget", header, ctypes.addressof(data))
    low_effective, low, _, high_effective, high, _ = struct.unpack("=6I", data.raw)
    _call("capset", header, struct.pack("=6I", low_effective, low, low, high_effective, high, high))
    for number in range(64):
        if (low | high << 32) >> number & 1:
            prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, number)


def landlock_version() -> int:
    return _call("landlock_create_ruleset", None, 0, LANDLOCK_CREATE_RULESET_VERSION)


def landlock_create_ruleset(attributes: bytes) -> int:
    return _call("landlock_create_ruleset", attributes, len(attributes), 0)


def landlock_add_path(ruleset: int, rights: int, descriptor: int) -> None:
    _call("landlock_add_rule", ruleset, LANDLOCK_RULE_PATH_BENEATH, struct.pack("=Qi", rights, descriptor), 0)


def landlock_restrict_self(ruleset: int) -> None:
    _call("landlock_restrict_self", ruleset, 0)


def seccomp_filter(program: bytes) -> None:
    """For all threads of this process, and for good. `program` holds instructions of 8 bytes each."""
    content = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(content))
    left = _call("seccomp", SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, header)
    if left:
        raise OSError(0, f"seccomp: thread {left} can't take the filter")


def _text(value: str | None) -> bytes | None:
    return None if value is None else value.encode()
